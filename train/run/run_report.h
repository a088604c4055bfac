// What a run tells its report and its records: the data of its page, where it stands, and the record that begins
// metrics.jsonl.
#pragma once

#include <string>

#include "train/record/metrics.h"
#include "train/record/metrics_summary.h"
#include "train/run/report.h"
#include "train/run/run_start.h"

namespace eddy {

// What follows from a configuration alone: the model, its sizes and costs, the text.
// errors: those of the registry for a model that it cannot make.
RunRecord facts_of(const RunConfig& config);
// The record that says what a run trains, at its present step.
RunRecord record_of(const ReadyRun& run);

// How often the run has read its text; 0 where it has none.
double passes_of(const ReadyRun& run);
// Whether more steps will help; empty for a task without a text, and before the first step.
std::string standing_of(const ReadyRun& run, const MetricsSummary& records);

// The page of a run, written again while it trains. What it costs does not grow with the run: the page is made from the
// records in memory, whose number has a bound (metrics_summary.h), and nothing is read back; the sections of the task,
// which may run the model, stay as they were at the last evaluation or checkpoint. And it is not written again before
// a hundred times has passed what it took.
class LiveReport {
 public:
  // Whether it is time to write it again, `now` in seconds from the beginning of the process.
  bool is_due(double now) const { return now >= next_; }

  // Writes the page. `status` says how the run stands; one that ended is not written again. `whole`: with new
  // sections of the task. `seconds`: of training so far.
  // errors: those of write_report, and of Task::report.
  void write(const ReadyRun& run, const MetricsSummary& records, PageStatus status, double seconds,
             bool whole);
  // Notes that a page was written, or could not be, from `began` to `ended`.
  void note(double began, double ended);

 private:
  static constexpr double kLeastInterval = 3;  // seconds: as soon as a reader notices
  static constexpr double kShare = 0.01;       // of the time, at most

  double interval_ = kLeastInterval, next_ = 0;
  std::string sections_;
};

}  // namespace eddy
