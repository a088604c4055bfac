// One optimizer step: forward, loss and backward over its batches, then the optimizer.
#pragma once

#include <vector>

#include "train/step/recorder.h"
#include "train/step/step_result.h"

namespace eddy {

// Runs one optimizer step over `batches`, all with the same weights, and returns its result. The gradient is
// that of the mean loss over all scored targets. With carry_state the state is carried from batch to batch
// and stored in `carried`; after a loss that is not finite it is cleared, because it may be the cause. A step
// without scored targets advances the state and changes no parameter; its loss is NaN. If the loss or a
// gradient is not finite, no parameter changes. With a recorder of the model's parameters, the step is captured
// and replayed if the device supports it.
// aliasing: with a recorder, the next call may overwrite the tensors in `carried`; copy those that you keep.
// errors: those of the model.
StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options, Recorder* recorder = nullptr);

}  // namespace eddy
