// The training step: that of examples/05_copy_a_line.cpp, over several batches and with a recurrent state.
//
//   for each batch    forward, loss, backward: gradients add up; the state goes on to the next batch, detached
//   then              one call of the optimizer clips the gradient's norm and updates the parameters
//
// `enqueue_step` is the step. It never waits for the device, which itself skips an update that is not finite:
// so a recorder can capture it and replay it with other inputs.
#include "train/step/train_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/core/capture.h"
#include "ops/core/records.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// What a training step reads: everything that changes from step to step is a tensor here, so that a recorder
// can send it to the device by one copy.
struct StepInputs {
  StepOptions options;
  std::vector<Batch> batches;
  std::vector<Tensor> shares;  // scalars: a batch's scored targets / those of all batches
  Tensor scalars;              // the bytes of the optimizer's AdamScalars
  Tensor batches_before;       // i64 scalar: of all steps before; it numbers the dropout masks

  // The inputs of a step on the host. `values` are the parameters'.
  StepInputs(const std::vector<Batch>& step_batches, const StepOptions& step_options,
             const Optimizer& optimizer, Dtype values)
      : options(step_options), batches(step_batches) {
    const AdamScalars numbers = optimizer.scalars(options.learning_rate);
    scalars = upload_records(kCpu, &numbers, 1);
    batches_before = Tensor::from(std::vector<std::int64_t>{options.step * std::ssize(batches)}, Shape{});
    std::int64_t scored = 0;
    for (const Batch& batch : batches) scored += batch.scored;
    for (const Batch& batch : batches) {
      // 1 / (all scored targets / this batch's): exactly 1 / batches when all batches have as many.
      const double parts = static_cast<double>(scored) / static_cast<double>(batch.scored);
      shares.push_back(Tensor::full({}, batch.scored > 0 ? 1.0 / parts : 0.0, values));
    }
  }

  // All tensors, and the part of the step's kind that is not in their shapes (recorder.h).
  std::vector<Tensor*> tensors() {
    std::vector<Tensor*> all{&scalars, &batches_before};
    for (Batch& batch : batches) all.insert(all.end(), {&batch.tokens, &batch.targets, &batch.start});
    for (Tensor& share : shares) all.push_back(&share);
    return all;
  }
  std::string kind() const {
    std::string text = fmt::format("{} {}", options.seed, options.carry_state);
    for (const Batch& batch : batches) text += batch_kind(batch);
    return text;
  }

  // The model's input for batch i, with the state before it.
  ForwardInput forward(std::size_t i, const CarriedState& state, const Model& model) const {
    ForwardInput input = forward_input(batches[i], batches[i].tokens.device());
    if (options.carry_state) state.set_input(input, batches[i], model);
    input.dropout = {true, options.seed, i, static_cast<const std::uint64_t*>(batches_before.raw_data())};
    input.logits = false;
    return input;
  }
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
Tensor step_number(const Tensor& numbers, std::size_t i, Dtype dtype) {
  const std::size_t scalars = sizeof(double) / dtype_bytes(dtype);
  const std::int64_t no_strides[1] = {};
  return Tensor::over(numbers.buffer(), static_cast<std::int64_t>(i * scalars), {}, no_strides, dtype);
}

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
    const ForwardOutput output = model.forward(inputs.forward(i, step.after, model));
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
  if (scored) store(step.numbers, 0, optimizer.apply(inputs.scalars));
  return step;
}

// ---- reading the numbers of a step, and the search for the source of a NaN

// Runs the batches up to the bad one again, and that one with every result checked, to name the op and the
// module.
std::string explain_bad_loss(const Model& model, const StepInputs& inputs, std::size_t bad,
                             CarriedState state) {
  for (const Parameter& parameter : model.params().parameters())
    if (!all_finite(parameter.value))
      return fmt::format("parameter {} holds a NaN or infinity", parameter.name);
  const NoGrad no_grad;
  for (std::size_t i = 0; i < bad; ++i) {
    const ForwardOutput output = model.forward(inputs.forward(i, state, model));
    if (inputs.options.carry_state) state.update(output.state, inputs.batches[i]);
  }
  const ForwardInput input = inputs.forward(bad, state, model);
  for (const auto& [name, tensor] : input.state)
    if (!all_finite(tensor)) return fmt::format("the carried state {} holds a NaN or infinity", name);
  try {
    const AnomalyMode checking;
    static_cast<void>(model.forward(input).classifier.losses(inputs.batches[bad].targets, kNotScored));
  } catch (const NonFiniteError& error) {
    return error.what();
  }
  return "no single op gives it: the loss itself overflows";
}

std::string explain_bad_gradient(const Model& model) {
  for (const Parameter& parameter : model.params().parameters())
    if (const Tensor gradient = grad(parameter.value); gradient.defined() && !all_finite(gradient))
      return fmt::format("the first is grad.{}", parameter.name);
  return "the sum of squares is too large";
}

// Waits for the step, reads its numbers by one copy, and counts the optimizer's step if it was taken. With
// carry_state `carried` becomes the state after the step; after a loss that is not finite it is cleared, since
// it may be the cause. To find the source of a value that is not finite, the step is computed again.
StepResult collect_step(const Model& model, Optimizer& optimizer, const StepInputs& inputs,
                        const EnqueuedStep& work, CarriedState& carried) {
  StepResult result;
  result.graph = work.graph;
  result.stopped = work.stopped;
  if (work.stopped) return result;
  const Tensor numbers = raw::to_device(work.numbers, kCpu);
  const std::size_t count = inputs.batches.size();
  std::int64_t scored = 0;
  for (const Batch& batch : inputs.batches) scored += batch.scored;
  std::size_t bad = count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t own = inputs.batches[i].scored;
    if (own == 0) continue;
    // The batch's mean loss is weighted by its share of the scored targets.
    const double loss = step_number(numbers, 1 + i, work.loss_dtype).item();
    result.loss += loss / (static_cast<double>(scored) / static_cast<double>(own));
    if (!std::isfinite(loss)) bad = std::min(bad, i);
  }
  if (bad < count) {
    result.finite = false;
    result.problem = "the loss is not finite; " + explain_bad_loss(model, inputs, bad, work.before);
    carried = {};
    return result;
  }
  if (inputs.options.carry_state) carried = work.after;
  if (scored == 0) {
    result.loss = result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  result.grad_norm = step_number(numbers, 0, Dtype::f64).item();
  if (std::isfinite(result.grad_norm)) {
    optimizer.count_step();
    return result;
  }
  result.finite = false;
  result.problem = "the gradient is not finite; " + explain_bad_gradient(model);
  if (std::any_of(carried.state.begin(), carried.state.end(),
                  [](const State::Entry& entry) { return !all_finite(entry.second); }))
    carried = {};
  return result;
}

}  // namespace

StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options, Recorder* recorder) {
  StepInputs inputs(batches, options, optimizer, model.params().values().dtype());
  Recorder uncaptured(model.params(), {.wanted = false});
  // The state that the first batch starts from; empty for a cold start.
  State first = options.carry_state && !batches.empty() ? inputs.forward(0, carried, model).state : State();
  const EnqueuedStep step =
      (recorder != nullptr ? *recorder : uncaptured)
          .run(inputs.kind(), inputs.tensors(), first, [&](State& state) {
            EnqueuedStep work = enqueue_step(model, optimizer, inputs, {state, carried.rows});
            state = work.after.state;
            return work;
          });
  if (model.params().values().device().type == DeviceType::counting) {  // there are no numbers to read
    if (options.carry_state) carried = step.after;
    optimizer.count_step();
    StepResult counted;
    counted.loss = std::numeric_limits<double>::quiet_NaN();
    counted.graph = step.graph;
    return counted;
  }
  return collect_step(model, optimizer, inputs, step, carried);
}

}  // namespace eddy
