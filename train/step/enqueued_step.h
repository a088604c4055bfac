// One optimizer step in two halves: enqueue its work on the device; wait and read the results. The first half
// never waits for the device, and the device itself decides whether the step changes the parameters. So the
// first half can be captured and replayed.
#pragma once

#include <cstdint>
#include <functional>
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
  bool stopped = false;  // ended by StepOptions::stop: nothing changed, and the numbers are invalid
  std::string problem;   // what was not finite, and the op, module or parameter that caused it; else empty
  GraphStats graph;      // of the last batch, when its backward pass began
};

struct StepOptions {
  double learning_rate = 0;
  std::uint64_t seed = 0;  // of dropout
  std::int64_t step = 0;   // optimizer steps done before; numbers the dropout masks
  bool carry_state = false;
  // Called between two batches of a step that is not captured. true ends the step without effect.
  std::function<bool()> stop{};
};

// A step whose work is enqueued on the device.
struct EnqueuedStep {
  Tensor numbers;  // bytes on the device: the norm (f64), then each batch's loss in 8 bytes
  Dtype loss_dtype = Dtype::f32;
  GraphStats graph;
  CarriedState after;  // with carry_state: the state after the step
  bool stopped = false;
};

// Sends the inputs of a step to the device: batches, the optimizer's scalars and the step count.
void write_step_inputs(StepInputs& inputs, const Optimizer& optimizer, const std::vector<Batch>& batches,
                       const StepOptions& options);

// Enqueues forward, loss and backward of every batch, and the optimizer's step. The device reads tokens,
// targets, shares and scalars from `inputs`; `batches` gives only shapes, flags and sizes. A loss that is not
// finite makes the gradient and its norm NaN; the optimizer then changes nothing. If options.stop ends the
// step, parameters and optimizer do not change.
EnqueuedStep enqueue_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                          const std::vector<Batch>& batches, const CarriedState& before,
                          const StepOptions& options);

// Waits for the step, reads its norm and losses in one copy, and counts the optimizer's step if it was taken.
// With carry_state, `carried` becomes the state after the step. After a loss that is not finite it is
// cleared, because it may be the cause. `inputs` and `before` must still be those of the step, because the
// function computes the step again to find the source of a value that is not finite.
StepResult collect_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                        const std::vector<Batch>& batches, const CarriedState& before,
                        const EnqueuedStep& work, CarriedState& carried, const StepOptions& options);

}  // namespace eddy
