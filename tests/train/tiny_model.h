// A small model with random weights for tests of what runs on models: large enough an initialisation that its
// logits differ by more than rounding.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "tensor/random/philox.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::test {

// While alive, work stays on the calling thread: for models this small, threads spend their time on waiting
// for each other. Results are the same bits.
class OneThread {
 public:
  OneThread() { set_thread_count(1); }
  ~OneThread() { set_thread_count(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = thread_count();
};

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

inline std::unique_ptr<Model> tiny_model(const ModelConfig& config, Dtype dtype = Dtype::f64) {
  std::unique_ptr<Model> model = make_model(config, dtype);
  model->params().initialize(5);
  return model;
}

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
