// The search for the source of a value that is not finite.
#include "train/step/explain.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/format.h"
#include "train/ranks/message.h"

namespace eddy::training {
namespace {

// explain_loss for a local micro-batch.
std::string explain_local(const Model& model, const StepInputs& inputs, std::size_t bad,
                          const CarriedState& before) {
  for (const Parameter& parameter : model.params().parameters())
    if (!all_finite(parameter.value))
      return fmt::format("parameter {} holds a NaN or infinity", parameter.name);
  const NoGrad no_grad;
  CarriedState state = inputs.split(before, model)[bad % inputs.local];
  for (std::size_t i = bad % inputs.local; i < bad; i += inputs.local) {
    const ForwardOutput output = model.forward(inputs.forward(i, state, model));
    if (inputs.options.carry_state) state.update(output.state, inputs.micro_batches[i]);
  }
  const ForwardInput input = inputs.forward(bad, state, model);
  for (const auto& [name, tensor] : input.state)
    if (!all_finite(tensor)) return fmt::format("the carried state {} holds a NaN or infinity", name);
  try {
    const AnomalyMode checking;
    static_cast<void>(model.forward(input).classifier.losses(inputs.micro_batches[bad].targets, kNotScored));
  } catch (const NonFiniteError& error) {
    return error.what();
  }
  return "no single op gives it: the loss itself overflows";
}

}  // namespace

std::string explain_loss(const Model& model, const StepInputs& inputs, std::size_t bad,
                         const CarriedState& before) {
  Ranks* const ranks = inputs.options.ranks;
  const int owner = inputs.owner(bad);
  if (ranks == nullptr || ranks->rank() == owner) {
    std::string text = explain_local(model, inputs, inputs.local_index(bad), before);
    if (owner == 0) return text;
    Message message;
    message.put(text);
    message.send(*ranks, 0);
    return text;
  }
  if (ranks->rank() != 0 || owner == 0) return "";
  return Message::receive(*ranks, owner).get_text();
}

std::string explain_gradient(const Model& model, const Tensor& norms) {
  const Tensor known = norms.defined() ? raw::to_device(norms, kCpu) : norms;
  const std::vector<Parameter>& parameters = model.params().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor gradient = grad(parameters[i].value);
    if (known.defined() ? !std::isfinite(known.data<double>()[i])
                        : gradient.defined() && !all_finite(gradient))
      return fmt::format("the first is grad.{}", parameters[i].name);
  }
  return "the sum of squares is too large";
}

bool is_finite(const State& state) {
  return std::all_of(state.begin(), state.end(),
                     [](const State::Entry& entry) { return all_finite(entry.second); });
}

}  // namespace eddy::training
