// The report of a run as one self-contained page, `report.html`: key numbers, charts, samples, settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/app/views/html_page.h"
#include "train/config/run_config.h"
#include "train/record/figures.h"
#include "train/record/metrics.h"
#include "train/text/baselines.h"

namespace eddy::app {

struct ReportData {
  std::string title;
  std::optional<PageStatus> status;
  std::int64_t parameters = 0;           // 0: not shown
  training::RunConfig config;            // what differs from the defaults is shown, the rest folded
  std::vector<std::string> environment;  // "name: value" each: machine, threads, BLAS
  training::Metrics metrics;
  std::int64_t phase_began = -1;  // the best loss is one after this step: those before are of other texts
  std::int64_t tokens_seen = 0;   // 0: not shown
  double seconds = training::kNotMeasured;       // of training; NaN: not shown
  std::optional<training::Baselines> baselines;  // of a task on text
  double epochs = 0;                             // of the text; 0: not shown
  std::string learning_verdict;  // learning_verdict (train/eval/learning_verdict.h); empty: not shown
  std::vector<training::ReportSection> sections;  // the task's own, after the samples
};

// The report as HTML. It works with any number of records, even none, and with values that are not finite.
std::string render_report(const ReportData& data);

// Writes `report.html` into the folder of a run and returns its path; an older report is replaced atomically.
// errors: IoError, also for a report.html that is not Eddy's.
std::filesystem::path write_report(const std::filesystem::path& run_dir, const ReportData& data);

}  // namespace eddy::app
