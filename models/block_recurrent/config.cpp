// The config keys of this family, and the rules between them.
#include "models/block_recurrent/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "models/config_rules.h"
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

void check_sizes(const ModelConfig& c) {
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

void check_recurrence(const ModelConfig& c) {
  if (c.model != "block_recurrent") return;
  check_layers("recurrent_layers", c.recurrent_layers, c.layers);
  if (c.recurrent_layers.empty())
    fail<ConfigError>(
        "config: model.recurrent_layers is empty (which of the {} layers recur; without any, take "
        "model slide)",
        c.layers);
}

void check_memory(const ModelConfig& c) {
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

void check(const ModelConfig& c) {
  check_sizes(c);
  check_recurrence(c);
  check_memory(c);
}

void describe(KeyList& keys, ModelConfig& c) {
  keys.list_before("mask_token_zero");
  keys.add("recurrent_layers", c.recurrent_layers, "Layers with a recurrent cell, counted from 0",
           {0, 65'536})
      .read_by("block_recurrent/block_recurrent");
  keys.add("states", c.states, "Number of state vectors of a recurrent layer", {1, 1'000'000'000})
      .read_by("block_recurrent/block_recurrent");
  keys.add("gate", c.gate, "Gate of the recurrent cell", {"fixed", "lstm"})
      .read_by("block_recurrent/block_recurrent");
  keys.add("cell", c.cell, "Configuration of the recurrent cell", {"dual", "single", "skip"})
      .read_by("block_recurrent/block_recurrent");
  keys.add("feedback", c.feedback, "Whether all layers read the state")
      .read_by("block_recurrent/block_recurrent");
  keys.add("cache", c.cache, "Whether a segment sees keys and values of the last window before it")
      .read_by("block_recurrent -vanilla");
  keys.add("clear_state", c.clear_state, "Whether every segment begins with the initial state")
      .read_by("block_recurrent/block_recurrent");
  keys.add("rel_buckets", c.rel_buckets, "Number of buckets of the bias by distance", {2, 65'536})
      .read_by("block_recurrent");
  keys.add("rel_max_distance", c.rel_max_distance, "Distance from which all keys share the last bucket",
           {1, 1'000'000'000})
      .read_by("block_recurrent");
  keys.add("qk_norm", c.qk_norm,
           "Whether queries and keys are unit vectors; if not, queries are divided by sqrt(head_dim)")
      .read_by("block_recurrent");
  keys.add("qk_eps", c.qk_eps, "Number added to the squared length of queries and keys", {.low = 0})
      .read_by("block_recurrent")
      .oddity();
  keys.add("scale_abs", c.scale_abs, "Whether attention is scaled by the absolute value of its scale")
      .read_by("block_recurrent")
      .oddity();
  keys.add("logit_divisor", c.logit_divisor, "Divisor of the logits", {"sqrt_d", "sqrt_vocab", "none"})
      .read_by("block_recurrent")
      .oddity();
  keys.add("tanh_rule", c.tanh_rule,
           "Whether tanh is applied to the input of gates where the code or the paper says",
           {"code", "paper"})
      .read_by("block_recurrent/block_recurrent")
      .oddity();
  keys.add("z_bias", c.z_bias, "Whether the input of the gates has a bias")
      .read_by("block_recurrent/block_recurrent")
      .oddity();
  keys.add("attn_dropout", c.attn_dropout, "Probability of dropping an attention probability", kBelowOne)
      .read_by("block_recurrent");
  keys.list_before("");
  keys.add("memory_layers", c.memory_layers, "Layers with an external memory, counted from 0", {0, 65'536})
      .read_by("memorizing");
  keys.add("memory_size", c.memory_size, "Number of entries of the external memory", {0, 1'000'000'000})
      .read_by("memorizing");
  keys.add("memory_topk", c.memory_topk, "Number of entries that a query reads", {1, 1'000'000'000})
      .read_by("memorizing");
  keys.add("memory_search", c.memory_search,
           "How entries are found: the best of each bucket, or the exact best", {"bucket", "exact"})
      .read_by("memorizing");
  keys.add("memory_bias", c.memory_bias, "Whether memory layers keep the bias by distance in local attention")
      .read_by("memorizing")
      .oddity();
}

void fill(ModelConfig& c) {
  if (c.model != "block_recurrent") c.recurrent_layers.clear();
  if (c.model != "block_recurrent") c.feedback = false;
  if (c.model != "memorizing") c.memory_layers.clear();
  if (c.family != "block_recurrent") return;
  if (c.norm_eps == 0) c.norm_eps = 1e-6;
  c.tied = true;
  c.n_out = c.vocab;
}

}  // namespace eddy::block_recurrent
