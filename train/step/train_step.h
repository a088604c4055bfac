// One optimizer step: forward, loss and backward over its batches, then the optimizer.
#pragma once

#include <vector>

#include "train/step/enqueued_step.h"

namespace eddy {

// Runs one optimizer step over `batches`, all with the same weights, and returns its result. The gradient is
// that of the mean loss over all scored targets. With carry_state the state is carried from batch to batch
// and stored in `carried`; after a loss that is not finite it is cleared, because it may be the cause. A step
// without scored targets advances the state and changes no parameter; its loss is NaN. If the loss or a
// gradient is not finite, no parameter changes.
// errors: those of the model.
StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options);

}  // namespace eddy
