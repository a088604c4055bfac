// Reading a step's numbers, and the search for the source of a NaN.
#include "train/step/step_result.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/base/format.h"

namespace eddy {
namespace {

// Runs the batches up to the bad one again, and that one with every result checked, to name the op and the
// module.
std::string explain_bad_loss(const Model& model, const StepInputs& inputs, std::size_t bad,
                             CarriedState state) {
  for (const Parameter& parameter : model.params().parameters())
    if (!all_finite(parameter.value))
      return fmt::format("parameter {} holds a NaN or infinity", parameter.name);
  const NoGrad no_grad;
  for (std::size_t i = 0; i < bad; ++i) {
    const ForwardOutput output = model.forward(inputs.forward(i, state, model.config()));
    if (inputs.options.carry_state) state.update(output.state, inputs.batches[i]);
  }
  const ForwardInput input = inputs.forward(bad, state, model.config());
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

}  // namespace

Tensor step_number(const Tensor& numbers, std::size_t i, Dtype dtype) {
  const std::size_t scalars = sizeof(double) / dtype_bytes(dtype);
  const std::int64_t no_strides[1] = {};
  return Tensor::over(numbers.buffer(), static_cast<std::int64_t>(i * scalars), {}, no_strides, dtype);
}

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

}  // namespace eddy
