// The schedules' formulas.
#include "models/optimizer/schedule.h"

#include <algorithm>
#include <cmath>

namespace eddy {
namespace {

constexpr double kPi = 3.14159265358979323846;

// rsqrt and block_cosine: the share of the warm-up times the schedule at max(t, W).
double block_recurrent_rate(const ScheduleOptions& options, double t) {
  const double warmup = static_cast<double>(options.warmup);
  const double share = warmup > 0 ? std::min(t, warmup) / warmup : 1;
  const double at = std::max(t, warmup);
  if (options.schedule == "rsqrt") return share * options.learning_rate / std::sqrt(std::max(at, 1.0));
  const double done = at / std::max(1.0, static_cast<double>(options.steps));
  const double low = options.min_learning_rate, high = options.learning_rate;
  return share *
         (done <= 1 ? low + (high - low) * 0.5 * (1 + std::cos(kPi * done)) : 2 * low * std::exp2(-done));
}

}  // namespace

double learning_rate_at(const ScheduleOptions& options, std::int64_t step) {
  if (options.schedule == "rsqrt" || options.schedule == "block_cosine")
    return block_recurrent_rate(options, static_cast<double>(step));
  if (step < options.warmup)
    return options.learning_rate * static_cast<double>(step + options.warmup_from) /
           static_cast<double>(options.warmup);
  if (options.schedule == "constant") return options.learning_rate;
  const double span = std::max(1.0, static_cast<double>(options.steps - options.warmup));
  const double done = std::min(1.0, static_cast<double>(step - options.warmup) / span);
  const double share = options.schedule == "cosine" ? 0.5 * (1 + std::cos(kPi * done)) : 1 - done;
  return options.min_learning_rate + (options.learning_rate - options.min_learning_rate) * share;
}

}  // namespace eddy
