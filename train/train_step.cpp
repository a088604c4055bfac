// The step, and where a NaN came from.
#include "train/train_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cross_entropy.h"
#include "tensor/format.h"

namespace eddy {
namespace {

// Runs a batch again with every result checked, to name the op and the module.
std::string explain_bad_loss(const Model& model, const ForwardInput& input) {
  for (const Parameter& parameter : model.params().parameters())
    if (!all_finite(parameter.value))
      return fmt::format("parameter {} holds a NaN or infinity", parameter.name);
  for (const auto& [name, tensor] : input.state)
    if (is_floating(tensor.dtype()) && !all_finite(tensor))
      return fmt::format("the carried state {} holds a NaN or infinity", name);
  try {
    const AnomalyMode checking;
    const NoGrad no_grad;
    static_cast<void>(model.forward(input));
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

}  // namespace

StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options) {
  const Device device = model.params().values().device();
  std::int64_t scored = 0;
  for (const Batch& batch : batches) scored += batch.scored;
  StepResult result;
  model.params().zero_gradients();
  for (std::size_t micro = 0; micro < batches.size(); ++micro) {
    const Batch& batch = batches[micro];
    ForwardInput input = forward_input(batch, device);
    input.dropout = {true, options.seed, static_cast<std::uint64_t>(options.step) * batches.size() + micro};
    if (options.carry_state) carried.enter(input, batch, model.config());
    const ForwardOutput output = model.forward(input);
    if (batch.scored > 0) {
      const Tensor targets = raw::to_device(batch.targets, device);
      const Tensor loss = cross_entropy(output.logits, targets, kNotScored);
      const double value = loss.item();
      // The batch's mean counts by its part of the targets: one over this, exact when batches are alike.
      const double shares = static_cast<double>(scored) / static_cast<double>(batch.scored);
      result.loss += value / shares;
      result.graph = graph_stats();
      if (!std::isfinite(value)) {
        result.finite = false;
        result.problem = "the loss is not finite; " + explain_bad_loss(model, input);
        carried = {};
        return result;
      }
      backward(loss, Tensor::full(loss.shape(), 1.0 / shares, loss.dtype(), loss.device()));
    }
    if (options.carry_state) carried.leave(output.state, batch);
  }
  if (scored == 0) {
    result.loss = result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  result.grad_norm = optimizer.step(model.params(), options.learning_rate);
  if (!std::isfinite(result.grad_norm)) {
    result.finite = false;
    result.problem = "the gradient is not finite; " + explain_bad_gradient(model);
    if (!state_is_finite(carried.state)) carried = {};
  }
  return result;
}

}  // namespace eddy
