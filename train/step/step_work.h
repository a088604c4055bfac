// One optimizer step in two halves: asking the device for it, and reading what came out. Between the two
// nothing waits for the device, and whether the step counts is decided there: so the first half can be
// recorded and replayed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/model.h"
#include "models/optimizer/optimizer.h"
#include "train/step/batch.h"
#include "train/step/step_inputs.h"

namespace eddy {

struct StepResult {
  double loss = 0;       // mean over the scored targets of all batches, nats
  double grad_norm = 0;  // before clipping
  bool finite = true;    // when not, no parameter changed
  std::string problem;   // what was not finite and where it came from; empty when nothing was
  GraphStats graph;      // of the last batch, when its backward pass began
};

struct StepOptions {
  double learning_rate = 0;
  std::uint64_t seed = 0;  // of dropout
  std::int64_t step = 0;   // optimizer steps done before: batches draw dropout masks of their own
  bool carry_state = false;
};

// A step that the device was asked for.
struct StepWork {
  Tensor numbers;  // bytes on the device: the norm (f64), then each batch's loss in 8 bytes
  Dtype loss_dtype = Dtype::f32;
  GraphStats graph;
  CarriedState after;  // with carry_state: the state that the step leaves
};

// What batches, numbers and counts a step is computed from, besides the shapes.
void write_step(StepInputs& inputs, const Optimizer& optimizer, const std::vector<Batch>& batches,
                const StepOptions& options);

// Asks for forward, loss and backward of every batch, and for the optimizer's step. Tokens, targets, shares
// and numbers are read from `inputs` when it is computed; of `batches` only shapes, flags and sizes count. A
// loss that is not finite makes the gradient NaN, and so the norm: the optimizer moves nothing then.
StepWork ask_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                  const std::vector<Batch>& batches, const CarriedState& before, const StepOptions& options);

// Waits for the step, reads norm and losses by one copy, and hands over the state: `carried` becomes the
// work's, or begins anew after a loss that was not finite, since it may hold what made it so. Counts the
// optimizer's step when it was one. Without carry_state `carried` is left alone. `inputs` and `before` must
// still be those of the step: a number that was not finite is looked for by computing it again.
StepResult read_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                     const std::vector<Batch>& batches, const CarriedState& before, const StepWork& work,
                     CarriedState& carried, const StepOptions& options);

}  // namespace eddy
