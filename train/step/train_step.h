// One optimizer step: forward, loss and backward over its batches, then the optimizer.
#pragma once

#include <vector>

#include "train/step/step_work.h"

namespace eddy {

// The result of one step over `batches`, which see the same weights; their gradients add up to that of the
// mean over all scored targets. With carry_state the state goes from each batch to the next and is left in
// `carried`; it begins anew after a loss that was not finite, since it may hold what made it so. A step
// without any scored target carries the state on and changes no parameter; its loss is NaN. A loss or
// gradient that is not finite skips the step.
// errors: those of the model.
StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options);

}  // namespace eddy
