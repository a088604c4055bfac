// Whether a model uses the state it carries. Recurrence has a failure that the loss does not show: a model
// learns to do without its state, is then as good as one that has none, and does not come back. What tells is
// the loss with the state cleared minus the loss with it.
// Source: Hutchins et al., "Block-recurrent transformers" (2022), appendix B.
#pragma once

#include <cstdint>
#include <string>

#include "train/tasks/task.h"

namespace eddy {

inline constexpr double kLeastStateGain = 1e-3;  // nats; below it a state counts as ignored
inline constexpr double kStateGainFrom = 0.1;    // of a run: before, no state can be expected to be of use

class StateWatch {
 public:
  // `batches`: measured on so many per evaluation; 0: never. `cleared`: the model clears its state by itself
  // at every segment, so that nothing can be gained.
  StateWatch(std::int64_t batches, bool cleared) : batches_(cleared ? 0 : batches) {}

  // Adds to an evaluation in which a state was carried: "state_gain", and the model's diagnostics. `options`
  // are those of the evaluation. An evaluation that is ended by `progress` gets nothing.
  void measure(const Task& task, const Model& model, const EvalOptions& options, EvalResult& result,
               const EvalProgress& progress = {}) const;

  // A warning when `result` says that the state is ignored, once until it is used again; else "". `done` is
  // the part of the run that is over.
  std::string warning(const EvalResult& result, double done);

 private:
  std::int64_t batches_;
  bool warned_ = false;
};

}  // namespace eddy
