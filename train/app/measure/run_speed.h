// The speed of a run before it begins: some of its steps and one batch of its evaluation, timed on this machine now.
//
// The rates of products and of memory alone would not do: by them a step of a model whose recurrence has small kernels
// would be said to take down to a third of the time that it takes (docs/performance.md).
#pragma once

#include <cstdint>
#include <functional>

#include "train/app/measure/bench.h"
#include "train/plan/memory.h"

namespace eddy::app {

struct RunSpeed {
  // 2 operations per multiply-add; backward counts twice forward, as in `bench step`.
  double flops_per_token = 0;
  Timing step{};                  // units: seconds
  double evaluation_seconds = 0;  // of one batch
  std::int64_t tokens = 0;        // of a step

  double tokens_per_second() const { return static_cast<double>(tokens) / step.median; }
};

// Times steps for about so many seconds, at least three of them; only one where a single step takes longer. `progress`
// gets the part of the seconds that is over.
// errors: those of train_step; OutOfMemoryError.
RunSpeed measure_run_speed(const training::PlannedRun& run, double seconds,
                           const std::function<void(double)>& progress = {});

// The seconds that a run takes to its end at a speed; samples, saves and other programs come on top.
struct RunTime {
  double training = 0;
  double evaluating = 0;
  bool whole = true;  // false: without evaluations of a whole split, whose size is not known

  double seconds() const { return training + evaluating; }
};
RunTime time_of_run(const training::PlannedRun& run, const training::Task& task, const RunSpeed& speed);

}  // namespace eddy::app
