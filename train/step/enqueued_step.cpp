// The two halves of a step, and the search for the source of a NaN.
#include "train/step/enqueued_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/pointwise/pointwise.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

constexpr std::int64_t kNumberBytes = 8;  // bytes of each number that is read back

ForwardInput input_of(const Model& model, const StepInputs& inputs, const std::vector<Batch>& batches,
                      std::size_t micro, const CarriedState& state, const StepOptions& options) {
  ForwardInput input = micro_batch_input(inputs, micro, batches[micro],
                                         options.carry_state ? &state : nullptr, model.config());
  input.dropout = {true, options.seed, micro, inputs.step_base()};
  input.logits = false;
  return input;
}

// Runs the batches up to the bad one again, and that one with every result checked, to name the op and the
// module.
std::string explain_bad_loss(const Model& model, const StepInputs& inputs, const std::vector<Batch>& batches,
                             std::size_t bad, const CarriedState& before, const StepOptions& options) {
  for (const Parameter& parameter : model.params().parameters())
    if (!all_finite(parameter.value))
      return fmt::format("parameter {} holds a NaN or infinity", parameter.name);
  const NoGrad no_grad;
  CarriedState state = before;
  for (std::size_t micro = 0; micro < bad; ++micro) {
    const ForwardOutput output = model.forward(input_of(model, inputs, batches, micro, state, options));
    if (options.carry_state) state.update(output.state, batches[micro]);
  }
  const ForwardInput input = input_of(model, inputs, batches, bad, state, options);
  for (const auto& [name, tensor] : input.state)
    if (is_floating(tensor.dtype()) && !all_finite(tensor))
      return fmt::format("the carried state {} holds a NaN or infinity", name);
  try {
    const AnomalyMode checking;
    static_cast<void>(
        model.forward(input).classifier.losses(inputs.micro_batches()[bad].targets, kNotScored));
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

bool state_is_finite(const State& state) {
  return std::all_of(state.begin(), state.end(), [](const State::Entry& entry) {
    return !is_floating(entry.second.dtype()) || all_finite(entry.second);
  });
}

// The gradient of the step's loss with respect to a batch's loss l: share + (l - l). That is exactly the
// share for a finite l, and NaN for any other.
Tensor cotangent(const Tensor& loss, const Tensor& share) {
  const NoGrad no_grad;
  const Tensor value = raw::alias(loss);
  return (share.dtype() == loss.dtype() ? share : raw::cast(share, loss.dtype())) + (value - value);
}

}  // namespace

void write_step_inputs(StepInputs& inputs, const Optimizer& optimizer, const std::vector<Batch>& batches,
                       const StepOptions& options) {
  inputs.write(batches, optimizer.scalars(options.learning_rate),
               static_cast<std::uint64_t>(options.step) * batches.size());
}

EnqueuedStep enqueue_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                          const std::vector<Batch>& batches, const CarriedState& before,
                          const StepOptions& options) {
  const Device device = model.params().values().device();
  EnqueuedStep work;
  work.after = before;
  // Zeroed because an f32 loss fills only half of its 8 bytes, and all of them are copied to the host.
  work.numbers =
      Tensor::zeros({kNumberBytes * static_cast<std::int64_t>(1 + batches.size())}, Dtype::u8, device);
  model.params().zero_gradients();
  bool scored = false;
  for (std::size_t micro = 0; micro < batches.size(); ++micro) {
    if (micro > 0 && options.stop && options.stop()) {
      work.stopped = true;
      return work;
    }
    const ForwardOutput output = model.forward(input_of(model, inputs, batches, micro, work.after, options));
    if (batches[micro].scored > 0) {
      scored = true;
      const StepInputs::MicroBatch& own = inputs.micro_batches()[micro];
      const Tensor loss = output.classifier.loss(own.targets, kNotScored);
      work.loss_dtype = loss.dtype();
      raw::copy_into(
          view_of_bytes(work.numbers, kNumberBytes * static_cast<std::int64_t>(1 + micro), {}, loss.dtype()),
          loss);
      work.graph = graph_stats();
      backward(loss, cotangent(loss, own.share));
    }
    if (options.carry_state) work.after.update(output.state, batches[micro]);
  }
  if (scored) {
    const Tensor norm = optimizer.apply(model.params(), inputs.scalars());
    raw::copy_into(view_of_bytes(work.numbers, 0, norm.shape(), Dtype::f64), norm);
  }
  return work;
}

StepResult collect_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                        const std::vector<Batch>& batches, const CarriedState& before,
                        const EnqueuedStep& work, CarriedState& carried, const StepOptions& options) {
  StepResult result;
  if (work.stopped) {
    result.stopped = true;
    return result;
  }
  const Tensor numbers = raw::to_device(work.numbers, kCpu);
  std::int64_t scored = 0;
  for (const Batch& batch : batches) scored += batch.scored;
  result.graph = work.graph;
  std::size_t bad = batches.size();
  for (std::size_t micro = 0; micro < batches.size(); ++micro) {
    if (batches[micro].scored == 0) continue;
    const double value =
        view_of_bytes(numbers, kNumberBytes * static_cast<std::int64_t>(1 + micro), {}, work.loss_dtype)
            .item();
    // The batch's mean loss is weighted by its share of the scored targets.
    result.loss += value / (static_cast<double>(scored) / static_cast<double>(batches[micro].scored));
    if (!std::isfinite(value)) bad = std::min(bad, micro);
  }
  if (bad < batches.size()) {
    result.finite = false;
    result.problem =
        "the loss is not finite; " + explain_bad_loss(model, inputs, batches, bad, before, options);
    carried = {};
    return result;
  }
  if (options.carry_state) carried = work.after;
  if (scored == 0) {
    result.loss = result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  result.grad_norm = view_of_bytes(numbers, 0, {}, Dtype::f64).item();
  if (std::isfinite(result.grad_norm)) {
    optimizer.count_step();
    return result;
  }
  result.finite = false;
  result.problem = "the gradient is not finite; " + explain_bad_gradient(model);
  if (!state_is_finite(carried.state)) carried = {};
  return result;
}

}  // namespace eddy
