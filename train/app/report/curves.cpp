// Reads the metrics of runs, and draws their medians and bands.
#include "train/app/report/curves.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "train/app/views/chart.h"
#include "train/record/run_series.h"
#include "train/run/run_folder.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

// The runs that were evaluated at a step: the lowest, the median and the highest value.
struct ValueRange {
  double step = 0, low = 0, middle = 0, high = 0;
};

std::vector<ValueRange> ranges_of(const CurveGroup& group) {
  std::map<double, std::vector<double>> values;
  for (const Series& curve : group.curves)
    for (std::size_t i = 0; i < curve.x.size(); ++i)
      if (std::isfinite(curve.y[i])) values[curve.x[i]].push_back(curve.y[i]);
  std::vector<ValueRange> ranges;
  for (auto& [step, all] : values) {
    if (all.size() < group.curves.size()) continue;  // one run of several says nothing of the others
    std::sort(all.begin(), all.end());
    const std::size_t half = all.size() / 2;
    const double middle = all.size() % 2 == 1 ? all[half] : (all[half - 1] + all[half]) / 2;
    ranges.push_back({step, all.front(), middle, all.back()});
  }
  if (ranges.size() < 2)
    fail<ValueError>("draw: the runs of \"{}\" have {} {} at the same step (at least 2)", group.name,
                     ranges.size(), plural(ranges.size(), "evaluation"));
  return ranges;
}

// Whether a curve has all points of another, and perhaps more behind them.
bool begins_as(const Series& longer, const Series& shorter) {
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  return longer.x.size() >= shorter.x.size() &&
         std::equal(shorter.x.begin(), shorter.x.end(), longer.x.begin()) &&
         std::equal(shorter.y.begin(), shorter.y.end(), longer.y.begin(), same);
}

}  // namespace

Series curve_of(const std::string& run, const std::string& measure) {
  const RunSeries records = RunSeries::read(fs::path(run) / "metrics.jsonl");
  Series curve = records.evaluations(measure, run);
  if (curve.x.empty()) {
    std::string others = "loss";
    for (const std::string& name : records.measures())
      if (!records.evaluations(name).x.empty()) others += ", " + name;
    fail<ValueError>("draw: no evaluation of {} has \"{}\" (those of the run have: {})", run, measure,
                     others);
  }
  return curve;
}

std::vector<std::string> runs_in(const std::string& folder, const char* command) {
  std::error_code error;
  if (fs::is_regular_file(fs::path(folder) / "metrics.jsonl", error)) return {folder};
  std::vector<std::string> runs;  // read_runs says that one without metrics.jsonl is left out
  for (const fs::path& run : run_folders_in(folder, error)) runs.push_back(run.string());
  if (runs.empty() && error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory)
    fail<IoError>("{}: {} cannot be read: {} (give yourself the right to read it)", command, folder,
                  error.message());
  if (runs.empty() && is_run_folder(folder))
    fail<IoError>(
        "{}: {} is a run without metrics.jsonl, which has what a run recorded ({} eval measures its model)",
        command, folder, program_name());
  if (runs.empty()) fail<IoError>("{}: {} is no run and holds none (name a folder of runs)", command, folder);
  return runs;
}

std::vector<Series> curves_of(const std::string& folder, const std::string& measure) {
  struct Curve {
    Series shown, losses;
  };
  const std::vector<Curve> all = read_runs(runs_in(folder, "draw"), [&](const std::string& run) {
    return Curve{curve_of(run, measure), curve_of(run, "loss")};
  });
  std::vector<Series> curves;
  for (auto curve = all.begin(); curve != all.end(); ++curve) {
    const auto longer = std::find_if(all.begin(), all.end(), [&](const Curve& other) {
      return begins_as(other.losses, curve->losses) &&
             (&other < &*curve || other.losses.x.size() > curve->losses.x.size());
    });
    if (longer == all.end())
      curves.push_back(curve->shown);
    else
      add_warning(fmt::format(
          "the run {} is left out: its losses are those of {} (a copy, or a second run of one seed)",
          curve->shown.name, longer->shown.name));
  }
  return curves;
}

std::optional<std::int64_t> step_for_good(const Series& curve, double level, bool less) {
  const auto reaches = [&](double value) { return less ? value <= level : value >= level; };
  std::optional<std::int64_t> step;
  for (std::size_t i = curve.x.size(); i-- > 0 && reaches(curve.y[i]);)
    step = static_cast<std::int64_t>(curve.x[i]);
  return step;
}

std::optional<std::int64_t> step_for_good(const CurveGroup& group, double level, std::int64_t runs,
                                          bool less) {
  std::vector<std::int64_t> steps;
  for (const Series& curve : group.curves)
    if (const auto step = step_for_good(curve, level, less)) steps.push_back(*step);
  if (runs < 1 || std::ssize(steps) < runs) return std::nullopt;
  std::sort(steps.begin(), steps.end());
  return steps[static_cast<std::size_t>(runs - 1)];
}

Chart chart_of_groups(const std::vector<CurveGroup>& groups, const std::string& measure,
                      const std::string& title) {
  if (groups.empty()) fail<ValueError>("draw: there are no runs (name at least one)");
  const bool bands = std::any_of(groups.begin(), groups.end(),
                                 [](const CurveGroup& group) { return group.curves.size() > 1; });
  Chart chart{
      title,
      "training step",
      with_spaces(measure) + (bands ? ": the median, and a band from the worst to the best seed" : ""),
      false,
      false,
      {}};
  double low = INFINITY, high = -INFINITY;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto colour = static_cast<int>(i);
    const std::size_t runs = groups[i].curves.size();
    const std::vector<ValueRange> ranges = ranges_of(groups[i]);
    Series line{groups[i].name, {}, {}, SeriesStyle::line, colour},
        band{"", {}, {}, SeriesStyle::band, colour};
    for (const ValueRange& range : ranges) {
      line.add(range.step, range.middle);
      band.add(range.step, range.high);
      low = std::min(low, range.low);
      high = std::max(high, range.high);
    }
    if (runs > 1) {
      for (std::size_t k = ranges.size(); k-- > 0;) band.add(ranges[k].step, ranges[k].low);
      line.name += fmt::format("\n{} seeds", runs);
      chart.series.push_back(std::move(band));
    }
    chart.series.push_back(std::move(line));
  }
  chart.percent = low >= 0 && high <= 1;
  return chart;
}

std::string draw_curves(const std::vector<CurveGroup>& groups, const std::string& measure,
                        const std::string& title) {
  return chart_picture(chart_of_groups(groups, measure, title));
}

}  // namespace eddy::app
