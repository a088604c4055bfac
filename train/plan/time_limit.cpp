// The arithmetic of a limited run.
#include "train/plan/time_limit.h"

#include <limits>

namespace eddy::training {
namespace {

constexpr double kMostOfPart = 0.25, kMostOfFirstSample = 0.02, kMostOfLastSample = 0.05;
constexpr double kForever = std::numeric_limits<double>::infinity();

}  // namespace

void TimeLimit::note_step(double seconds, std::int64_t tokens) {
  step_ = seconds;
  if (tokens > 0) token_ = seconds / static_cast<double>(tokens);
}

void TimeLimit::note_evaluation(double seconds, std::int64_t tokens, std::int64_t of) {
  evaluation_ = seconds;
  whole_ = tokens > 0 && tokens < of ? seconds * static_cast<double>(of) / static_cast<double>(tokens) : 0;
}

void TimeLimit::plan_evaluation(std::int64_t tokens, bool then_whole) {
  evaluated_tokens_ = tokens;
  then_whole_ = then_whole;
}

// The best checkpoint is saved once more, after its evaluation. Before the first evaluation, its tokens count as those
// of a step: they need a third of the operations, and on a busy machine more of the time.
double TimeLimit::closing() const {
  double seconds = 2 * save_ + report_ + std::min(sample_, kMostOfLastSample * limit_);
  if (evaluated_tokens_ > 0)
    seconds += evaluation_ > 0 ? evaluation_ : token_ * static_cast<double>(evaluated_tokens_);
  if (then_whole_ && whole_ <= kCheapWhole * limit_) seconds += whole_;
  return std::min(seconds, kMostClosing * limit_);
}

bool TimeLimit::step_fits(double now) const {
  return !is_set() || (now < steps_end() && now + step_ <= steps_end() + kSlack * limit_);
}

double TimeLimit::end() const {
  return is_set() ? (1 + kSlack) * limit_ : kForever;
}

double TimeLimit::end_of_part(double now) const {
  return is_set() ? std::min(end(), now + kMostOfPart * limit_) : kForever;
}

double TimeLimit::end_of_first_sample(double now) const {
  return is_set() ? now + kMostOfFirstSample * limit_ : kForever;
}

}  // namespace eddy::training
