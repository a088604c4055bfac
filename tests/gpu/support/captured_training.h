// Training on the GPU twice, with captured steps and without, on the same batches: the same bits.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "tests/gpu/support/gpu_test.h"
#include "train/config/run_config.h"
#include "train/step/train_step.h"

namespace eddy::gpu_test {

using namespace training;

inline std::vector<float> floats(const Tensor& x) {
  return raw::contiguous(to_cpu(x)).to_vector<float>();
}

inline std::vector<std::int32_t> tokens_of(std::int64_t count, std::uint64_t step) {
  const RandomKey key = random_key(3, "capture tokens", step);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(key.word(static_cast<std::uint64_t>(i)) % 11));
  return tokens;
}

// The batches of a step: two rows of `time` tokens, some targets of which are not scored.
using MakeBatches = std::function<std::vector<Batch>(int step)>;

inline Batch batch_of(std::int64_t time, std::uint64_t number, const std::vector<std::int64_t>& starts = {}) {
  std::vector<std::int32_t> targets = tokens_of(2 * time, number + 1000);
  for (std::uint64_t i = 0; i < number % 3; ++i)
    targets[i] = kNotScored;  // the counts change, the signature does not
  return make_batch(2, tokens_of(2 * time, number), targets, starts);
}

// A model and what trains it.
struct Training {
  Training(const ModelConfig& config, const std::string& optimizer_name, bool capture,
           Dtype dtype = Dtype::f32)
      : model(make_model(config, dtype, gpu())) {
    model->params().initialize(7);
    TrainConfig train;
    train.optimizer = optimizer_name;
    train.clip = 0.5;
    optimizer = make_optimizer(model->params(), train);
    recorder.emplace(model->params(), RecorderOptions{.wanted = capture});
  }
  StepResult step(const std::vector<Batch>& batches, const StepOptions& options) {
    return train_step(*model, *optimizer, batches, carried, options, &*recorder);
  }
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<Recorder> recorder;
  CarriedState carried;
};

inline StepOptions options_of(int step, bool carry_state) {
  StepOptions options;
  options.learning_rate = 0.01 / (1 + step);
  options.seed = 5;
  options.step = step;
  options.carry_state = carry_state;
  return options;
}

inline void check_states(const State& got, const State& want) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, tensor] : want) {
    CAPTURE(name);
    REQUIRE(got.find(name) != nullptr);
    if (is_floating(tensor.dtype()))
      CHECK(floats(raw::cast(got.get(name), Dtype::f32)) == floats(raw::cast(tensor, Dtype::f32)));
    if (tensor.dtype() == Dtype::i64)
      CHECK(to_cpu(got.get(name)).to_vector<std::int64_t>() == to_cpu(tensor).to_vector<std::int64_t>());
  }
}

// What the captured one of two trainings gave.
struct Compared {
  std::size_t graphs = 0;
  std::vector<double> losses;
  bool state = false;  // that went on from one step to the next
};

// Trains twice, captured and not, and compares every step and the end. `recompute` is that of the captured one.
inline Compared compare(const ModelConfig& config, const std::string& optimizer, bool carry_state, int steps,
                        const MakeBatches& batches, Dtype dtype = Dtype::f32,
                        Recompute recompute = Recompute::none) {
  Training eager(config, optimizer, false, dtype), captured(config, optimizer, true, dtype);
  Compared result;
  for (int i = 0; i < steps; ++i) {
    CAPTURE(i);
    StepOptions options = options_of(i, carry_state);
    const StepResult want = eager.step(batches(i), options);
    options.recompute = recompute;
    const StepResult got = captured.step(batches(i), options);
    CHECK(want.finite);
    CHECK(got.finite);
    CHECK(got.loss == want.loss);
    CHECK(got.grad_norm == want.grad_norm);
    CHECK((got.graph.nodes == want.graph.nodes) == (recompute == Recompute::none));
    check_states(captured.carried.state, eager.carried.state);
    result.losses.push_back(got.loss);
    if (i == 3) poison_gpu();  // what a graph reads must not be handed out to others
  }
  CHECK(floats(captured.model->params().values()) == floats(eager.model->params().values()));
  CHECK(floats(captured.model->params().gradients()) == floats(eager.model->params().gradients()));
  if (dtype == Dtype::bf16) {  // the rounded copy is of the values that the last replay wrote
    const Tensor& values = captured.model->params().values();
    CHECK(floats(raw::cast(raw::to_bf16(values), Dtype::f32)) ==
          floats(raw::cast(raw::cast(values, Dtype::bf16), Dtype::f32)));
  }
  CHECK(captured.optimizer->steps() == eager.optimizer->steps());
  CHECK(eager.recorder->graphs() == 0);
  CHECK(captured.recorder->take_message() == "");
  result.graphs = captured.recorder->graphs();
  result.state = !captured.carried.state.empty();
  return result;
}

}  // namespace eddy::gpu_test
