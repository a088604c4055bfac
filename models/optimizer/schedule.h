// Learning-rate schedules.
#pragma once

#include <cstdint>

#include "train/config/run_config.h"

namespace eddy {

// The learning rate of optimizer step `step`, counted from 0. With W = warmup and T = steps:
//
//   constant, cosine, linear  rise in a line over W steps, then stay, or fall to min_learning_rate at the
//   last
//                             step. warmup_from 1: step k, counted from 1, has the share min(1, k / W);
//                             warmup_from 0: counted from 0, so the first step has the rate 0.
//   rsqrt                     min(t, W) / W * learning_rate / sqrt(max(t, W)), t from 0
//   block_cosine              min(t, W) / W * (min + (max - min) (1 + cos(pi s / T)) / 2), s = max(t, W), t
//                             from 0; beyond T: 2 min 2^(-s / T)
//
// A warmup of 0 is none.
// source: the last two: Hutchins et al., "Block-recurrent transformers" (2022), as in the authors' code.
double learning_rate_at(const TrainConfig& config, std::int64_t step);

}  // namespace eddy
