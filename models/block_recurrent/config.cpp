// The rules between the config keys of this family, and defaults that depend on other keys.
#include "models/block_recurrent/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tensor/base/format.h"

namespace eddy::block_recurrent {
namespace {

// A list of layers: each once, all there are.
void check_layers(const char* key, const std::vector<std::int64_t>& list, std::int64_t layers) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] < 0 || list[i] >= layers)
      fail<ConfigError>("config: model.{} names layer {}, and the model has {} (0 to {})", key, list[i],
                        layers, layers - 1);
    if (std::find(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(i), list[i]) !=
        list.begin() + static_cast<std::ptrdiff_t>(i))
      fail<ConfigError>("config: model.{} names layer {} twice (each layer once)", key, list[i]);
  }
}

void check_sizes(const Config& c) {
  const std::int64_t segment = c.segment == 0 ? c.context : c.segment;
  const std::int64_t window = c.window == 0 ? segment : c.window;
  if (segment % window != 0)
    fail<ConfigError>("config: model.window must divide model.segment: window {}, segment {}", window,
                      segment);
  if ((c.model == "xl" || c.model == "vanilla") && window != segment)
    fail<ConfigError>(
        "config: model {} has one window per segment: window {}, segment {} (leave window out, or "
        "take slide)",
        c.model, window, segment);
  rules::one_kind_of_heads(c);
  if (c.rel_max_distance <= c.rel_buckets / 2)
    fail<ConfigError>(
        "config: model.rel_max_distance must be more than half of rel_buckets: rel_max_distance {}, "
        "rel_buckets {}",
        c.rel_max_distance, c.rel_buckets);
}

void check_recurrence(const Config& c) {
  if (c.model != "block_recurrent") return;
  check_layers("recurrent_layers", c.recurrent_layers, c.layers);
  if (c.recurrent_layers.empty())
    fail<ConfigError>(
        "config: model.recurrent_layers is empty (which of the {} layers recur; without any, take "
        "model slide)",
        c.layers);
}

void check_memory(const Config& c) {
  if (c.model != "memorizing") return;
  check_layers("memory_layers", c.memory_layers, c.layers);
  if (c.memory_layers.empty())
    fail<ConfigError>(
        "config: model.memory_layers is empty (which of the {} layers have a memory; without any, "
        "take model xl)",
        c.layers);
  const std::int64_t segment = c.segment == 0 ? c.context : c.segment;
  if (c.memory_size < 1 || c.memory_size % segment != 0)
    fail<ConfigError>(
        "config: model.memory_size must be a multiple of model.segment: memory_size {}, segment {}",
        c.memory_size, segment);
  if (c.memory_topk < 1 || c.memory_topk > c.memory_size)
    fail<ConfigError>("config: model.memory_topk is {} (from 1 to memory_size, {})", c.memory_topk,
                      c.memory_size);
}

}  // namespace

void check(const Config& c) {
  rules::heads(c);
  check_sizes(c);
  check_recurrence(c);
  check_memory(c);
}

// The proportions of the paper's table 1: a state vector for each position of a window, a recurrent layer after three
// quarters of the others, a memory after two thirds. Its windows are an eighth of a segment; of short segments that
// would leave too little.
void choose_sizes(Config& c, const GivenKeys& given) {
  const auto gave = [&](const char* key) { return given.contains(key); };
  const std::int64_t segment = segment_of(c);
  if (!gave("layers")) c.layers = 2;
  const bool has_windows = c.model == "slide" || c.model == "block_recurrent";
  if (has_windows && !gave("window")) c.window = even_part(segment, segment / 4);
  if (!gave("states")) c.states = c.window == 0 ? segment : c.window;
  if (c.model == "block_recurrent" && !gave("recurrent_layers")) c.recurrent_layers = {c.layers * 3 / 4};
  if (c.model != "memorizing") return;
  if (!gave("memory_layers")) c.memory_layers = {c.layers * 2 / 3};
  if (!gave("memory_size")) c.memory_size = 4 * segment;
  if (!gave("memory_topk")) c.memory_topk = std::clamp<std::int64_t>(c.memory_size / 8, 1, c.memory_topk);
}

void fill(Config& c) {
  if (c.family == "block_recurrent" && c.norm_eps == 0) c.norm_eps = 1e-6;
}

}  // namespace eddy::block_recurrent
