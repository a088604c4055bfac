// Reads texts as sequences whose labels are the tokens one position further.
#include "train/study/token_losses.h"

#include <algorithm>
#include <limits>

#include "tensor/base/format.h"
#include "train/tasks/sequence_reader.h"

namespace eddy {

std::vector<std::vector<double>> token_losses(const Model& model,
                                              const std::vector<std::span<const std::int32_t>>& texts,
                                              const TokenReading& reading, const EvalProgress& progress) {
  std::vector<std::vector<std::int32_t>> labels;
  std::vector<std::vector<double>> losses;
  std::vector<Sequence> sequences;
  std::vector<std::size_t> text_of;  // of each sequence
  labels.reserve(texts.size());      // sequences point into them
  EvalPlan plan;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    losses.emplace_back(texts[i].size(), std::numeric_limits<double>::quiet_NaN());
    if (texts[i].size() < 2) continue;
    labels.emplace_back(texts[i].begin() + 1, texts[i].end());
    labels.back().push_back(kNotScored);
    sequences.push_back({texts[i], labels.back()});
    text_of.push_back(i);
    plan.total += std::ssize(texts[i]) - 1;
  }
  if (sequences.empty()) fail<ValueError>("token_losses: no text has a token to predict (at least 2 tokens)");
  ReadingOptions options;
  options.rows = std::min<std::int64_t>(reading.rows, std::ssize(sequences));
  options.segment = reading.segment;
  options.pad = true;
  options.once = true;
  SequenceReader reader(sequences, options);
  plan.carry_state = reading.carry_state;
  plan.clear_state = reading.clear_state;
  plan.on_batch = [&](const Batch& batch, std::span<const double> nats) {
    const std::int32_t* target = batch.targets.data<std::int32_t>();
    for (std::size_t i = 0; i < nats.size(); ++i) {
      if (target[i] == kNotScored) continue;
      const auto segment = static_cast<std::size_t>(reading.segment);
      const SequenceReader::Place& place = reader.places()[i / segment];
      const std::size_t token = static_cast<std::size_t>(place.position) + i % segment + 1;
      losses[text_of[static_cast<std::size_t>(place.sequence)]][token] = nats[i];
    }
  };
  static_cast<void>(evaluate_batches(
      model, [&](Batch& batch) { return reader.next(batch); }, plan, progress));
  return losses;
}

}  // namespace eddy
