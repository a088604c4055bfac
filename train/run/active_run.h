// A run while this process trains it: what its loop (trainer.cpp) and its evaluations (evaluations.h) share. That is
// the clock, the log, the last checkpoint, and how the run is shown.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "train/plan/time_limit.h"
#include "train/record/run_log.h"
#include "train/run/run_start.h"
#include "train/run/run_view.h"
#include "train/step/clock.h"
#include "train/step/shared_steps.h"

namespace eddy::training {

struct ActiveRun : ReadyRun {
  // errors: those of prepare_run.
  ActiveRun(const TrainRequest& train_request, Clock::time_point start);

  bool is_resumed() const { return !request.resume.empty(); }
  // Whether all is done that a run can train.
  bool is_done() const { return state.learned || state.step >= config.train.steps; }

  // Seconds since the beginning.
  double now() const { return request.clock ? request.clock() : seconds_between(started); }
  // The seconds of training, those before a resume too.
  double trained_seconds() const { return seconds_before + now(); }
  // Whether a signal or train.minutes asks for the end: looked at between steps, and, for what takes long, between
  // accumulated batches, batches of an evaluation, and tokens of a sample.
  bool must_end() const;
  bool gives_up_step() const;

  // Records and says something.
  void event(const std::string& text);
  void event_if_any(const std::string& text) {
    if (!text.empty()) event(text);
  }

  bool is_saved() const { return saved_step == state.step; }
  // Saves a checkpoint of the steps done. In the middle of a step it has the data positions before it.
  // errors: IoError, also when the folder of the run was moved or removed.
  void save(bool best);
  // Saves a checkpoint after an error: the steps done, with the data positions before the step that failed.
  void rescue();

  // Shows how far something is that takes a while.
  void show_work(const char* what, std::int64_t done, std::int64_t total);
  // How the run ended, and how much of it is shown.
  struct Showing {
    std::optional<TrainEnd> end{};
    bool failed = false, whole = true;
  };
  // Shows how the run stands. That can be done again: where it fails, the run goes on.
  // errors: IoError when the folder of the run was moved or removed.
  void show_now(const Showing& showing);
  // Shows the run again where it is time. A folder that was moved is noticed by the next checkpoint.
  void show_if_due();

  const TrainRequest& request;
  Clock::time_point started;
  TimeLimit time;
  std::optional<RunLog> log;                       // from the run's opening on
  std::optional<SharedSteps> shared;               // with several ranks
  std::optional<nlohmann::json> task_before_step;  // set while a step is in progress
  std::int64_t saved_step = -1;                    // of the last checkpoint
  bool is_between_steps = true;                    // false: the parameters may be those after another step
  bool nothing_to_train = false;                   // a finished run that was resumed
  double seconds_before = 0;                       // of training, when the run was resumed

 private:
  // errors: IoError when the folder of the run was moved or removed.
  void check_place() const;

  std::string not_shown_;  // why it could not be shown the last time
  ShowTimer show_timer_;
};

}  // namespace eddy::training
