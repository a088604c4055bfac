// One optimizer step: forward, loss and backward over its batches, then the optimizer.
#pragma once

#include <vector>

#include "train/step/enqueued_step.h"

namespace eddy {

// The result of one optimizer step over `batches`, which see the same weights. Their accumulated gradient is
// that of the mean loss over all scored targets. With carry_state the state is carried from batch to batch
// and left in `carried`; after a loss that is not finite it is cleared, since it may be the cause. A step
// without scored targets advances the state and changes no parameter; its loss is NaN. A loss or gradient
// that is not finite skips the step.
// errors: those of the model.
StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options);

}  // namespace eddy
