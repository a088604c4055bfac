// The report of a run while it trains: `report.html` in its folder, written again and again.
#pragma once

#include <vector>

#include "train/app/report/report.h"
#include "train/record/figures.h"
#include "train/run/run_view.h"

namespace eddy::app {

// Writes the page of the run that the trainer shows (TrainRequest::show). What it costs does not grow with the run: the
// page is made from the records in memory, whose number has a bound (metrics_summary.h), and nothing is read back.
class LiveReport {
 public:
  // errors: those of write_report, and of Task::report.
  void operator()(const training::RunView& view);

 private:
  std::vector<training::ReportSection> sections_;  // as the task made them last
};

}  // namespace eddy::app
