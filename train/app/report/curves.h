// Curves of several runs in one picture: of each group of runs, which differ in their seed alone, the median and a band
// from the worst to the best; and from which step on how many of them are right for good.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/record/figures.h"

namespace eddy::app {

// Curves of runs by step: "loss", or a measure beside it (RunSeries::evaluations in train/record/run_series.h).
struct CurveGroup {
  std::string name;
  std::vector<training::Series> curves;
};

// The curve of a run's folder, which is its name.
// errors: IoError where its metrics cannot be read; ValueError, which names the measures that it has,
// for a measure that no evaluation has.
training::Series curve_of(const std::string& run, const std::string& measure);
// The folders of runs that a path means: itself where it is a run, else all runs in it,
// sorted by name. `command` begins the error.
// errors: IoError for a folder without runs.
std::vector<std::string> runs_in(const std::string& folder, const char* command);
// The curves of a run's folder, or of all runs in a folder, sorted by name. Left out, with a warning, are runs that
// cannot be read or lack the measure (read_runs in train/record/run_series.h), and those whose losses are those of
// another: a copy, or a second run of one seed.
// errors: as curve_of, where no run is left; IoError for a folder without runs.
std::vector<training::Series> curves_of(const std::string& folder, const std::string& measure);

// The first step from which on all values of the curve reach `level`, from above where less is better;
// nullopt where the last one does not.
std::optional<std::int64_t> step_for_good(const training::Series& curve, double level, bool less = false);
// The step by which `runs` of the group reach `level` for good; nullopt where fewer do.
std::optional<std::int64_t> step_for_good(const CurveGroup& group, double level, std::int64_t runs,
                                          bool less = false);

// The chart: its heading is the title of y, and the names of the lines say how many seeds there are. Values that are
// never above 1 are drawn as shares, in percent.
// errors: ValueError where no two evaluations of a group are at the same step.
training::Chart chart_of_groups(const std::vector<CurveGroup>& groups, const std::string& measure,
                                const std::string& title);
// The same as a picture in a file of its own (chart_picture in train/app/views/chart.h).
std::string draw_curves(const std::vector<CurveGroup>& groups, const std::string& measure,
                        const std::string& title);

}  // namespace eddy::app
