// How much of a run is over for its learning rate (learning_rate_at in models/optimizer/optimizer.h), from 0 to 1: of
// its steps or of its time, whichever is more, so that warm-up and decay end where the run does.
//
//   by steps   steps done / train.steps
//   by time    (trained before + since the first step) / (trained before + from the first step to the end of the steps)
//
// Both count the whole run: "before" are the seconds of the processes whose work this one goes on with, and the first
// step is that of this process. Evaluations and samples count. The time moves in parts of 1/4096, so that it is
// recorded when it moves. Steps that a killed process had recorded are done again with the progress that they had then.
// Times are passed in, in seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/config/run_config.h"
#include "train/record/metrics.h"

namespace eddy::training {

// Whether the learning rate of a run follows its time.
bool follows_time(const TrainConfig& config);
// What it follows, as a sentence; empty where that is its steps alone.
std::string schedule_text(const TrainConfig& config);

class RunProgress {
 public:
  // seconds: trained before this process. last: progress of the last step done, NaN where there is none. recorded: the
  // steps after it that are done again.
  RunProgress(const TrainConfig& config, double seconds, double last, std::vector<StepProgress> recorded);

  // The progress of the step after `step` steps that begins at `now`, with steps until `steps_end`; NaN where it is
  // that of the steps alone. Steps are asked for in their order.
  double of_step(std::int64_t step, double now, double steps_end);
  // Whether the step after `step` steps is done again with the progress that it had.
  bool is_recorded(std::int64_t step) const { return step < recorded_until_; }
  // Whether the time moved with the last step asked for: it has to be recorded.
  bool has_moved() const { return has_moved_; }

 private:
  std::int64_t steps_;
  bool follows_time_;
  double before_;
  double time_;  // the part of the time that is over, in force; NaN: not followed
  std::vector<StepProgress> recorded_;
  std::size_t next_ = 0;  // of recorded_
  std::int64_t recorded_until_ = 0;
  std::optional<double> first_;  // when the first step of this process began
  bool measures_ = false;        // a step that is not recorded was asked for
  bool has_moved_ = false;
};

}  // namespace eddy::training
