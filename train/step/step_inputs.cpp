// Micro-batches of a step, their numbers, and what ranks tell each other about them.
#include "train/step/step_inputs.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "ops/core/capture.h"
#include "ops/core/records.h"
#include "tensor/base/format.h"
#include "train/ranks/ranks.h"

namespace eddy::training {

StepInputs::StepInputs(const std::vector<Batch>& batches, const StepOptions& step_options,
                       const Optimizer& optimizer, Dtype values)
    : options(step_options) {
  const std::int64_t parts = options.micro_batches,
                     ranks = options.ranks != nullptr ? options.ranks->size() : 1;
  local = static_cast<std::size_t>(parts / ranks);
  if (options.ranks != nullptr) first = local * static_cast<std::size_t>(options.ranks->rank());
  scored = options.ranks != nullptr ? options.scored : scored_targets(batches, parts);
  if (scored.size() != batches.size() * in_batch())
    fail<ValueError>("train_step: {} numbers of scored targets for {} batches of {} micro-batches",
                     scored.size(), batches.size(), parts);
  for (const Batch& batch : batches)
    for (std::size_t part = 0; part < local; ++part)
      micro_batches.push_back(local == 1 ? batch
                                         : part_of_batch(batch, static_cast<std::int64_t>(part),
                                                         static_cast<std::int64_t>(local)));
  const detail::AdamScalars numbers = optimizer.scalars(options.learning_rate);
  scalars = upload_records(kCpu, &numbers, 1);
  micro_batches_before = Tensor::from(
      std::vector<std::int64_t>{options.step * static_cast<std::int64_t>(scored.size())}, Shape{});
  const std::int64_t all = all_scored();
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    // 1 / (all scored targets / this one's): exactly 1 / micro-batches when all have as many.
    const double inverse = static_cast<double>(all) / static_cast<double>(scored[number(i)]);
    shares.push_back(Tensor::full({}, scored[number(i)] > 0 ? 1.0 / inverse : 0.0, values));
  }
}

std::int64_t StepInputs::all_scored() const {
  return std::accumulate(scored.begin(), scored.end(), std::int64_t{0});
}

std::vector<Tensor*> StepInputs::tensors() {
  std::vector<Tensor*> all{&scalars, &micro_batches_before};
  for (Batch& batch : micro_batches) all.insert(all.end(), {&batch.tokens, &batch.targets, &batch.start});
  for (Tensor& share : shares) all.push_back(&share);
  return all;
}

std::string StepInputs::signature() const {
  std::string text = fmt::format("{} {} {} {}", options.seed, options.carry_state, options.micro_batches,
                                 static_cast<int>(options.recompute));
  for (const Batch& batch : micro_batches) text += batch_signature(batch);
  return text;
}

ForwardInput StepInputs::forward(std::size_t i, const CarriedState& state, const Model& model) const {
  const Batch& batch = micro_batches[i];
  ForwardInput input = state.input(batch, batch.tokens.device(), model);
  input.dropout = {true, options.seed, static_cast<std::int64_t>(number(i)),
                   static_cast<const std::uint64_t*>(micro_batches_before.raw_data())};
  input.logits = false;
  input.recompute = options.recompute;
  return input;
}

std::vector<CarriedState> StepInputs::split(const CarriedState& whole, const Model& model) const {
  const auto parts = static_cast<std::int64_t>(local);
  if (local == 1) return {whole};
  std::vector<CarriedState> states(local);
  if (whole.state.empty() || whole.rows != micro_batches.front().tokens.dim(0) * parts) return states;
  for (std::size_t part = 0; part < local; ++part)
    states[part] = {part_of_state(whole.state, model, static_cast<std::int64_t>(part), parts),
                    whole.rows / parts};
  return states;
}

CarriedState StepInputs::merge(const std::vector<CarriedState>& states, const Model& model) const {
  if (local == 1) return states.front();
  std::vector<State> parts;
  CarriedState whole;
  for (const CarriedState& state : states) {
    parts.push_back(state.state);
    whole.rows += state.rows;
  }
  whole.state = merged_state(parts, model);
  return whole;
}

bool StepInputs::stops_before(std::size_t i) const {
  if (i == 0 || i % local != 0) return false;
  auto stop = std::byte{!capturing() && options.stop && options.stop()};
  if (options.ranks != nullptr) broadcast(*options.ranks, std::span(&stop, 1));
  return stop != std::byte{0};
}

std::vector<double> StepInputs::gather(const std::vector<double>& of_local) const {
  if (options.ranks == nullptr) return of_local;
  const std::vector<std::byte> bytes = all_gather(*options.ranks, std::as_bytes(std::span(of_local)));
  std::vector<double> all(scored.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(owner(i)) * of_local.size() + local_index(i);
    std::memcpy(&all[i], bytes.data() + at * sizeof(double), sizeof(double));
  }
  return all;
}

bool StepInputs::on_all_ranks(bool here) const {
  if (options.ranks == nullptr) return here;
  const std::byte local_answer{here};
  const std::vector<std::byte> all = all_gather(*options.ranks, std::span(&local_answer, 1));
  return std::find(all.begin(), all.end(), std::byte{0}) == all.end();
}

}  // namespace eddy::training
