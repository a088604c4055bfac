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
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

// Of the runs that were evaluated at a step.
struct Spread {
  double step = 0, low = 0, middle = 0, high = 0;
};

std::vector<Spread> spreads_of(const CurveGroup& group) {
  std::map<double, std::vector<double>> values;
  for (const Series& curve : group.curves)
    for (std::size_t i = 0; i < curve.x.size(); ++i)
      if (std::isfinite(curve.y[i])) values[curve.x[i]].push_back(curve.y[i]);
  std::vector<Spread> spreads;
  for (auto& [step, all] : values) {
    if (all.size() < group.curves.size()) continue;  // one run of several says nothing of the others
    std::sort(all.begin(), all.end());
    const std::size_t half = all.size() / 2;
    const double middle = all.size() % 2 == 1 ? all[half] : (all[half - 1] + all[half]) / 2;
    spreads.push_back({step, all.front(), middle, all.back()});
  }
  if (spreads.size() < 2)
    fail<ValueError>("draw: the runs of \"{}\" have {} {} at the same step (at least 2)", group.name,
                     spreads.size(), plural(spreads.size(), "evaluation"));
  return spreads;
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
  const auto is_run = [&](const fs::path& path) {
    return fs::is_regular_file(path / "metrics.jsonl", error);
  };
  if (is_run(folder)) return {folder};
  std::vector<std::string> runs;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (is_run(entry->path()) || fs::is_directory(entry->path() / "checkpoints", error))
      runs.push_back(entry->path().string());  // read_runs says that one without metrics.jsonl is left out
  if (runs.empty() && error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory)
    fail<IoError>("{}: {} cannot be read: {} (give yourself the right to read it)", command, folder,
                  error.message());
  if (runs.empty() && fs::is_directory(fs::path(folder) / "checkpoints", error))
    fail<IoError>(
        "{}: {} is a run without metrics.jsonl, which has what a run recorded ({} eval measures its model)",
        command, folder, program_name());
  if (runs.empty()) fail<IoError>("{}: {} is no run and holds none (name a folder of runs)", command, folder);
  std::sort(runs.begin(), runs.end());
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

bool less_is_better(const std::string& measure) {
  return measure.find("loss") != std::string::npos || measure.starts_with("bits_per") ||
         measure.find("perplexity") != std::string::npos;
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
    const std::vector<Spread> spreads = spreads_of(groups[i]);
    Series line{groups[i].name, {}, {}, SeriesStyle::line, colour},
        band{"", {}, {}, SeriesStyle::band, colour};
    for (const Spread& spread : spreads) {
      line.add(spread.step, spread.middle);
      band.add(spread.step, spread.high);
      low = std::min(low, spread.low);
      high = std::max(high, spread.high);
    }
    if (runs > 1) {
      for (std::size_t k = spreads.size(); k-- > 0;) band.add(spreads[k].step, spreads[k].low);
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
