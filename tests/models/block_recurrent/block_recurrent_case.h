// Small models of the Block-Recurrent family for its tests, with parameters in which nothing special is left:
// attention scales between 0.5 and 3 of both signs, norm gains around 1. With initial values several mistakes
// are invisible, because every scale is 1.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ops/views/views.h"
#include "tests/models/compare.h"
#include "tests/models/family_case.h"

namespace eddy::test {

// Three layers, windows of 4, segments of 16; head_dim * heads is not dim.
inline ModelConfig block_recurrent_config(const std::string& model) {
  ModelConfig c;
  c.family = "block_recurrent";
  c.model = model;
  c.vocab = 13;
  c.dim = 10;
  c.layers = 3;
  c.heads = 2;
  c.head_dim = 6;
  c.mlp_dim = 14;
  c.window = 4;
  c.segment = 16;
  c.states = 3;
  if (model == "xl" || model == "vanilla" || model == "memorizing") c.segment = 4;
  if (model == "block_recurrent") c.recurrent_layers = {1};
  if (model == "memorizing") {
    c.memory_layers = {1};
    c.memory_size = 8;
    c.memory_topk = 3;
  }
  return c;
}

inline ModelConfig recurrent_config(const std::string& gate, const std::string& cell,
                                    std::vector<std::int64_t> layers = {1}, bool feedback = false) {
  ModelConfig c = block_recurrent_config("block_recurrent");
  c.gate = gate;
  c.cell = cell;
  c.recurrent_layers = std::move(layers);
  c.feedback = feedback;
  return c;
}

// Every model, gate and cell, placements of recurrent layers, and every switch.
inline std::vector<ModelCase> block_recurrent_cases() {
  std::vector<ModelCase> variants;
  for (const char* model : {"slide", "xl", "vanilla", "memorizing"})
    variants.push_back({model, block_recurrent_config(model)});
  for (const char* gate : {"fixed", "lstm"})
    for (const char* cell : {"dual", "single", "skip"})
      variants.push_back({std::string(gate) + " " + cell, recurrent_config(gate, cell)});
  variants.push_back(
      {"two recurrent layers, the first among them", recurrent_config("fixed", "skip", {2, 0})});
  variants.push_back({"feedback fixed skip", recurrent_config("fixed", "skip", {1}, true)});
  variants.push_back({"feedback lstm single twice", recurrent_config("lstm", "single", {0, 1}, true)});
  const auto with = [&](const char* name, ModelConfig config, auto change) {
    change(config);
    variants.push_back({name, config});
  };
  const ModelConfig base = recurrent_config("lstm", "dual");
  with("paper's tanh, biases on z", base, [](ModelConfig& c) {
    c.tanh_rule = "paper";
    c.z_bias = true;
    c.gate_constant = -0.5;
  });
  with("plain products", base, [](ModelConfig& c) {
    c.qk_norm = false;
    c.logit_divisor = "none";
  });
  with("scales of both signs", base, [](ModelConfig& c) { c.scale_abs = false; });
  with("state cleared", base, [](ModelConfig& c) { c.clear_state = true; });
  with("no cache", base, [](ModelConfig& c) { c.cache = false; });
  with("segment of one window", base, [](ModelConfig& c) { c.segment = 4; });
  with("one state", base, [](ModelConfig& c) { c.states = 1; });
  with("window of one token", base, [](ModelConfig& c) { c.window = 1; });
  with("odd buckets", base, [](ModelConfig& c) {
    c.rel_buckets = 5;
    c.rel_max_distance = 3;
  });
  with("exact search, several windows, no bias", block_recurrent_config("memorizing"), [](ModelConfig& c) {
    c.memory_search = "exact";
    c.memory_bias = false;
    c.segment = 8;
    c.memory_size = 16;
  });
  with("slide with plain products", block_recurrent_config("slide"),
       [](ModelConfig& c) { c.qk_norm = false; });
  with("xl with logits divided by the vocabulary's root", block_recurrent_config("xl"),
       [](ModelConfig& c) { c.logit_divisor = "sqrt_vocab"; });
  with("vanilla with odd buckets", block_recurrent_config("vanilla"), [](ModelConfig& c) {
    c.rel_buckets = 5;
    c.rel_max_distance = 3;
  });
  with("dropout", recurrent_config("fixed", "skip"), [](ModelConfig& c) { c.dropout = 0.3; });
  with("dropout with feedback", recurrent_config("lstm", "dual", {1}, true),
       [](ModelConfig& c) { c.dropout = 0.3; });
  with("dropout of attention too", base, [](ModelConfig& c) { c.dropout = c.attn_dropout = 0.3; });
  return variants;
}

inline void set_values(const Parameter& parameter, const std::vector<double>& values) {
  raw::copy_into(detach(parameter.value),
                 raw::cast(Tensor::from(values, parameter.shape), parameter.value.dtype()));
}

inline std::unique_ptr<Model> randomised(const ModelConfig& config, std::uint64_t seed = 5,
                                         Dtype dtype = Dtype::f64) {
  std::unique_ptr<Model> model = random_model(config, dtype, seed);
  for (const Parameter& parameter : model->params().parameters()) {
    if (parameter.name.find("scale") == std::string::npos) continue;
    const RandomKey key = random_key(seed, ("test.scale." + parameter.name).c_str(), 0);
    std::vector<double> values(static_cast<std::size_t>(parameter.shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (key.word(2 * i) % 2 == 0 ? 1 : -1) *
                  (0.5 + 2.5 * static_cast<double>(uniform01(key.word(2 * i + 1))));
    set_values(parameter, values);
  }
  return model;
}

inline ForwardInput input_of(const Tensor& tokens, const State& state = {}, const Tensor& start = {}) {
  ForwardInput input;
  input.tokens = tokens;
  input.state = state;
  input.start = start;
  return input;
}

inline ForwardOutput evaluate(const Model& model, const Tensor& tokens, const State& state = {},
                              const Tensor& start = {}) {
  const NoGrad no_grad;
  return model.forward(input_of(tokens, state, start));
}

inline Tensor flags(std::vector<std::int64_t> values, std::int64_t batch) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {batch, count / batch});
}

class BlockRecurrentCase final : public FamilyCase {
 public:
  std::vector<ModelCase> all() const override { return block_recurrent_cases(); }
  ModelConfig plain(const std::string& model) const override { return block_recurrent_config(model); }
  std::unique_ptr<Model> random(const ModelConfig& c, Dtype dtype) const override {
    return randomised(c, 5, dtype);
  }

  std::int64_t call_time(const ModelConfig&) const override { return 16; }
  std::int64_t uneven_time(const ModelConfig& c) const override { return 16 + c.window; }
  std::int64_t rest_of(const ModelConfig& c) const override { return c.window; }
  std::vector<std::int64_t> lengths_of(const ModelConfig& c) const override {
    return {c.window, uneven_time(c), 32};
  }
  StreamCut stream_cut(const ModelConfig& c) const override {
    if (c.window == 1) return {};
    return {c.segment, "after 1 tokens"};
  }

  Starts starts(const ModelConfig&) const override { return Starts::segments; }
  bool writes_state() const override { return true; }

  bool has_kinks(const ModelConfig&) const override { return true; }
  std::int64_t gradient_time(ModelConfig& c) const override {
    return c.segment = std::min(c.segment, 3 * c.window);  // three blocks: a state of a state is read
  }
  std::int64_t gradient_segment(const ModelConfig& c) const override { return c.segment; }
  bool forms_share_masks(const ModelConfig& c) const override { return c.attn_dropout == 0; }
  std::string without_influence(const ModelConfig& c, const std::string& parameter) const override {
    if (c.model != "block_recurrent") return "";
    const bool recurs = has_part(parameter, {"layers.1."});
    if (c.window == 1 &&
        (has_part(parameter, {".attn.scale", ".attn.rel_bias", ".attn.wq"}) ||
         (has_part(parameter, {".attn.wk"}) && !recurs)))  // states have several tokens in sight
      return "the only key in sight gets all attention whatever its score";
    if (c.states == 1 && has_part(parameter, {"cross.scale", "cross.wq", "recurrent.scale_self",
                                              "recurrent.wk", "recurrent.wq_self"}))
      return "the only state gets all attention whatever its score";
    if (c.segment == c.window &&
        has_part(parameter, {"recurrent.gate_", "recurrent.mlp", "recurrent.scale_", "recurrent.wq_"}))
      return "what a segment's last block writes is read in the next segment alone";
    return "";
  }
};

inline const FamilyCase& block_recurrent_case() {
  static const BlockRecurrentCase family;
  return family;
}

}  // namespace eddy::test
