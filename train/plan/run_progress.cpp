// Progress by steps and by time; that of steps which are done again is the recorded one.
#include "train/plan/run_progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/base/format.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

constexpr double kParts = 4096;

}  // namespace

bool follows_time(const TrainConfig& config) {
  return config.minutes > 0 && follows_end(config);
}

std::string schedule_text(const TrainConfig& config) {
  if (!follows_time(config)) return {};
  std::string text = fmt::format("the learning rate follows the {} {} or the {} steps, whichever end first: ",
                                 config.minutes, plural(config.minutes, "minute"), grouped(config.steps));
  if (config.warmup > 0)
    text += fmt::format("warm-up in the first {} %, then ",
                        human_number(100 * static_cast<double>(config.warmup) /
                                     static_cast<double>(std::max<std::int64_t>(config.steps, 1))));
  return text + config.schedule;
}

RunProgress::RunProgress(const TrainConfig& config, double seconds, double last,
                         std::vector<StepProgress> recorded)
    : steps_(config.steps),
      follows_time_(follows_time(config)),
      before_(seconds),
      time_(last),
      recorded_(std::move(recorded)) {
  for (const StepProgress& taken : recorded_)
    if (std::isfinite(taken.progress)) recorded_until_ = std::max(recorded_until_, taken.step);
}

double RunProgress::of_step(std::int64_t step, double now, double steps_end) {
  const double by_steps = steps_ > 0 ? static_cast<double>(step) / static_cast<double>(steps_) : 1;
  const double was = time_;
  if (!first_) first_ = now;
  if (is_recorded(step)) {
    for (; next_ < recorded_.size() && recorded_[next_].step <= step + 1; ++next_)
      time_ = recorded_[next_].progress;
  } else if (!follows_time_) {
    time_ = kNotMeasured;
  } else {
    if (!std::exchange(measures_, true)) time_ = 0;  // what was recorded is of another end
    const double all = before_ + steps_end - *first_;
    const double over = all > 0 ? std::clamp((before_ + now - *first_) / all, 0.0, 1.0) : 1;
    const double part = std::floor(kParts * over) / kParts;
    if (part > std::max(by_steps, time_)) time_ = part;
  }
  has_moved_ = time_ != was && (std::isfinite(time_) || std::isfinite(was));
  return std::isfinite(time_) ? std::max(by_steps, time_) : kNotMeasured;
}

}  // namespace eddy::training
