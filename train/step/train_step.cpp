// The training step: that of examples/04_copy_a_line.cpp, over several batches and with a recurrent state.
//
//   for each batch    forward, loss, backward: gradients add up; the state goes on to the next batch, detached
//   then              one call of the optimizer clips the gradient's norm and updates the parameters
//
// `enqueue_step` is the step. It never waits for the device, which itself skips an update that is not finite:
// so a recorder can capture it and replay it with other inputs.
#include "train/step/train_step.h"

#include "ops/core/capture.h"
#include "ops/pointwise/pointwise.h"

namespace eddy {
namespace {

void store(const Tensor& numbers, std::size_t i, const Tensor& value) {
  raw::copy_into(step_number(numbers, i, value.dtype()), value);
}

// The gradient of the step's loss with respect to a batch's loss l: share + (l - l). That is exactly the
// share for a finite l, and NaN for any other; a NaN makes the gradient's norm NaN.
Tensor share_if_finite(const Tensor& loss, const Tensor& share) {
  const NoGrad no_grad;
  const Tensor value = raw::alias(loss);
  return (share.dtype() == loss.dtype() ? share : raw::cast(share, loss.dtype())) + (value - value);
}

EnqueuedStep enqueue_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                          const CarriedState& before) {
  const std::size_t batches = inputs.batches.size();
  EnqueuedStep step;
  step.numbers = Tensor::zeros({static_cast<std::int64_t>(sizeof(double) * (1 + batches))}, Dtype::u8,
                               model.params().values().device());
  step.before = step.after = before;
  bool scored = false;
  model.params().zero_gradients();
  for (std::size_t i = 0; i < batches; ++i) {
    if (i > 0 && inputs.options.stop && !capturing() && inputs.options.stop()) {
      step.stopped = true;
      return step;
    }
    const Batch& batch = inputs.batches[i];
    const ForwardOutput output = model.forward(inputs.forward(i, step.after, model.config()));
    if (batch.scored > 0) {
      scored = true;
      const Tensor loss = output.classifier.loss(batch.targets, kNotScored);
      store(step.numbers, 1 + i, loss);
      step.loss_dtype = loss.dtype();
      step.graph = graph_stats();
      backward(loss, share_if_finite(loss, inputs.shares[i]));
    }
    if (inputs.options.carry_state) step.after.update(output.state, batch);  // values go on, gradients stop
  }
  if (scored) store(step.numbers, 0, optimizer.apply(model.params(), inputs.scalars));
  return step;
}

}  // namespace

StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options, Recorder* recorder) {
  StepInputs inputs(batches, options, optimizer, model.params().values().dtype());
  Recorder uncaptured(model.params(), {.wanted = false});
  // The state that the first batch starts from; empty for a cold start.
  State first =
      options.carry_state && !batches.empty() ? inputs.forward(0, carried, model.config()).state : State();
  const EnqueuedStep step =
      (recorder != nullptr ? *recorder : uncaptured)
          .run(inputs.kind(), inputs.tensors(), first, [&](State& state) {
            EnqueuedStep work = enqueue_step(model, optimizer, inputs, {state, carried.rows});
            state = work.after.state;
            return work;
          });
  return collect_step(model, optimizer, inputs, step, carried);
}

}  // namespace eddy
