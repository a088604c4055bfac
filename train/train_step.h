// One optimizer step: forward, loss and backward over its batches, then the optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/model.h"
#include "train/batch.h"
#include "train/optimizer.h"

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

// The result of one step over `batches`, which see the same weights; their gradients add up to that of the
// mean over all scored targets. With carry_state the state goes from each batch to the next and is left in
// `carried`; it begins anew after a loss that was not finite, since it may hold what made it so. A step
// without any scored target carries the state on and changes no parameter; its loss is NaN. A loss or
// gradient that is not finite skips the step. errors: those of the model.
StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options);

}  // namespace eddy
