// The training step: that of examples/05_copy_a_line.cpp, over several batches and with a recurrent state.
//
//   for each batch    forward, loss, backward: gradients add up; the state goes on to the next batch, detached
//   then              one call of the optimizer clips the gradient's norm and updates the parameters
//
// The parts of a batch (train.micro_batches) and the ranks that share them are the business of `gradients`
// (reducer.h): in a plain run all of its calls but `update` do nothing.
//
// `enqueue_step` never waits for the device, which itself skips an update that is not finite: so a recorder
// (recorder.h) can capture it and replay it with other inputs (step_inputs.h). What came out is read by a second
// call, `collect_step` (collect_step.h).
#include "train/step/train_step.h"

#include "ops/pointwise/pointwise.h"
#include "train/step/collect_step.h"
#include "train/step/reducer.h"
#include "train/step/step_inputs.h"

namespace eddy::training {
namespace {

// The gradient of the step's loss with respect to a micro-batch's loss l: share + (l - l). That is exactly the
// share for a finite l, and NaN for any other; a NaN makes the gradient's norm NaN.
Tensor share_if_finite(const Tensor& loss, const Tensor& share) {
  const NoGrad no_grad;
  const Tensor value = raw::alias(loss);
  return (share.dtype() == loss.dtype() ? share : raw::cast(share, loss.dtype())) + (value - value);
}

// `memory` is that of the steps' numbers, or undefined.
EnqueuedStep enqueue_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                          const CarriedState& before, const Tensor& memory) {
  const StepOptions& options = inputs.options;
  EnqueuedStep step{.numbers = {inputs.micro_batches.size(), model.params().values().device(), memory}};
  step.before = step.after = before;
  GradientReducer gradients(model.params(), options.micro_batches, inputs.scored, options.ranks,
                            options.buckets);
  std::vector<CarriedState> states = inputs.split(before, model);

  optimizer.zero_gradients();
  for (std::size_t i = 0; i < inputs.micro_batches.size(); ++i) {
    step.stopped = inputs.stops_before(i);
    if (step.stopped) return step;
    const Batch& batch = inputs.micro_batches[i];
    CarriedState& state = states[i % inputs.local];

    gradients.begin();
    const ForwardOutput output = model.forward(inputs.forward(i, state, model));
    if (batch.scored > 0) {
      const Tensor loss = output.classifier.loss(batch.targets, kNotScored);
      step.numbers.store_loss(i, loss);
      step.graph = graph_stats();
      backward(loss, share_if_finite(loss, inputs.shares[i]));
    }
    if (options.carry_state) state.update(output.state, batch);  // values go on, gradients stop
    gradients.end();
  }
  if (options.carry_state) step.after = inputs.merge(states, model);
  if (inputs.all_scored() == 0) return step;

  gradients.finish();
  step.numbers.store_norm(gradients.update(optimizer, inputs.scalars, step.numbers.norm_before()));
  step.gradient_norms = gradients.norms();
  return step;
}

}  // namespace

EnqueuedStep begin_step(Model& model, Optimizer& optimizer, StepInputs& inputs,
                        const std::vector<Batch>& batches, const CarriedState& carried, const Tensor& memory,
                        Recorder* recorder) {
  Recorder uncaptured(model.params(), {.wanted = false});
  State first;
  if (inputs.options.carry_state && !batches.empty()) first = carried.before(batches.front());
  return (recorder != nullptr ? *recorder : uncaptured)
      .run(inputs.signature(), inputs.tensors(), first, [&](State& state) {
        EnqueuedStep work = enqueue_step(model, optimizer, inputs, {state, carried.rows}, memory);
        state = work.after.state;
        return work;
      });
}

StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options, Recorder* recorder) {
  StepInputs inputs(batches, options, optimizer, model.params().values().dtype());
  const EnqueuedStep step = begin_step(model, optimizer, inputs, batches, carried, {}, recorder);
  return collect_step(model, optimizer, inputs, step, carried);
}

}  // namespace eddy::training
