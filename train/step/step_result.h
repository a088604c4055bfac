// What a training step gave: its numbers, read from the device, and the source of a NaN.
#pragma once

#include <string>

#include "autograd/tape.h"
#include "train/step/step_inputs.h"

namespace eddy {

struct StepResult {
  double loss = 0;       // mean over the scored targets of all batches, nats
  double grad_norm = 0;  // before clipping
  bool finite = true;    // when not, no parameter changed
  bool stopped = false;  // ended by StepOptions::stop: nothing changed, and the numbers mean nothing
  std::string problem;   // what was not finite, and which op, module or parameter it came from; else empty
  GraphStats graph;      // of the last batch, when its backward pass began
};

// The work of a step, enqueued on the device.
struct EnqueuedStep {
  Tensor
      numbers;  // bytes on the device, read by one copy: the norm of the gradient, then the losses of the batches
  Dtype loss_dtype = Dtype::f32;
  GraphStats graph;  // as StepResult::graph
  CarriedState before, after;
  bool stopped = false;
};

// Number i of a step, 8 bytes: a scalar of f64, or of f32 in the first half.
Tensor step_number(const Tensor& numbers, std::size_t i, Dtype dtype);

// Waits for the step, reads its numbers by one copy, and counts the optimizer's step if it was taken. With
// carry_state `carried` becomes the state after the step; after a loss that is not finite it is cleared, since
// it may be the cause. To find the source of a value that is not finite, the step is computed again.
StepResult collect_step(const Model& model, Optimizer& optimizer, const StepInputs& inputs,
                        const EnqueuedStep& work, CarriedState& carried);

}  // namespace eddy
