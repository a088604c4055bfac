// What the tests of the block-wise recurrent models share: small models in which nothing is special (the
// memory's start is not zero, heads are grouped, sizes are odd), and calls from tokens and a memory.
#pragma once

#include <string>
#include <vector>

#include "ops/pointwise/pointwise.h"
#include "tests/models/compare.h"
#include "tests/models/family_case.h"

namespace eddy::test {

inline ModelConfig blockwise_config(const std::string& model) {
  ModelConfig config;
  config.family = "blockwise_recurrent";
  config.model = model;
  config.vocab = 11;
  config.context = 40;
  config.dim = 12;
  config.layers = 2;
  config.heads = 3;
  config.kv_heads = 1;
  config.mlp_dim = 20;
  config.chunk = 4;
  config.window = 5;
  config.init_std = 0.3;
  return config;
}

// Every model with every switch, in sizes that leave a partial last chunk.
inline std::vector<ModelCase> blockwise_recurrent_cases() {
  std::vector<ModelCase> all;
  for (const int bits : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13}) {
    ModelConfig c = blockwise_config("memory_llama");
    c.memory_qkv = (bits & 1) != 0 ? "shared" : "separate";
    c.memory_ffn_prenorm = (bits & 2) == 0;
    c.memory_norm = bits % 8 != 6;
    c.memory_ffn = bits % 8 != 4;
    c.memory_proj = (bits & 4) != 0;
    c.detach = (bits & 4) != 0 ? "chunk" : "segment";
    c.memory_query = bits == 0;
    c.memory_init = (bits & 8) != 0 ? "zero" : "learned";
    c.tied = bits % 3 != 0;
    all.push_back({"switches " + std::to_string(bits), c});
  }
  const auto with = [&](const char* name, const char* model, auto change) {
    ModelConfig c = blockwise_config(model);
    change(c);
    all.push_back({name, c});
  };
  with("chunks of one", "memory_llama", [](ModelConfig& c) { c.chunk = 1; });
  with("chunks of five and grouped heads", "memory_llama", [](ModelConfig& c) {
    c.chunk = 5;
    c.heads = 6;
    c.kv_heads = 3;
    c.rope_theta = 100;
    c.tied = false;
    c.n_out = 7;
    c.mlp_dim = 0;
  });
  with("one head and three layers", "memory_llama", [](ModelConfig& c) {
    c.heads = c.kv_heads = 1;
    c.layers = 3;
  });
  with("dropout", "memory_llama", [](ModelConfig& c) { c.dropout = 0.3; });
  for (const char* model : {"llama", "llama_window"}) {
    with("tied", model, [](ModelConfig&) {});
    with("untied", model, [](ModelConfig& c) {
      c.tied = false;
      c.n_out = 7;
    });
    with("dropout", model, [](ModelConfig& c) { c.dropout = 0.3; });
  }
  for (const std::int64_t window : {1, 2, 3, 50})
    with(("window " + std::to_string(window)).c_str(), "llama_window",
         [&](ModelConfig& c) { c.window = window; });
  return all;
}

// A model with random parameters: norm gains around 1, initial memories around 0.
inline std::unique_ptr<Model> blockwise_model(const ModelConfig& config, Dtype dtype = Dtype::f64,
                                              std::uint64_t seed = 3) {
  std::unique_ptr<Model> model = random_model(config, dtype, seed);
  for (const Parameter& parameter : model->params().parameters()) {
    if (!parameter.name.ends_with("memory.init")) continue;
    const RandomKey key = random_key(seed, ("test." + parameter.name).c_str(), 0);
    std::vector<double> values(static_cast<std::size_t>(parameter.shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(uniform01(key.word(i))) - 0.5;
    raw::copy_into(detach(parameter.value), raw::cast(Tensor::from(values, parameter.shape), dtype));
  }
  return model;
}

inline State memory_state(const Tensor& memory) {
  State state;
  state.set("memory", memory);
  return state;
}

// Random memories for all layers of a model.
inline Tensor random_memory(const ModelConfig& config, std::int64_t batch, std::uint64_t seed) {
  const Shape shape{config.layers, batch, config.chunk, config.dim};
  const RandomKey key = random_key(seed, "test.memory", 0);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 2 * static_cast<double>(uniform01(key.word(i))) - 1;
  return Tensor::from(values, shape);
}

// Logits and memory, untracked.
struct Call {
  Tensor logits, memory;
};
inline Call call(const Model& model, const Tensor& tokens, const State& state = {}, const Tensor& start = {},
                 bool literal = false) {
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = tokens;
  input.state = state;
  input.start = start;
  input.literal = literal;
  const ForwardOutput output = model.forward(input);
  const Tensor* memory = output.state.find("memory");
  return {raw::contiguous(output.logits), memory == nullptr ? Tensor() : raw::copy(*memory)};
}

// The values of a parameter, to be changed.
inline Tensor values_of(const Model& model, const std::string& name) {
  return detach(model.params().get(name).value);
}
inline void scale_parameter(const Model& model, const std::string& name, double factor) {
  const Tensor values = values_of(model, name);
  const NoGrad no_grad;
  raw::copy_into(values, mul(values, factor));
}

class BlockwiseRecurrentCase final : public FamilyCase {
 public:
  std::vector<ModelCase> all() const override { return blockwise_recurrent_cases(); }
  ModelConfig plain(const std::string& model) const override { return blockwise_config(model); }
  std::unique_ptr<Model> random(const ModelConfig& c, Dtype dtype) const override {
    return blockwise_model(c, dtype);
  }

  std::int64_t call_time(const ModelConfig& c) const override { return 2 * c.chunk; }
  std::int64_t uneven_time(const ModelConfig& c) const override { return 16 / c.chunk * c.chunk + 3; }
  std::vector<std::int64_t> lengths_of(const ModelConfig&) const override { return {1, 3, 4, 7, 12}; }
  StreamCut stream_cut(const ModelConfig& c) const override {
    if (c.model != "memory_llama") return {};
    return {c.chunk, "1 tokens into a chunk of " + std::to_string(c.chunk)};
  }

  Starts starts(const ModelConfig&) const override { return Starts::calls; }
  bool forgets_other_rows() const override { return true; }

  std::int64_t gradient_time(ModelConfig& c) const override { return c.dropout > 0 ? 3 * c.chunk : 11; }
  std::int64_t gradient_segment(const ModelConfig& c) const override {
    return c.model == "memory_llama" && c.detach == "chunk" ? c.chunk : 0;
  }
  std::string without_influence(const ModelConfig& c, const std::string& parameter) const override {
    if (parameter.ends_with("memory.wq.weight")) return "nothing asks the memory's query matrix";
    if (c.model == "llama_window" && c.window == 1 && has_part(parameter, {"attn.wq", "attn.wk"}))
      return "the only key in sight gets all attention whatever its score";
    return "";
  }
};

inline const FamilyCase& blockwise_recurrent_case() {
  static const BlockwiseRecurrentCase family;
  return family;
}

}  // namespace eddy::test
