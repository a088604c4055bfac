// A small model for tests of what runs on models. Its weights are so large that logits differ by more than
// rounding.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "tensor/random/philox.h"

namespace eddy::test {

// A config of two layers of 16 numbers.
inline ModelConfig tiny_config(const std::string& model, std::int64_t vocab, std::int64_t context = 64) {
  ModelConfig config;
  config.model = model;
  config.vocab = vocab;
  config.context = context;
  config.dim = 16;
  config.heads = 2;
  config.layers = 2;
  config.init_std = 0.3;
  config.dropout = 0.5;  // must not show in evaluation
  return config;
}

// A model with random weights.
inline std::unique_ptr<Model> tiny_model(const ModelConfig& config, Dtype dtype = Dtype::f64) {
  std::unique_ptr<Model> model = make_model(config, dtype);
  model->params().initialize(5);
  return model;
}

// Uniform tokens in [0, vocab).
inline std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab) {
  const RandomKey key = random_key(11, "test tokens", 0);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(key.word(i) % static_cast<std::uint32_t>(vocab));
  return tokens;
}

// The logits of a whole sequence at once, [time][n_out], in f64.
inline std::vector<std::vector<double>> whole_logits(const Model& model,
                                                     const std::vector<std::int32_t>& tokens) {
  ForwardInput input;
  input.tokens = Tensor::from(tokens, {1, static_cast<std::int64_t>(tokens.size())});
  const Tensor logits = raw::cast(raw::contiguous(model.forward(input).logits), Dtype::f64);
  const auto classes = static_cast<std::size_t>(logits.dim(2));
  const double* values = logits.data<double>();
  std::vector<std::vector<double>> rows;
  for (std::size_t t = 0; t < tokens.size(); ++t)
    rows.emplace_back(values + t * classes, values + (t + 1) * classes);
  return rows;
}

}  // namespace eddy::test
