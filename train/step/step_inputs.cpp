// The inputs of a step as tensors.
#include "train/step/step_inputs.h"

#include "ops/core/records.h"
#include "tensor/base/format.h"

namespace eddy {

StepInputs::StepInputs(const std::vector<Batch>& step_batches, const StepOptions& step_options,
                       const Optimizer& optimizer, Dtype values)
    : options(step_options), batches(step_batches) {
  const AdamScalars numbers = optimizer.scalars(options.learning_rate);
  scalars = upload_records(kCpu, &numbers, 1);
  batches_before = Tensor::from(
      std::vector<std::int64_t>{options.step * static_cast<std::int64_t>(batches.size())}, Shape{});
  std::int64_t scored = 0;
  for (const Batch& batch : batches) scored += batch.scored;
  for (const Batch& batch : batches) {
    // 1 / (all scored targets / this batch's): exactly 1 / batches when all batches have as many.
    const double parts = static_cast<double>(scored) / static_cast<double>(batch.scored);
    shares.push_back(Tensor::full({}, batch.scored > 0 ? 1.0 / parts : 0.0, values));
  }
}

std::vector<Tensor*> StepInputs::tensors() {
  std::vector<Tensor*> all{&scalars, &batches_before};
  for (Batch& batch : batches) all.insert(all.end(), {&batch.tokens, &batch.targets, &batch.start});
  for (Tensor& share : shares) all.push_back(&share);
  return all;
}

std::string StepInputs::kind() const {
  std::string text = fmt::format("{} {}", options.seed, options.carry_state);
  for (const Batch& batch : batches) text += batch_kind(batch);
  return text;
}

ForwardInput StepInputs::forward(std::size_t i, const CarriedState& state, const ModelConfig& config) const {
  ForwardInput input = forward_input(batches[i], batches[i].tokens.device());
  if (options.carry_state) state.set_input(input, batches[i], config);
  input.dropout = {true, options.seed, i, static_cast<const std::uint64_t*>(batches_before.raw_data())};
  input.logits = false;
  return input;
}

}  // namespace eddy
