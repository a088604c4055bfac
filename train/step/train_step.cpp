// The two halves of the step, one after the other.
#include "train/step/train_step.h"

namespace eddy {

StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options) {
  const Tensor& values = model.params().values();
  StepInputs inputs(batches, values.dtype(), values.device());
  write_step_inputs(inputs, optimizer, batches, options);
  const CarriedState before = carried;
  const EnqueuedStep work = enqueue_step(model, optimizer, inputs, batches, before, options);
  return collect_step(model, optimizer, inputs, batches, before, work, carried, options);
}

}  // namespace eddy
