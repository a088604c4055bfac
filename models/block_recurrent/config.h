// The config keys of this family with their descriptions, and the rules between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/config.h"
#include "models/value_names.h"
#include "ops/memory/memory_search.h"
#include "ops/recurrence/gates.h"

namespace eddy::block_recurrent {

// The values of its keys.
// model.cell.
enum class CellKind { dual, single, skip };
// model.logit_divisor.
enum class LogitDivisor { sqrt_d, sqrt_vocab, none };
// model.tanh_rule.
enum class TanhRule { code, paper };

}  // namespace eddy::block_recurrent

namespace eddy {

// The names of its values.
template <>
struct ValueNames<block_recurrent::CellKind> {
  // In the order of the values.
  static constexpr const char* all[] = {"dual", "single", "skip"};
};
// The names of LogitDivisor.
template <>
struct ValueNames<block_recurrent::LogitDivisor> {
  // In the order of the values.
  static constexpr const char* all[] = {"sqrt_d", "sqrt_vocab", "none"};
};
// The names of TanhRule.
template <>
struct ValueNames<block_recurrent::TanhRule> {
  // In the order of the values.
  static constexpr const char* all[] = {"code", "paper"};
};
// model.gate.
template <>
struct ValueNames<GateKind> {
  // In the order of the values.
  static constexpr const char* all[] = {"fixed", "lstm"};
};
// model.memory_search.
template <>
struct ValueNames<MemorySearch> {
  // In the order of the values.
  static constexpr const char* all[] = {"bucket", "exact"};
};

}  // namespace eddy

namespace eddy::block_recurrent {

// The keys of this family; `describe` below says what each is.
struct Keys {
  // Their defaults.
  std::vector<std::int64_t> recurrent_layers;
  std::int64_t states = 512;
  std::string gate = value_name(GateKind::fixed);
  std::string cell = value_name(CellKind::skip);
  bool feedback = false;
  bool cache = true;
  bool clear_state = false;
  std::int64_t rel_buckets = 32;
  std::int64_t rel_max_distance = 128;
  bool qk_norm = true;
  double qk_eps = 1e-6;
  bool scale_abs = true;
  std::string logit_divisor = value_name(LogitDivisor::sqrt_d);
  std::string tanh_rule = value_name(TanhRule::code);
  bool z_bias = false;
  double gate_bias = 0.0;
  double gate_bias_std = 0.1;
  double gate_gain = 0.1;
  double gate_constant = 1.0;
  double attn_dropout = 0.0;
  std::vector<std::int64_t> memory_layers;
  std::int64_t memory_size = 0;
  std::int64_t memory_topk = 128;
  std::string memory_search = value_name(MemorySearch::bucket);
  bool memory_bias = true;

  friend bool operator==(const Keys&, const Keys&) = default;
};
// With the common keys.
using Config = FamilyConfig<Keys>;

// Describes the keys of this family.
inline void describe(KeyList& keys, Keys& c) {
  keys.list_before("mask_token_zero");
  keys.add("recurrent_layers", c.recurrent_layers, "Layers with a recurrent cell, counted from 0",
           {0, 65'536})
      .read_by("block_recurrent/block_recurrent");
  keys.add("states", c.states, "Number of state vectors of a recurrent layer", {1, 1'000'000'000})
      .read_by("block_recurrent/block_recurrent");
  keys.add("gate", c.gate, "Gate of the recurrent cell", value_names<GateKind>())
      .read_by("block_recurrent/block_recurrent");
  keys.add("cell", c.cell, "Configuration of the recurrent cell", value_names<CellKind>())
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
      .paper_quirk();
  keys.add("scale_abs", c.scale_abs, "Whether attention is scaled by the absolute value of its scale")
      .read_by("block_recurrent")
      .paper_quirk();
  keys.add("logit_divisor", c.logit_divisor, "Divisor of the logits", value_names<LogitDivisor>())
      .read_by("block_recurrent")
      .paper_quirk();
  keys.add("tanh_rule", c.tanh_rule,
           "Whether tanh is applied to the input of gates where the code or the paper says",
           value_names<TanhRule>())
      .read_by("block_recurrent/block_recurrent")
      .paper_quirk();
  keys.add("z_bias", c.z_bias, "Whether the input of the gates has a bias")
      .read_by("block_recurrent/block_recurrent")
      .paper_quirk();
  keys.add("gate_bias", c.gate_bias,
           "Mean of the gates' initial biases; of the input gate (lstm) with the other sign")
      .read_by("block_recurrent/block_recurrent")
      .paper_quirk();
  keys.add("gate_bias_std", c.gate_bias_std, "Standard deviation of the gates' initial biases", {.low = 0})
      .read_by("block_recurrent/block_recurrent")
      .paper_quirk();
  keys.add("gate_gain", c.gate_gain,
           "Initial variance of the lstm gate's Wi and Wf, times the number of their inputs", {.low = 0})
      .read_by("block_recurrent/block_recurrent")
      .paper_quirk();
  keys.add("gate_constant", c.gate_constant,
           "Constant added to the forget gate (lstm) and taken from the input gate, beside their biases")
      .read_by("block_recurrent/block_recurrent")
      .paper_quirk();
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
           "How entries are found: the best of each bucket, or the exact best", value_names<MemorySearch>())
      .read_by("memorizing");
  keys.add("memory_bias", c.memory_bias, "Whether memory layers keep the bias by distance in local attention")
      .read_by("memorizing")
      .paper_quirk();
}

// errors: ConfigError naming the keys and their values.
void check(const Config& config);
// Sets the sizes that are not given so that they suit the others, for a new run.
void choose_sizes(Config& config, const GivenKeys& given);
// Fills in defaults that depend on other keys. Called for the models of all families.
void fill(Config& config);

}  // namespace eddy::block_recurrent
