// What a training step reads: everything that changes from step to step is a tensor here, so that a recorder
// can send it to the device by one copy.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/optimizer/optimizer.h"
#include "train/step/batch.h"

namespace eddy {

struct StepOptions {
  double learning_rate = 0;
  std::uint64_t seed = 0;  // of dropout
  std::int64_t step = 0;   // optimizer steps done before; numbers the dropout masks
  bool carry_state = false;
  // Called between two batches of a step that is not captured: true ends the step, which then has no effect.
  std::function<bool()> stop{};
};

struct StepInputs {
  StepOptions options;
  std::vector<Batch> batches;
  std::vector<Tensor> shares;  // scalars: a batch's scored targets / those of all batches
  Tensor scalars;              // the bytes of the optimizer's AdamScalars
  Tensor batches_before;       // i64 scalar: of all steps before; it numbers the dropout masks

  // The inputs of a step on the host. `values` are the parameters'.
  StepInputs(const std::vector<Batch>& step_batches, const StepOptions& step_options,
             const Optimizer& optimizer, Dtype values);

  // All tensors, and the part of the step's kind that is not in their shapes (recorder.h).
  std::vector<Tensor*> tensors();
  std::string kind() const;

  // The model's input for batch i, with the state before it.
  ForwardInput forward(std::size_t i, const CarriedState& state, const ModelConfig& config) const;
};

}  // namespace eddy
