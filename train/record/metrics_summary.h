// The records of a run of any length in bounded memory, for its report: while there are few all of them, then
// evenly spaced ones. What stands out is not lost: spikes of loss and gradient norm, the best evaluation, the last
// record of each kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "train/record/metrics.h"

namespace eddy::training {

// Evenly spaced records: every `factor`-th of those kept goes when there are `most`.
template <class Record>
class EvenlySpaced {
 public:
  explicit EvenlySpaced(std::size_t most, std::int64_t factor) : most_(most), factor_(factor) {}

  void add(const Record& record) {
    if (count_ % stride_ == 0) {
      if (kept_.size() >= most_) thin();
      if (count_ % stride_ == 0) kept_.push_back(record);
    }
    last_ = record;
    ++count_;
  }
  const std::optional<Record>& last() const { return last_; }
  std::int64_t count() const { return count_; }
  // Those kept, and the last one.
  std::vector<Record> records() const {
    std::vector<Record> all = kept_;
    if (last_ && (count_ - 1) % stride_ != 0) all.push_back(*last_);
    return all;
  }

 private:
  void thin() {
    const auto factor = static_cast<std::size_t>(factor_);
    for (std::size_t i = 0; i * factor < kept_.size(); ++i) kept_[i] = kept_[i * factor];
    kept_.resize((kept_.size() + factor - 1) / factor);
    stride_ *= factor_;
  }

  std::size_t most_;
  std::int64_t factor_, stride_ = 1, count_ = 0;
  std::vector<Record> kept_;
  std::optional<Record> last_;
};

class MetricsSummary {
 public:
  void add(const RunRecord& record) { run_ = record; }
  void add(const StepRecord& record);
  void add(const EvalRecord& record);
  void add(const SampleRecord& record);
  void add(const EventRecord& record);
  void add(const CommandRecord& record);
  // A whole line that is no record, and why.
  void add_foreign(const std::string& problem);

  // The last evaluation that is not of the whole split beside others of a sample, and the last one that is.
  const std::optional<EvalRecord>& last_evaluation() const { return last_evaluation_; }
  const std::optional<EvalRecord>& last_whole() const { return last_whole_; }
  const std::optional<SampleRecord>& last_sample() const { return samples_.last(); }
  const std::optional<RunRecord>& run() const { return run_; }
  // All that is kept.
  Metrics metrics() const;

 private:
  // Consecutive records of steps: the first, with the most memory of any, and those that stand out.
  struct Stretch {
    StepRecord first, highest_loss, highest_norm;
  };
  static void join(Stretch& stretch, const Stretch& next);

  std::optional<RunRecord> run_;
  std::vector<Stretch> stretches_;
  std::int64_t stride_ = 1, steps_ = 0;  // records of a stretch, and of all
  std::deque<StepRecord> last_steps_;
  EvenlySpaced<EvalRecord> evals_{4096, 3};  // a third, since those of two splits may alternate
  std::optional<EvalRecord> best_, last_evaluation_, last_whole_;
  EvenlySpaced<SampleRecord> samples_{64, 2};
  std::vector<EventRecord> events_;
  std::vector<CommandRecord> commands_;
  std::int64_t earlier_events_ = 0, foreign_ = 0;
  std::string first_foreign_;
};

}  // namespace eddy::training
