// A backward pass marks the parameters that it adds a gradient to; on the counting device it takes no memory.
#include "train/step/gradient_reach.h"

#include <fmt/ranges.h>

#include "autograd/tape.h"
#include "ops/cost/counting.h"
#include "tensor/base/format.h"
#include "train/words/human_text.h"

namespace eddy::training {

Unreached unreached_parameters(const ModelConfig& config, const Batch& batch, bool carry_state) {
  const Device device = counting_device();
  const std::unique_ptr<Model> model = make_model(config, Dtype::f32, device);
  model->params().zero_gradients();
  const Tensor targets = raw::to_device(batch.targets, device);
  State state;
  for (int call = 0; call < (carry_state ? 2 : 1); ++call) {
    ForwardInput input = forward_input(batch, device);
    input.state = state;
    input.logits = false;
    const ForwardOutput output = model->forward(input);
    backward(output.classifier.loss(targets, kNotScored));
    state = output.state.detach();
    if (state.empty()) break;
  }
  Unreached found;
  for (const Parameter& parameter : model->params().parameters()) {
    if (grad(parameter.value).defined()) continue;
    found.names.push_back(parameter.name);
    found.elements += parameter.shape.elements();
  }
  return found;
}

std::string unreached_warning(const ModelConfig& config, const Batch& batch, bool carry_state) {
  const Unreached found = unreached_parameters(config, batch, carry_state);
  if (found.names.empty()) return {};
  std::string help;
  const Unreached carried = carry_state ? found : unreached_parameters(config, batch, true);
  if (carried.elements < found.elements)
    help = fmt::format(
        " ({} if the state is carried from batch to batch: data.order \"stream\" or train.carry_state \"always\")",
        carried.elements == 0 ? "none" : grouped(carried.elements));
  else if (carries_state(config))
    help =
        " (what only the next call reads gets none: windows or chunks shorter than the segment give it one)";
  return fmt::format("warning: {} of {} parameters can get no gradient here{}: {}", grouped(found.elements),
                     grouped(count_parameters(config).count()), help, fmt::join(found.names, ", "));
}

std::string unread_state_warning(const Model& model, std::int64_t time, bool carry_state) {
  const std::int64_t period = model.stream_period();
  if (!model.is_recurrent() || carry_state || time == 0 || time > period) return {};
  return fmt::format(
      "warning: no state that was written is ever read: rows of {} tokens, {} writes one after {}, and nothing is "
      "carried on (shorter windows or chunks, longer rows, data.order \"stream\", or train.carry_state \"always\")",
      time, model.config().model, period);
}

}  // namespace eddy::training
