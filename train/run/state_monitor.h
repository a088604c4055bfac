// Measures whether a model uses the state it carries. A recurrent model can learn to ignore its state, and
// then rarely uses it again; its loss equals that of a model without a state, so the loss does not show the
// failure. This does:
//
//   state_gain = loss with the state cleared - loss with the state
//
// Source: Hutchins et al., "Block-recurrent transformers" (2022), appendix B.
#pragma once

#include <cstdint>
#include <string>

#include "train/tasks/task.h"

namespace eddy::training {

inline constexpr double kMinStateGain = 1e-3;       // nats; below it a state counts as ignored
inline constexpr double kStateGainCheckFrom = 0.1;  // part of a run before which there is no warning

class StateMonitor {
 public:
  // Measures on `batches` batches per evaluation, on fewer where that takes a sample of fewer; never when it is 0, or
  // with `cleared`: the model itself clears its state at every segment.
  StateMonitor(std::int64_t batches, bool cleared) : batches_(cleared ? 0 : batches) {}

  // Adds "state_gain" and the model's diagnostics to the result of an evaluation that carried a state;
  // `options` are those of the evaluation. Adds nothing when `progress` ends the measurement.
  void measure(const Task& task, const Model& model, const EvalOptions& options, EvalResult& result,
               const EvalProgress& progress = {}) const;

  // A warning when `result` shows that the state is ignored, else "". It is not repeated until the state has
  // been used again. `done` is the fraction of the run that is over.
  std::string warning(const EvalResult& result, double done);

 private:
  std::int64_t batches_;
  bool warned_ = false;
};

}  // namespace eddy::training
