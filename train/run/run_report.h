// What a run tells its report and its records: the data of its page, where it stands, and the record that begins
// metrics.jsonl.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "train/run/metrics.h"
#include "train/run/metrics_summary.h"
#include "train/run/report.h"
#include "train/run/run_start.h"

namespace eddy {

// The record that says what a run trains, at its present step.
RunRecord record_of(const ReadyRun& run);

// The numbers of a record that TensorBoard shows, by name; none for other kinds of records.
std::vector<std::pair<std::string, double>> numbers_of(const StepRecord& record);
std::vector<std::pair<std::string, double>> numbers_of(const EvalRecord& record);
template <class Record>
std::vector<std::pair<std::string, double>> numbers_of(const Record&) {
  return {};
}

// How often the run has read its text; 0 where it has none.
double passes_of(const ReadyRun& run);
// Whether more steps will help; empty for a task without a text, and before the first step.
std::string standing_of(const ReadyRun& run, const MetricsSummary& records);

// The data of the run's page, but for its time and the sections of its task.
ReportData report_data(const ReadyRun& run, const MetricsSummary& records);

}  // namespace eddy
