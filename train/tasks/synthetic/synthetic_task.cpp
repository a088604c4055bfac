// Batches by seed and number, and their evaluation.
#include "train/tasks/synthetic/synthetic_task.h"

#include <algorithm>

#include "tensor/base/format.h"

namespace eddy::training {
namespace {

constexpr std::int64_t kValidBatches = 4;  // of a whole evaluation

}  // namespace

Batch SyntheticTask::batch_of(const std::string& stream, std::uint64_t seed, std::int64_t index,
                              std::int64_t rows) const {
  return draw(random_key(seed, stream.c_str(), static_cast<std::uint64_t>(index)), rows);
}

Batch SyntheticTask::next(std::int64_t step, std::int64_t micro) {
  return batch_of(name() + ".train", static_cast<std::uint64_t>(config_.train.seed),
                  step * config_.train.accumulate + micro, config_.train.batch);
}

EvalResult SyntheticTask::evaluate(const Model& model, const EvalOptions& options,
                                   const EvalProgress& progress) const {
  const std::string stream = fresh_stream(name(), options.split);
  const std::int64_t batches = options.batches > 0  ? options.batches
                               : options.sample > 0 ? std::min(options.sample, kValidBatches)
                                                    : kValidBatches;
  EvalPlan plan{.count_correct = true, .capture = options.capture, .share = options.share};
  if (options.by_position) plan.position = [this](std::int64_t i) { return i % length_; };
  const auto next =
      batches_of(batches, [&](std::int64_t i) { return batch_of(stream, options.seed, i, options.batch); });
  return evaluate_batches(model, next, plan, progress);
}

}  // namespace eddy::training
