// What a run measures of its model between steps: evaluations on the validation split, whether the state is used, and
// samples of what it writes.
#pragma once

#include <cstdint>
#include <string>

#include "train/eval/evaluate.h"
#include "train/run/active_run.h"
#include "train/run/state_monitor.h"

namespace eddy::training {

class Evaluations {
 public:
  // `run` must outlive this object.
  explicit Evaluations(ActiveRun& run);

  // Tells the time limit what the evaluation at the end will take.
  void plan_last();
  // Whether one is due when so many steps are done: every train.eval_every steps. A run that is limited in time has
  // none before its first step, and one early on.
  bool is_due_after(std::int64_t step) const;
  // Evaluates, records the result, and saves the model where it is the best so far. An evaluation that is recorded
  // for this step is not made again. `last`: the one at the end of a run.
  void evaluate(bool last = false);
  // Measures the whole validation split at the end of a run whose evaluations measure a sample, where time allows.
  void evaluate_whole();
  // Whether train.minutes ended the evaluation of this step; it is not begun again.
  bool gave_up() const { return given_up_at_ == run_.state.step; }
  // Records an evaluation; returns its loss and other metrics as a text.
  std::string record(const EvalResult& result, bool of_task = false, bool whole = false);

 private:
  struct Evaluated {
    EvalResult result;
    bool stopped = false;  // by the time or a signal: the result is of the batches so far
  };
  EvalOptions eval_options() const;
  Evaluated evaluate_until(double end, const EvalOptions& options, const char* what, bool with_gain);
  void give_up(const EvalResult& so_far);
  void save_best(double loss);

  ActiveRun& run_;
  StateMonitor state_monitor_;
  bool has_evaluated_ = false;  // in this process
  std::int64_t given_up_at_ = -1;
};

// Writes what the model generates, and records it: not twice for one step. `last`: the sample at the end of a run.
// One that train.minutes end is kept as far as it came.
void write_sample(ActiveRun& run, bool last = false);

}  // namespace eddy::training
