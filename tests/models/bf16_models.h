// Models of every family, small, and training them in bf16 and in f32 on the same batches.
#pragma once

#include <vector>

#include "models/eddy/registry.h"
#include "models/optimizer/optimizer.h"
#include "tests/models/every_model.h"
#include "train/config/run_config.h"

namespace eddy::test {

using namespace training;

// One model of each name; the longest recurrences of a call are 16 steps.
inline std::vector<ModelConfig> bf16_configs() {
  std::vector<ModelConfig> all;
  for (const ModelName& name : model_registry()) {
    ModelConfig& config = all.emplace_back(even_config(name, 11, 16));
    config.init_std = 0.1;
    config.steps = 3;
    config.repeats = 2;
    config.rel_buckets = 8;
    config.positions = config.bias = true;
    if (config.model != "block_recurrent") continue;
    ModelConfig gated = config;
    gated.gate = "lstm";
    gated.cell = "dual";
    all.push_back(gated);
  }
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

// A model in training. The state of one call goes on into the next.
class TrainedModel {
 public:
  TrainedModel(const ModelConfig& config, Dtype dtype, Device device = kCpu,
               MatmulPrecision precision = MatmulPrecision::f32)
      : model_(make_model(config, dtype, device, precision)) {
    model_->params().initialize(3);
    TrainConfig train;
    train.weight_decay = 0.1;
    optimizer_ = make_optimizer(model_->params(), train);
  }

  const Model& model() const { return *model_; }
  // Makes the next step and returns its loss.
  double step() {
    const Tensor tokens = bf16_tokens(4, 17, model_->config().vocab, static_cast<std::uint64_t>(steps_++));
    const auto part = [&](std::int64_t begin) {
      return raw::to_device(raw::contiguous(raw::narrow(tokens, 1, begin, 16)),
                            model_->params().values().device());
    };
    ForwardInput input;
    input.tokens = part(0);
    input.state = state_;
    model_->params().zero_gradients();
    const ForwardOutput output = model_->forward(input);
    const Tensor loss = cross_entropy(output.logits, part(1));
    backward(loss);
    static_cast<void>(optimizer_->step(3e-3));
    state_ = output.state.detach();
    return loss.item();
  }

 private:
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  State state_;
  int steps_ = 0;
};

// The loss of every step.
inline std::vector<double> train_in(const ModelConfig& config, Dtype dtype, int steps, Device device = kCpu,
                                    MatmulPrecision precision = MatmulPrecision::f32) {
  TrainedModel trained(config, dtype, device, precision);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) losses.push_back(trained.step());
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
