// The schedules' formulas.
#include "models/optimizer/schedule.h"

#include <algorithm>
#include <cmath>

namespace eddy {
namespace {

constexpr double kPi = 3.14159265358979323846;

// rsqrt and block_cosine: the share of the warm-up times the schedule at max(t, W).
double block_recurrent_rate(const TrainConfig& config, double t) {
  const double warmup = static_cast<double>(config.warmup);
  const double share = warmup > 0 ? std::min(t, warmup) / warmup : 1;
  const double at = std::max(t, warmup);
  if (config.schedule == "rsqrt") return share * config.learning_rate / std::sqrt(std::max(at, 1.0));
  const double done = at / std::max(1.0, static_cast<double>(config.steps));
  const double low = config.min_learning_rate, high = config.learning_rate;
  return share *
         (done <= 1 ? low + (high - low) * 0.5 * (1 + std::cos(kPi * done)) : 2 * low * std::exp2(-done));
}

}  // namespace

double learning_rate_at(const TrainConfig& config, std::int64_t step) {
  if (config.schedule == "rsqrt" || config.schedule == "block_cosine")
    return block_recurrent_rate(config, static_cast<double>(step));
  if (step < config.warmup)
    return config.learning_rate * static_cast<double>(step + config.warmup_from) /
           static_cast<double>(config.warmup);
  if (config.schedule == "constant") return config.learning_rate;
  const double span = std::max(1.0, static_cast<double>(config.steps - config.warmup));
  const double done = std::min(1.0, static_cast<double>(step - config.warmup) / span);
  const double share = config.schedule == "cosine" ? 0.5 * (1 + std::cos(kPi * done)) : 1 - done;
  return config.min_learning_rate + (config.learning_rate - config.min_learning_rate) * share;
}

}  // namespace eddy
