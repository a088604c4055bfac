// A training loop of one's own that may be killed at any moment: checkpoints as durable as those of a run
// (train/run/checkpoint.h), and metrics that `eddy report` reads.
//
//   const fs::path folder = "runs/mine";
//   std::int64_t step = 0;
//   if (const auto saved = load_training(folder, net, adam)) step = saved->step;
//   MetricsWriter metrics = continue_metrics(folder, step, {.name = "mine", .model = "mlp", .task = "xor"});
//   for (; step < 1000; ++step) {
//     ...                                                      batches that depend on (seed, step) alone
//     const double norm = adam.step(learning_rate_at(schedule, 1e-3, step));
//     metrics.write(StepRecord{.step = step + 1, .loss = loss.item(), .grad_norm = norm});
//     if ((step + 1) % 100 == 0) save_training(folder, net, adam, step + 1);
//   }
//
// A resumed loop equals an unbroken one to the bit where all that a step depends on is in the weights, the optimizer,
// the step, and the state, numbers and task that are saved with them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "autograd/state.h"
#include "models/optimizer/optimizer.h"
#include "models/params.h"
#include "train/record/metrics.h"

namespace eddy::training {

// What else a checkpoint of a loop holds.
struct SavedTraining {
  std::int64_t step = 0;                    // optimizer steps done
  State state{};                            // a recurrent state that the next step goes on from
  std::map<std::string, double> numbers{};  // the loop's own: a best loss, the steps since it; finite
  nlohmann::json
      task{};  // what Task::save returned, for Task::load: where a text that is read in order stands
};

// Writes checkpoints/step-N of a folder, which it makes, points checkpoints/latest to it, and keeps the last `keep`,
// this one included. A checkpoint is complete or absent.
// errors: IoError, also for a folder of `eddy train`, and the checkpoints before it are whole;
// ValueError for a number that is not finite.
void save_training(const std::filesystem::path& folder, const ParamStore& params, const Optimizer& optimizer,
                   const SavedTraining& training, std::int64_t keep = 2);

// Loads the latest checkpoint of a folder, each file checked against its digest, into parameters and optimizer. Returns
// nothing, and changes nothing, where the folder has no checkpoint yet.
// errors: FormatError for damaged files, which says which checkpoint is whole, and for other parameters or another
// optimizer; IoError.
std::optional<SavedTraining> load_training(const std::filesystem::path& folder, ParamStore& params,
                                           Optimizer& optimizer);

// The same for what has parameters: a Module or a Model.
template <class Net>
void save_training(const std::filesystem::path& folder, const Net& net, const Optimizer& optimizer,
                   std::int64_t step) {
  save_training(folder, net.params(), optimizer, {.step = step});
}
// The same with more than the step.
template <class Net>
void save_training(const std::filesystem::path& folder, const Net& net, const Optimizer& optimizer,
                   const SavedTraining& training, std::int64_t keep = 2) {
  save_training(folder, net.params(), optimizer, training, keep);
}
// The same for what has parameters.
template <class Net>
std::optional<SavedTraining> load_training(const std::filesystem::path& folder, Net& net,
                                           Optimizer& optimizer) {
  return load_training(folder, net.params(), optimizer);
}

// Opens metrics.jsonl of a folder, which it makes, for a loop that goes on at `step`: a new file begins with `about`,
// and lines of an earlier process behind `step`, which is done again, are removed.
// errors: IoError, also for a folder of `eddy train`.
MetricsWriter continue_metrics(const std::filesystem::path& folder, std::int64_t step,
                               const RunRecord& about);

}  // namespace eddy::training
