// The config keys of this family, and the rules between them.
#include "models/staircase/config.h"

#include <fmt/format.h>

#include "models/config_rules.h"
#include "tensor/base/format.h"

namespace eddy::staircase {
namespace {

// Rules of the two models with chunks.
void check_chunks(const ModelConfig& c) {
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
  if (c.carry == "official" && segment / c.chunk < passes - 1)
    fail<ConfigError>(
        "config: model.carry \"official\" needs at least {} chunks in a segment, one less than a token's "
        "passes: segment {}, chunk {} (carry \"exact\" takes any number)",
        passes - 1, segment, c.chunk);
}

}  // namespace

void check(const ModelConfig& c) {
  if (c.model != "lstm") rules::one_kind_of_heads(c);
  if (c.model == "staircase" || c.model == "cached_staircase") check_chunks(c);
  if (c.model == "universal" && c.layers != 1)
    fail<ConfigError>(
        "config: model.layers must be 1 for universal, which applies it repeats times: layers "
        "{}, repeats {} (ladder repeats several)",
        c.layers, c.repeats);
}

void describe(KeyList& keys, ModelConfig& c) {
  keys.add("steps", c.steps,
           "Number of chunks in the window, and of times that a staircase passes a chunk through the layers",
           {1, 1'000'000'000})
      .read_by("staircase -lstm");
  keys.add("cache_after", c.cache_after, "Number of passes after which a chunk is frozen; 0: 1",
           {0, 1'000'000'000})
      .read_by("cached_staircase");
  keys.add("span", c.span, "Number of distances with learned positions; 0: steps * chunk", {0, 1'000'000'000})
      .read_by("staircase -lstm");
  keys.add("prenorm", c.prenorm, "Whether norms stand before attention and MLP, instead of after")
      .read_by("staircase -lstm");
  keys.add(
          "carry", c.carry,
          "What a segment leaves to the next: what the equations say, or what the code keeps; of frozen chunks (cache_after below steps) always the outputs",
          {"exact", "official"})
      .read_by("staircase/staircase cached_staircase")
      .oddity();
  keys.add("cold_start", c.cold_start, "What stands before the first token: zeros, or nothing",
           {"zeros", "empty"})
      .read_by("staircase -lstm");
  keys.add("repeats", c.repeats, "Number of times that the layers are applied", {1, 1'000'000'000})
      .read_by("ladder universal");
  keys.add("shared_kv", c.shared_kv, "Whether all layers use the keys and values of layer 0")
      .read_by("feedback");
  keys.add("feedback_memory", c.feedback_memory, "What is remembered: a mix of all layers, or the last layer",
           {"mix", "last"})
      .read_by("feedback");
  keys.add("feedback_self", c.feedback_self, "Whether a token sees itself").read_by("feedback").oddity();
  keys.add("feedback_carry", c.feedback_carry,
           "Whether carried memories are normalised as in the published code", {"raw", "official"})
      .read_by("feedback")
      .oddity();
  keys.add("embed_dim", c.embed_dim, "Width of the embedding; 0: dim", {0, 1'000'000'000}).read_by("lstm");
  keys.add("emb_dropout", c.emb_dropout, "Probability of dropping a value of an embedding", kBelowOne)
      .read_by("staircase");
  keys.add("out_dropout", c.out_dropout, "Probability of dropping a value before the head", kBelowOne)
      .read_by("staircase");
}

void fill(ModelConfig& c) {
  if (c.model != "ladder" && c.model != "universal") c.repeats = 1;
  if (c.model != "cached_staircase") c.cache_after = c.steps;
  if (c.cache_after == 0) c.cache_after = 1;
  if (c.span == 0) c.span = c.steps * c.chunk;
  if (c.embed_dim == 0) c.embed_dim = c.dim;
}

}  // namespace eddy::staircase
