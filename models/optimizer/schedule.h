// Learning-rate schedules.
#pragma once

#include <cstdint>
#include <string>

namespace eddy {

// The name of a schedule, its rates, and its lengths in optimizer steps.
struct ScheduleOptions {
  std::string schedule = "constant";  // constant | cosine | linear | rsqrt | block_cosine
  double learning_rate = 1e-3;
  double min_learning_rate = 0.0;
  std::int64_t steps = 5000;
  std::int64_t warmup = 0;       // steps of the linear rise at the start; 0: none
  std::int64_t warmup_from = 1;  // number of the first step in the warm-up; with 0 its learning rate is 0

  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

// Returns the learning rate of optimizer step `step`, counted from 0. With W = warmup and T = steps:
//
//   constant, cosine, linear   a linear rise over W steps, then constant, or a fall to min_learning_rate at
//                              the last step.
//                              During the rise it is learning_rate (step + warmup_from) / W, so with
//                              warmup_from 0 the first step has rate 0.
//
//   rsqrt          min(t, W) / W * learning_rate / sqrt(max(t, W))
//
//   block_cosine   min(t, W) / W * (min + (max - min) (1 + cos(pi s / T)) / 2)
//                  with s = max(t, W), and 2 min 2^(-s / T) beyond T
//
// In the last two, t counts from 0, max is learning_rate and min is min_learning_rate. W = 0: no warm-up.
// source: the last two: Hutchins et al., "Block-recurrent transformers" (2022), as in the authors' code.
double learning_rate_at(const ScheduleOptions& options, std::int64_t step);

}  // namespace eddy
