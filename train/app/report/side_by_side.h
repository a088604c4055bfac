// Any number of runs side by side: their curves, what differs in their configurations, and where they ended. Runs that
// differ in train.seed alone are one group, of which the mean and a band from the lowest to the highest are shown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/app/views/chart.h"
#include "train/app/views/html_page.h"
#include "train/app/views/step_timeline.h"
#include "train/app/views/table.h"
#include "train/config/run_config.h"
#include "train/files/output_file.h"
#include "train/record/run_series.h"

namespace eddy::app {

struct ReportedRun {
  std::string name, folder;
  training::RunConfig config;  // the defaults in a program's own loop
  bool user_loop = false;      // train/loops/user_loop.h
  training::RunSeries series;
  // As metrics.jsonl has them; where it has none, as they follow from the configuration.
  training::RunRecord facts;
};

// Reads a run, which may be training. `name` is the folder's.
// errors: IoError and FormatError where its configuration or its metrics cannot be read.
ReportedRun read_reported_run(const std::string& folder);
// The same of several folders (read_runs in train/record/run_series.h). Runs whose folders have one name are called by
// their paths.
// errors: those of the first folder where no run can be read.
std::vector<ReportedRun> read_reported_runs(const std::vector<std::string>& folders);

// Runs that differ in their seed alone, as indices; each run is in one group (groups_by_seed).
struct SeedGroup {
  std::string name;
  std::vector<std::size_t> runs;
};
std::vector<SeedGroup> groups_of(const std::vector<ReportedRun>& runs);
// What to say of each run that is a group of its own although others differ in their seed alone: one with the
// configuration and the seed of an earlier one, and one that has recorded nothing yet.
std::vector<std::string> listed_apart(const std::vector<ReportedRun>& runs);

// A row for each run, and above those of a group one with their means and ranges: parameters, state, steps, tokens,
// losses, time and speed. They are those of the last step that metrics.jsonl has.
Table ends_of(const std::vector<ReportedRun>& runs, const std::vector<SeedGroup>& groups);
// The keys whose values are not the same in all runs, with those of each group.
Table differences_of(const std::vector<ReportedRun>& runs, const std::vector<SeedGroup>& groups);

// The curves of all groups: the losses, and each measure beside them. Runs that do not say how far they were have none
// against anything but steps.
std::vector<training::Chart> curves_of_groups(const std::vector<ReportedRun>& runs,
                                              const std::vector<SeedGroup>& groups, XAxis axis);

// All of it as a page; with a status that is written again, one that loads itself again.
std::string side_by_side_page(const std::vector<ReportedRun>& runs, const std::vector<SeedGroup>& groups,
                              const std::optional<PageStatus>& status = {});

// All points of the runs as comma-separated values (RFC 4180), one to a line: run, measure, step, tokens, operations,
// seconds, value. What is not known is empty.
std::string points_csv(const std::vector<ReportedRun>& runs);
// A file that holds those, or nothing else than Eddy's page would replace.
extern const training::OutputKind kPointsFile;

}  // namespace eddy::app
