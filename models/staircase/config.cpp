// The rules between the config keys of this family, and defaults that depend on other keys.
#include "models/staircase/config.h"

#include <fmt/format.h>

#include "tensor/base/format.h"

namespace eddy::staircase {
namespace {

// Rules of the two models with chunks.
void check_chunks(const Config& c) {
  const bool cached = c.model == "cached_staircase";
  if (cached && c.cache_after > c.steps)
    fail<ConfigError>("config: model.cache_after must not exceed model.steps: cache_after {}, steps {}",
                      c.cache_after, c.steps);
  if (c.span != 0 && c.span / c.steps < c.chunk)
    fail<ConfigError>(
        "config: model.span must be at least steps * chunk, a column for every distance in the window: span "
        "{}, steps {}, chunk {} (0 for just as many)",
        c.span, c.steps, c.chunk);
  const std::int64_t segment = c.segment != 0 ? c.segment : c.context;
  if (segment % c.chunk != 0)
    fail<ConfigError>("config: model.chunk must divide the segment: chunk {}, {} {}", c.chunk,
                      c.segment != 0 ? "segment" : "context (model.segment is 0)", segment);
  const std::int64_t passes = !cached ? c.steps : c.cache_after != 0 ? c.cache_after : 1;
  if (value_is(c.carry, Carry::official) && segment / c.chunk < passes - 1)
    fail<ConfigError>(
        "config: model.carry \"official\" needs at least {} chunks in a segment, one less than a token's "
        "passes: segment {}, chunk {} (carry \"exact\" takes any number)",
        passes - 1, segment, c.chunk);
}

}  // namespace

void check(const Config& c) {
  if (c.model != "lstm") {
    rules::heads(c);
    rules::one_kind_of_heads(c);
  }
  if (c.model == "staircase" || c.model == "cached_staircase") check_chunks(c);
  if (c.model == "universal" && c.layers != 1)
    fail<ConfigError>(
        "config: model.layers must be 1 for universal, which applies it repeats times: layers "
        "{}, repeats {} (ladder repeats several)",
        c.layers, c.repeats);
}

// Two chunks of a quarter of the segment in the window; models without chunks see as far as a segment is long. What is
// applied several times is so at least twice.
void choose_sizes(Config& c, const GivenKeys& given) {
  const auto gave = [&](const char* key) { return given.contains(key); };
  const std::int64_t segment = segment_of(c);
  const bool has_chunks = c.model == "staircase" || c.model == "cached_staircase";
  const bool is_lstm = c.model == "lstm", is_universal = c.model == "universal";
  if (!gave("layers") && !is_lstm) c.layers = is_universal ? 1 : 2;
  if (has_chunks && !gave("chunk")) c.chunk = even_part(segment, segment / 4);
  if (!has_chunks && !is_lstm && !gave("span") && !gave("steps") && !gave("chunk")) c.span = segment;
  if (!gave("repeats")) c.repeats = is_universal ? 4 : c.model == "ladder" ? 2 : c.repeats;
}

void fill(Config& c) {
  if (c.model != "cached_staircase") c.cache_after = c.steps;
  if (c.cache_after == 0) c.cache_after = 1;
  if (c.span == 0) c.span = c.steps * c.chunk;
  if (c.embed_dim == 0) c.embed_dim = c.dim;
}

}  // namespace eddy::staircase
