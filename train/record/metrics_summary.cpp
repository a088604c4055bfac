// Which records stay when there are many.
#include "train/record/metrics_summary.h"

#include <algorithm>
#include <cmath>

namespace eddy::training {
namespace {

constexpr std::size_t kMostStretches = 8192;  // even; a chart is a tenth as many points wide
constexpr std::size_t kLastSteps = 20;        // of which the report takes the final loss
constexpr std::size_t kMostEvents = 400;
constexpr std::size_t kMostCommands = 200;

// Whether a value stands out more: what is not finite does so most.
bool is_higher(double value, double than) {
  return std::isfinite(value) ? value > than : std::isfinite(than);
}

}  // namespace

void MetricsSummary::join(Stretch& stretch, const Stretch& next) {
  if (is_higher(next.highest_loss.loss, stretch.highest_loss.loss)) stretch.highest_loss = next.highest_loss;
  if (is_higher(next.highest_norm.grad_norm, stretch.highest_norm.grad_norm))
    stretch.highest_norm = next.highest_norm;
  for (std::int64_t StepRecord::*bytes : {&StepRecord::memory_bytes, &StepRecord::resident_bytes})
    stretch.first.*bytes = std::max(stretch.first.*bytes, next.first.*bytes);
  stretch.first.saved_bytes = std::max(stretch.first.saved_bytes, next.first.saved_bytes);
}

void MetricsSummary::add(const StepRecord& record) {
  if (stretches_.size() == kMostStretches && steps_ % stride_ == 0) {
    for (std::size_t i = 0; i < kMostStretches / 2; ++i) {
      stretches_[i] = stretches_[2 * i];
      join(stretches_[i], stretches_[2 * i + 1]);
    }
    stretches_.resize(kMostStretches / 2);
    stride_ *= 2;
  }
  const Stretch alone{record, record, record};
  if (steps_ % stride_ == 0)
    stretches_.push_back(alone);
  else
    join(stretches_.back(), alone);
  ++steps_;
  last_steps_.push_back(record);
  if (last_steps_.size() > kLastSteps) last_steps_.pop_front();
}

void MetricsSummary::add(const EvalRecord& record) {
  evals_.add(record);
  (record.whole ? last_whole_ : last_evaluation_) = record;
  if (is_better(record, best_ ? &*best_ : nullptr)) best_ = record;
}

void MetricsSummary::add(const SampleRecord& record) {
  samples_.add(record);
}

void MetricsSummary::add(const EventRecord& record) {
  if (events_.size() == kMostEvents) {
    events_.erase(events_.begin(), events_.begin() + kMostEvents / 2);
    earlier_events_ += kMostEvents / 2;
  }
  events_.push_back(record);
}

void MetricsSummary::add(const CommandRecord& record) {
  if (commands_.size() == kMostCommands) commands_.erase(commands_.begin() + 1);
  commands_.push_back(record);
}

void MetricsSummary::add_foreign(const std::string& problem) {
  if (foreign_++ == 0) first_foreign_ = problem;
}

Metrics MetricsSummary::metrics() const {
  Metrics all;
  all.run = run_;
  // The last ones are all there, the others one of each stretch.
  const std::int64_t before = steps_ - static_cast<std::int64_t>(last_steps_.size());
  for (std::size_t i = 0; static_cast<std::int64_t>(i) * stride_ < before; ++i) {
    const Stretch& stretch = stretches_[i];
    all.steps.push_back(stretch.first);
    for (const StepRecord* peak : {&stretch.highest_loss, &stretch.highest_norm})
      if (peak->step != stretch.first.step) all.peaks.push_back(*peak);
  }
  all.steps.insert(all.steps.end(), last_steps_.begin(), last_steps_.end());
  all.evals = evals_.records();
  if (best_) {
    const auto place = std::find_if(all.evals.begin(), all.evals.end(),
                                    [&](const EvalRecord& eval) { return eval.step >= best_->step; });
    if (place == all.evals.end() || place->step != best_->step) all.evals.insert(place, *best_);
  }
  all.samples = samples_.records();
  all.written_samples = samples_.count();
  all.events = events_;
  all.earlier_events = earlier_events_;
  all.commands = commands_;
  all.foreign = foreign_;
  all.first_foreign = first_foreign_;
  return all;
}

}  // namespace eddy::training
