// Models of every family, small, and training them in bf16 and in f32 on the same batches.
#pragma once

#include <vector>

#include "models/optimizer/optimizer.h"
#include "tests/models/compare.h"
#include "train/config/run_config.h"

namespace eddy::test {

// One model of each name; the longest recurrences of a call are 16 steps.
inline std::vector<ModelConfig> bf16_configs() {
  std::vector<ModelConfig> all;
  const auto add = [&](const char* family, const char* model, auto&& change) {
    ModelConfig config;
    config.family = family;
    config.model = model;
    config.vocab = 11;
    config.context = 16;
    config.dim = 16;
    config.layers = 2;
    config.heads = 2;
    config.init_std = 0.1;
    config.segment = 8;
    config.window = 4;
    config.chunk = 4;
    config.block = config.model == "unit_forget" ? 1 : 4;
    config.steps = 3;
    config.repeats = 2;
    config.states = 4;
    config.memory_size = 16;
    config.memory_topk = 2;
    config.rel_buckets = 8;
    change(config);
    all.push_back(config);
  };
  const auto as_is = [](ModelConfig&) {};
  for (const char* model : {"unit_forget", "block_forget", "block_accumulate", "regular"})
    add("recurrent_transformer", model, [](ModelConfig& c) { c.positions = c.bias = true; });
  add("block_recurrent", "slide", as_is);
  for (const char* model : {"xl", "vanilla"})
    add("block_recurrent", model, [](ModelConfig& c) { c.window = 0; });
  for (const char* gate : {"fixed", "lstm"})
    add("block_recurrent", "block_recurrent", [&](ModelConfig& c) {
      c.recurrent_layers = {1};
      c.gate = gate;
      c.cell = gate == std::string("lstm") ? "dual" : "skip";
    });
  add("block_recurrent", "memorizing", [](ModelConfig& c) { c.memory_layers = {1}; });
  for (const char* model : {"memory_llama", "llama", "llama_window"})
    add("blockwise_recurrent", model, as_is);
  for (const char* model : {"staircase", "ladder", "transformer_xl", "feedback", "lstm"})
    add("staircase", model, as_is);
  add("staircase", "universal", [](ModelConfig& c) { c.layers = 1; });
  add("staircase", "cached_staircase", [](ModelConfig& c) { c.cache_after = 1; });
  return all;
}

// Tokens that can be learned in part: after a comes 3 a + 2 in three of four places, else anything.
inline Tensor bf16_tokens(std::int64_t batch, std::int64_t time, std::int64_t vocab, std::uint64_t seed) {
  const RandomKey key = random_key(seed, "bf16 tokens", 0);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < batch * time; ++i) {
    const std::uint32_t word = key.word(static_cast<std::uint64_t>(i));
    const bool free = i % time == 0 || word % 4 == 0;
    ids.push_back(free ? static_cast<std::int64_t>(word / 4) % vocab : (3 * ids.back() + 2) % vocab);
  }
  return Tensor::from(ids, {batch, time});
}

// The loss of every step. The state of one call goes on into the next.
inline std::vector<double> train_in(const ModelConfig& config, Dtype dtype, int steps, Device device = kCpu) {
  const auto model = make_model(config, dtype, device);
  model->params().initialize(3);
  TrainConfig train;
  train.weight_decay = 0.1;
  const auto optimizer = make_optimizer(model->params(), train);
  const std::int64_t vocab = model->config().vocab;
  std::vector<double> losses;
  State state;
  for (int step = 0; step < steps; ++step) {
    const Tensor tokens = bf16_tokens(4, 17, vocab, static_cast<std::uint64_t>(step));
    const auto part = [&](std::int64_t begin) {
      return raw::to_device(raw::contiguous(raw::narrow(tokens, 1, begin, 16)), device);
    };
    ForwardInput input;
    input.tokens = part(0);
    input.state = state;
    model->params().zero_gradients();
    const ForwardOutput output = model->forward(input);
    const Tensor loss = cross_entropy(output.logits, part(1));
    losses.push_back(loss.item());
    backward(loss);
    static_cast<void>(optimizer->step(model->params(), 3e-3));
    state = output.state.detach();
  }
  return losses;
}

// The largest relative difference of the means over `window` steps.
inline double loss_difference(const std::vector<double>& got, const std::vector<double>& want,
                              std::size_t window) {
  double worst = 0;
  for (std::size_t begin = 0; begin + window <= want.size(); begin += window) {
    double a = 0, b = 0;
    for (std::size_t i = begin; i < begin + window; ++i) {
      a += got[i];
      b += want[i];
    }
    const double difference = std::abs(a - b) / b;
    if (!(difference <= worst)) worst = difference;
    if (std::isnan(worst)) break;
  }
  return worst;
}

}  // namespace eddy::test
