// Reads the metrics of runs, and draws their medians and bands.
#include "train/app/report/curves.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tensor/base/format.h"
#include "train/app/views/svg_picture.h"
#include "train/record/metrics.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

// Of the runs that were evaluated at a step.
struct Spread {
  std::int64_t step = 0;
  double low = 0, middle = 0, high = 0;
};

std::vector<Spread> spreads_of(const CurveGroup& group) {
  std::map<std::int64_t, std::vector<double>> values;
  for (const Curve& curve : group.curves)
    for (std::size_t i = 0; i < curve.steps.size(); ++i)
      if (std::isfinite(curve.values[i])) values[curve.steps[i]].push_back(curve.values[i]);
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

std::string with_spaces(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

}  // namespace

Curve curve_of(const std::string& run, const std::string& measure) {
  Curve curve{.run = run, .steps = {}, .values = {}};
  std::string others = "loss";
  for (const EvalRecord& eval : read_metrics(fs::path(run) / "metrics.jsonl").evals) {
    if (eval.split != "valid" || eval.whole) continue;
    const auto found = std::find_if(eval.extras.begin(), eval.extras.end(),
                                    [&](const auto& extra) { return extra.first == measure; });
    if (measure != "loss" && found == eval.extras.end()) {
      for (const auto& [name, value] : eval.extras)
        if (others.find(name) == std::string::npos) others += ", " + name;
      continue;
    }
    curve.steps.push_back(eval.step);
    curve.values.push_back(measure == "loss" ? eval.loss : found->second);
  }
  if (curve.steps.empty())
    fail<ValueError>("draw: no evaluation of {} has \"{}\" (those of the run have: {})", run, measure,
                     others);
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
    if (is_run(entry->path())) runs.push_back(entry->path().string());
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

std::vector<Curve> curves_of(const std::string& folder, const std::string& measure) {
  std::vector<Curve> curves;
  for (const std::string& run : runs_in(folder, "draw")) curves.push_back(curve_of(run, measure));
  return curves;
}

bool less_is_better(const std::string& measure) {
  return measure.find("loss") != std::string::npos || measure.starts_with("bits_per") ||
         measure.find("perplexity") != std::string::npos;
}

std::optional<std::int64_t> step_for_good(const Curve& curve, double level, bool less) {
  const auto reaches = [&](double value) { return less ? value <= level : value >= level; };
  std::optional<std::int64_t> step;
  for (std::size_t i = curve.steps.size(); i-- > 0 && reaches(curve.values[i]);) step = curve.steps[i];
  return step;
}

std::optional<std::int64_t> step_for_good(const CurveGroup& group, double level, std::int64_t runs,
                                          bool less) {
  std::vector<std::int64_t> steps;
  for (const Curve& curve : group.curves)
    if (const auto step = step_for_good(curve, level, less)) steps.push_back(*step);
  if (runs < 1 || std::ssize(steps) < runs) return std::nullopt;
  std::sort(steps.begin(), steps.end());
  return steps[static_cast<std::size_t>(runs - 1)];
}

std::string draw_curves(const std::vector<CurveGroup>& groups, const std::string& measure,
                        const std::string& title) {
  constexpr int kWidth = 720, kHeight = 300;
  constexpr double kLeft = 60, kTop = 26, kPlotWidth = 470, kPlotHeight = 230, kLabelHeight = 18;
  std::vector<std::vector<Spread>> all;
  double low = INFINITY, high = -INFINITY;
  std::int64_t last = 0;
  for (const CurveGroup& group : groups) {
    all.push_back(spreads_of(group));
    for (const Spread& spread : all.back()) {
      low = std::min(low, spread.low);
      high = std::max(high, spread.high);
      last = std::max(last, spread.step);
    }
  }
  if (groups.empty()) fail<ValueError>("draw: there are no runs (name at least one)");
  const bool share = low >= 0 && high <= 1;
  SvgPicture picture(kWidth, kHeight, title);
  const SvgFrame frame(kLeft, kTop, kPlotWidth, kPlotHeight,
                       make_axis(0, static_cast<double>(last), {.whole_steps = true}),
                       make_axis(low, high, {.round_ends = true}));
  frame.draw_axes(picture, share);
  const bool bands = std::any_of(groups.begin(), groups.end(),
                                 [](const CurveGroup& group) { return group.curves.size() > 1; });
  picture.text(
      {kLeft, 16}, SvgPicture::Anchor::start,
      with_spaces(measure) + (bands ? ": the median, and a band from the worst to the best seed" : ""));
  picture.text({kLeft + kPlotWidth / 2, kHeight - 6}, SvgPicture::Anchor::middle, "training step", "#444444");
  std::vector<std::pair<double, std::size_t>> ends;  // where the lines end, to label them
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<SvgPicture::Point> line, band;
    for (const Spread& spread : all[i]) {
      const auto step = static_cast<double>(spread.step);
      line.push_back(frame.at(step, spread.middle));
      band.push_back(frame.at(step, spread.high));
    }
    for (std::size_t k = all[i].size(); k-- > 0;)
      band.push_back(frame.at(static_cast<double>(all[i][k].step), all[i][k].low));
    if (groups[i].curves.size() > 1) picture.area(band, picture_colour(i));
    picture.polyline(line, picture_colour(i));
    ends.emplace_back(line.back().y, i);
  }
  std::stable_sort(ends.begin(), ends.end());
  double next = kTop;
  for (const auto& [y, i] : ends) {
    next = std::max(next, y);
    const std::size_t runs = groups[i].curves.size();
    picture.text({frame.right() + 8, next + 4}, SvgPicture::Anchor::start, groups[i].name, picture_colour(i));
    next += kLabelHeight;
    if (runs < 2) continue;
    picture.text({frame.right() + 8, next}, SvgPicture::Anchor::start, fmt::format("{} seeds", runs),
                 picture_colour(i));
    next += kLabelHeight;
  }
  return picture.svg();
}

}  // namespace eddy::app
