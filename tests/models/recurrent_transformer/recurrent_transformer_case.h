// Small models of the recurrent transformers for their tests.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/models/compare.h"
#include "tests/models/family_case.h"

namespace eddy::test {

// The models whose recurrence goes from block to block, and the others.
inline std::vector<std::string> models_with_blocks(bool blocks = true) {
  std::vector<std::string> names;
  for (const std::string& name : models_of("recurrent_transformer"))
    if (reads_key(small_config(name), "block") == blocks) names.push_back(name);
  return names;
}
inline std::vector<std::string> models_without_blocks() {
  return models_with_blocks(false);
}

inline ModelConfig block_config(const std::string& model, std::int64_t block) {
  ModelConfig config = small_config(model);
  config.block = block;
  return config;
}

// The logits of whole sequences, in blocks of `block` positions; 0: those of the config.
inline Tensor whole(const Model& model, const Tensor& tokens, std::int64_t block = 0) {
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = tokens;
  input.block = block;
  return raw::contiguous(model.forward(input).logits);
}

// Every model with every switch: blocks of one position, with and without a remainder, and longer than the
// sequence; one layer and several.
inline std::vector<ModelCase> recurrent_transformer_cases() {
  std::vector<ModelCase> all;
  for (const std::string& model : models_of("recurrent_transformer")) {
    const bool blocks = reads_key(small_config(model), "block");
    for (const std::int64_t block :
         blocks ? std::vector<std::int64_t>{1, 4, 5, 20} : std::vector<std::int64_t>{1})
      for (const std::int64_t layers : {1, 2})
        for (const bool placed : {false, true}) {
          if (blocks && placed == (layers == 1)) continue;
          ModelConfig c = block_config(model, block);
          c.layers = layers;
          c.positions = c.bias = placed;
          c.accumulate = model == "block_accumulate" && placed ? "hidden" : "output";
          all.push_back({"block " + std::to_string(block) + ", layers " + std::to_string(layers) +
                             (placed ? ", positions and biases" : ""),
                         c});
        }
    const auto with = [&](const char* name, std::int64_t block, auto change) {
      ModelConfig c = block_config(model, block);
      c.layers = 2;
      change(c);
      all.push_back({name, c});
    };
    with("positions alone", 3, [](ModelConfig& c) { c.positions = true; });
    with("untied with biases", 3, [](ModelConfig& c) {
      c.positions = c.bias = true;
      c.tied = false;
      c.n_out = 7;
    });
    with("untied without biases", 16, [](ModelConfig& c) {
      c.positions = true;
      c.tied = false;
      c.n_out = 7;
    });
    with("the last position of one layer", 5, [](ModelConfig& c) {
      c.layers = 1;
      c.readout = "last";
    });
    with("the last position with ReLU", 5, [](ModelConfig& c) {
      c.readout = "last";
      c.activation = "relu";
    });
    with("the second half of the positions", 4, [](ModelConfig& c) {
      c.readout = "tail";
      c.accumulate = "hidden";
      c.accumulate_factor = 0.7;
    });
    with("three layers", 4, [](ModelConfig& c) {
      c.layers = 3;
      c.positions = true;
    });
    with("one head and odd widths", 3, [](ModelConfig& c) {
      c.dim = 7;
      c.heads = 1;
      c.mlp_dim = 13;
      c.positions = true;
      c.tied = false;
      c.n_out = 5;
    });
    with("dropout", 3, [](ModelConfig& c) {
      c.positions = c.bias = true;
      c.dropout = 0.3;
    });
    if (reads_key(small_config(model), "rotary")) {
      with("rotary positions", 1, [](ModelConfig& c) { c.rotary = true; });
      with("rotary positions, the second half of the positions", 1, [](ModelConfig& c) {
        c.rotary = c.bias = true;
        c.readout = "tail";
      });
    }
    if (!reads_key(small_config(model), "keep_state")) continue;
    with("state carried, three layers", 3, [](ModelConfig& c) {
      c.layers = 3;
      c.keep_state = true;
    });
    with("state carried, biases and ReLU", 1, [](ModelConfig& c) {
      c.keep_state = c.bias = true;
      c.activation = "relu";
    });
    with("state carried, one layer and one head", 5, [](ModelConfig& c) {
      c.layers = c.heads = 1;
      c.dim = 7;
      c.mlp_dim = 13;
      c.keep_state = true;
    });
    with("state carried, blocks longer than some calls", 12, [](ModelConfig& c) { c.keep_state = true; });
  }
  return all;
}

class RecurrentTransformerCase final : public FamilyCase {
 public:
  std::vector<ModelCase> all() const override { return recurrent_transformer_cases(); }
  ModelConfig plain(const std::string& model) const override { return small_config(model); }

  std::int64_t call_time(const ModelConfig& c) const override {
    return c.keep_state ? (7 + c.block) / c.block * c.block : 8;
  }
  std::vector<std::int64_t> lengths_of(const ModelConfig& c) const override {
    std::vector<std::int64_t> lengths{1, 2, 3, 17};
    for (const std::int64_t time : {c.block, c.block + 1, 2 * c.block, 2 * c.block + 1})
      if (time <= c.context && std::count(lengths.begin(), lengths.end(), time) == 0) lengths.push_back(time);
    return lengths;
  }
  StreamCut stream_cut(const ModelConfig& c) const override {
    if (!c.keep_state || !reads_key(c, "block")) return {};
    return {c.block, "1 tokens into a block of " + std::to_string(c.block)};
  }

  Starts starts(const ModelConfig& c) const override {
    return c.keep_state ? Starts::calls : Starts::nowhere;
  }

  bool has_kinks(const ModelConfig& c) const override { return c.activation == "relu"; }
  std::int64_t gradient_time(ModelConfig& c) const override {  // three blocks, or less than one that is long
    return c.block <= 5 ? std::max<std::int64_t>(2 * c.block + 1, 7) : 7;
  }
};

inline const FamilyCase& recurrent_transformer_case() {
  static const RecurrentTransformerCase family;
  return family;
}

}  // namespace eddy::test
