// A run as others see it while it trains, and when it has ended: what a report of it is made of.
#pragma once

#include <algorithm>
#include <optional>

#include "train/record/metrics_summary.h"
#include "train/record/progress.h"
#include "train/run/run_start.h"
#include "train/run/trainer.h"

namespace eddy::training {

struct RunView {
  const ReadyRun& run;
  const MetricsSummary& records;
  const Progress& progress;
  double seconds = 0;           // of training so far
  double every_s = 0;           // how soon it is shown again, while it trains
  std::optional<TrainEnd> end;  // how it ended
  bool failed = false;          // an error ended it
  // Whether the task's part (Task::report) is to be made anew: it may run the model. Else it stays as it was at the
  // last evaluation or checkpoint.
  bool whole = true;
};

// When a run that trains is shown again: not before a hundred times has passed what showing it took.
class ShowTimer {
 public:
  // Whether it is time, `now` in seconds from the beginning of the process.
  bool is_due(double now) const { return now >= next_; }
  // Notes that it was shown, or could not be, from `began` to `ended`.
  void note(double began, double ended) {
    interval_ = std::max(kLeastInterval, (ended - began) / kShare);
    next_ = ended + interval_;
  }
  // Seconds.
  double interval() const { return interval_; }

 private:
  static constexpr double kLeastInterval = 3;  // seconds: as soon as a reader notices
  static constexpr double kShare = 0.01;       // of the time, at most

  double interval_ = kLeastInterval, next_ = 0;
};

}  // namespace eddy::training
