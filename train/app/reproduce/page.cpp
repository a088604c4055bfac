// The numbers and the charts of a table.
#include "train/app/reproduce/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "tensor/base/error.h"
#include "train/app/measure/measurement.h"
#include "train/app/report/curves.h"
#include "train/app/reproduce/budget.h"
#include "train/app/reproduce/tuning.h"
#include "train/app/views/step_timeline.h"
#include "train/record/run_series.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

std::string number(double value) {
  return human_number(value, 5);
}

std::string published_cell(const Published& published) {
  if (!std::isfinite(published.value)) return published.remark;
  if (published.remark.empty()) return number(published.value);
  return fmt::format("{} ({})", number(published.value), published.remark);
}

// The rows that differ from this one by the seed alone, this one included, of those that have a result.
std::vector<const ShownRow*> group_of(const std::vector<ShownRow>& rows, const std::string& group) {
  std::vector<const ShownRow*> same;
  for (const ShownRow& row : rows)
    if (row.row->group == group && row.result) same.push_back(&row);
  return same;
}

// The mean over seeds and, for several, the standard deviation; NaN where nothing was measured.
struct SeedStatistics {
  double mean = kNotMeasured, deviation = kNotMeasured;
  std::size_t seeds = 0;
};
SeedStatistics statistics_of(const std::vector<const ShownRow*>& group, const std::string& key) {
  std::vector<double> values;
  for (const ShownRow* shown : group)
    if (const auto found = shown->result->values.find(key); found != shown->result->values.end())
      values.push_back(found->second);
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  SeedStatistics statistics{0, kNotMeasured, values.size()};
  for (const double value : values) statistics.mean += value / count;
  if (values.size() < 2) return statistics;
  double squares = 0;
  for (const double value : values) squares += (value - statistics.mean) * (value - statistics.mean);
  statistics.deviation = std::sqrt(squares / (count - 1));
  return statistics;
}

// The numbers of a column for a row and those of its group.
SeedStatistics measured_statistics(const ReproduceTable& table, const std::vector<ShownRow>& rows,
                                   const ShownRow& shown, const ReproduceColumn& column) {
  SeedStatistics measured = statistics_of(group_of(rows, shown.row->group), column.key);
  const double whole =
      column.relative ? statistics_of(group_of(rows, table.reference), column.key).mean : 1 / column.factor;
  measured.mean /= whole;
  measured.deviation /= whole;
  return measured;
}
double measured_value(const ReproduceTable& table, const std::vector<ShownRow>& rows, const ShownRow& shown,
                      const ReproduceColumn& column) {
  return measured_statistics(table, rows, shown, column).mean;
}

std::string measured_cell(const ReproduceTable& table, const std::vector<ShownRow>& rows,
                          const ShownRow& shown, const ReproduceColumn& column) {
  const std::size_t finished = group_of(rows, shown.row->group).size();
  if (finished == 0)
    return !shown.row->left_out.empty() ? "left out" : shown.row->tuning.diverged() ? "diverged" : "not run";
  const auto [mean, deviation, seeds] = measured_statistics(table, rows, shown, column);
  if (!std::isfinite(mean)) return "-";
  std::string cell = fmt::format("{:.{}f}", mean, column.decimals);
  // A whole number that no seed changes, such as that of parameters, has none. Its mean may be rounded.
  if (std::isfinite(deviation) && (column.decimals > 0 || deviation >= 0.5))
    cell += fmt::format(" ± {:.{}f}", deviation, column.decimals);
  const auto wanted = static_cast<std::size_t>(std::count_if(
      rows.begin(), rows.end(), [&](const ShownRow& one) { return one.row->group == shown.row->group; }));
  if (finished < wanted) cell += fmt::format(" ({} of {} seeds)", finished, wanted);
  return cell;
}

// Whether the first number is so much lower that seeds do not explain it: by more than twice the standard error of the
// difference of the means.
bool is_clearly_lower(const SeedStatistics& a, const SeedStatistics& b) {
  const auto variance = [](const SeedStatistics& s) {
    return s.deviation * s.deviation / static_cast<double>(s.seeds);
  };
  return b.mean - a.mean > 2 * std::sqrt(variance(a) + variance(b));
}

// Whether the rows of a table are ranked by a column: some have several seeds.
bool is_ranked(const ReproduceTable& table, const std::vector<ShownRow>& rows,
               const ReproduceColumn& column) {
  return !column.better.empty() && std::any_of(rows.begin(), rows.end(), [&](const ShownRow& shown) {
    return std::isfinite(measured_statistics(table, rows, shown, column).deviation);
  });
}

// "2", or the ranks that a row may have among those of several seeds: "2 to 4"; empty for a row of one.
std::string rank_cell(const ReproduceTable& table, const std::vector<ShownRow>& rows, const ShownRow& shown,
                      const ReproduceColumn& column) {
  const SeedStatistics measured = measured_statistics(table, rows, shown, column);
  if (!std::isfinite(measured.deviation)) return "";
  std::size_t better = 0, worse = 0, all = 0;
  std::string group;
  for (const ShownRow& other : rows) {
    if (std::exchange(group, other.row->group) == other.row->group) continue;
    const SeedStatistics its = measured_statistics(table, rows, other, column);
    if (!std::isfinite(its.deviation)) continue;
    const bool lower = is_clearly_lower(its, measured), higher = is_clearly_lower(measured, its);
    const bool less = value_is(column.better, Better::lower);
    better += (less ? lower : higher) ? 1 : 0;
    worse += (less ? higher : lower) ? 1 : 0;
    ++all;
  }
  const std::size_t best = better + 1, worst = all - worse;
  return best == worst ? fmt::format("{}", best) : fmt::format("{} to {}", best, worst);
}

// Whether the table has a number at lengths: that of the first column, where the task makes its data.
bool has_lengths_of(const ReproduceTable& table, const std::string& key) {
  return table.generated && !table.lengths.empty() && table.columns.front().key == key;
}

// Whether any row has a published number for a column.
bool is_published(const ReproduceTable& table, std::size_t column) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const ReproduceRow& row) {
    return column < row.published.size() && !published_cell(row.published[column]).empty();
  });
}

std::vector<Cell> cells_of(const ReproduceTable& table, const std::vector<ShownRow>& rows,
                           const ShownRow& shown) {
  std::vector<Cell> cells{shown.row->title};
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (is_published(table, i))
      cells.push_back(i < shown.row->published.size() ? published_cell(shown.row->published[i]) : "");
    cells.push_back(measured_cell(table, rows, shown, table.columns[i]));
    if (is_ranked(table, rows, table.columns[i]))
      cells.push_back(rank_cell(table, rows, shown, table.columns[i]));
  }
  const std::vector<const ShownRow*> group = group_of(rows, shown.row->group);
  std::string seeds;
  for (const ShownRow* one : group)
    seeds += fmt::format("{}{}", seeds.empty() ? "" : ", ", one->row->config.train.seed);
  cells.push_back(seeds.empty() ? std::to_string(shown.row->config.train.seed) : seeds);
  if (!group.empty()) {
    const RowResult& r = *group.front()->result;
    cells.insert(cells.end(), {std::to_string(r.step), human_count(static_cast<double>(r.tokens)),
                               human_duration(r.seconds)});
  } else {
    cells.insert(cells.end(), {"", "", ""});
  }
  return cells;
}

MeasuredTable numbers_of(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  MeasuredTable numbers;
  numbers.columns = {{"", "row"}};
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (is_published(table, i)) numbers.columns.push_back({"", table.columns[i].title + ", paper"});
    numbers.columns.push_back({"", table.columns[i].title + ", ours"});
    if (is_ranked(table, rows, table.columns[i])) numbers.columns.push_back({"", "rank"});
  }
  for (const char* title : {"seed", "steps", "tokens", "time"}) numbers.columns.push_back({"", title});
  std::string group;
  for (const ShownRow& shown : rows)
    if (std::exchange(group, shown.row->group) != shown.row->group) numbers.add(cells_of(table, rows, shown));
  return numbers;
}

// What was tried for each row and what won: a column for each combination of values, with the number after the most
// steps that it was trained for.
MeasuredTable tried_of(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  MeasuredTable tried;
  tried.title =
      fmt::format("What was tried: {} on the split valid, {} is better", table.tune.by, table.tune.better);
  std::vector<std::vector<std::string>> values;
  std::string group;
  for (const ShownRow& shown : rows)
    for (const Trial& trial : shown.row->tuning.done)
      if (std::find(values.begin(), values.end(), trial.values) == values.end())
        values.push_back(trial.values);
  tried.columns = {{"", "row"}, {"", "best"}, {"", "on the border"}};
  for (const std::vector<std::string>& one : values)
    tried.columns.push_back({"", tuned_text(table.tune, one)});
  for (const ShownRow& shown : rows) {
    if (std::exchange(group, shown.row->group) == shown.row->group || !shown.row->weights_of.empty())
      continue;
    const RowTuning& tuning = shown.row->tuning;
    std::vector<Cell> cells{shown.row->title};
    cells.emplace_back(!tuning.best.empty() ? tuned_text(table.tune, tuning.best)
                       : tuning.diverged()  ? "none: all diverged"
                                            : "not tuned yet");
    const std::vector<std::string> border = keys_on_border(table.tune, tuning.best);
    cells.emplace_back(tuning.best.empty() ? ""
                       : border.empty()    ? "no"
                                           : fmt::format("{}", fmt::join(border, ", ")));
    for (const std::vector<std::string>& one : values) {
      std::string cell;
      for (const Trial& trial : tuning.done)
        if (trial.values == one)
          cell = fmt::format("{} after {} steps",
                             std::isfinite(trial.score) ? number(trial.score) : "diverged", trial.steps);
      cells.emplace_back(cell);
    }
    tried.add(std::move(cells));
  }
  return tried;
}

// The notes of the table, and by which rules its numbers are made.
std::vector<std::string> notes_of(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  std::vector<std::string> notes = table.notes;
  notes.push_back(budget_text(table));
  if (table.by_split())
    notes.push_back(fmt::format(
        "the best step of each run is that of the lowest loss on the split valid{}; the "
        "numbers are of the split {}",
        table.tune.keys.empty() ? "" : ", and so are the tuned values", value_name(table.evaluation.split)));
  if (std::any_of(table.columns.begin(), table.columns.end(),
                  [&](const ReproduceColumn& column) { return is_ranked(table, rows, column); }))
    notes.emplace_back(
        "ranks: two rows tie unless the difference of their means exceeds twice its standard error, sqrt(s1^2/n1 + "
        "s2^2/n2), of deviations s over n seeds; a row of one seed has no rank");
  return notes;
}

// A table of its own: these cells are long and would leave no room for numbers beside them. `quote` encloses the
// commands.
MeasuredTable runs_of(const std::vector<ShownRow>& rows, const std::string& quote) {
  MeasuredTable runs;
  runs.columns = {{"", "row"}, {"", "command"}, {"", "device"}};
  for (const ShownRow& shown : rows)
    runs.add({shown.row->title, quote + shown.command + quote, shown.result ? shown.result->device : ""});
  return runs;
}

std::vector<std::string> remarks_of(const std::vector<ShownRow>& rows) {
  std::vector<std::string> lines;
  std::string left_out;  // the group of the last that was
  for (const ShownRow& shown : rows) {
    if (!shown.row->left_out.empty() && std::exchange(left_out, shown.row->group) != shown.row->group)
      lines.push_back(fmt::format("{}: left out: {}", shown.row->group, shown.row->left_out));
    if (!shown.result) continue;
    std::string line = fmt::format("{}: {} parameters", shown.row->name, grouped(shown.result->parameters));
    for (const std::string& remark : shown.result->remarks) line += "; " + remark;
    lines.push_back(std::move(line));
  }
  return lines;
}

// The records of a row; none where it has no file yet.
std::optional<RunSeries> records_of(const ShownRow& shown) {
  try {
    return RunSeries::read(fs::path(shown.folder) / "metrics.jsonl");
  } catch (const IoError&) {  // the table needs none
    return std::nullopt;
  }
}

// Where the run of a row stood at each of its steps.
StepTimeline timeline_of(const ShownRow& shown, const RunSeries& run) {
  double flops = kNotMeasured;
  if (shown.result)
    if (const auto found = shown.result->values.find("flops_per_token"); found != shown.result->values.end())
      flops = found->second;
  return StepTimeline(run.step_records(), flops);
}

// The curves of all rows against one quantity, those of several seeds as one; rows that do not say how far they were
// have none.
std::vector<Chart> curves_against(XAxis axis, const ReproduceTable& table, const std::vector<ShownRow>& rows,
                                  const std::vector<std::optional<RunSeries>>& runs) {
  const std::string name = with_spaces(table.chart_key);
  const char* const x = axis_title(axis);
  Chart extra{name, x, name, false, false, {}};
  Chart valid{"Validation loss of all rows", x, "loss, nats", false, false, {}};
  Chart training{"Training loss, running median", x, "loss, nats", false, false, {}};
  int colour = 0;
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end, ++colour) {
    std::vector<Series> losses, numbers, steps;
    for (; end < rows.size() && rows[end].row->group == rows[first].row->group; ++end) {
      if (!runs[end]) continue;
      const RunSeries& run = *runs[end];
      const StepTimeline timeline = timeline_of(rows[end], run);
      const auto drawn = [&](const Series& series) { return with_x_axis(series, timeline, axis); };
      losses.push_back(drawn(run.evaluations("loss")));
      numbers.push_back(drawn(run.evaluations(table.chart_key)));
      for (double& value : numbers.back().y) value *= table.chart_factor;
      steps.push_back(smoothed(drawn(run.steps(&StepRecord::loss))));
    }
    const std::string& title = rows[first].row->title;
    add_runs(valid, std::move(losses), title, colour);
    add_runs(extra, std::move(numbers), title, colour);
    add_runs(training, std::move(steps), title, colour);
  }
  std::vector<Chart> charts;
  if (!extra.series.empty()) charts.push_back(std::move(extra));
  charts.push_back(std::move(valid));
  charts.push_back(std::move(training));
  return charts;
}

MeasuredTable curves_of(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  std::vector<std::optional<RunSeries>> runs;
  for (const ShownRow& row : rows) runs.push_back(records_of(row));
  MeasuredTable curves;
  curves.title = "Curves";
  if (std::adjacent_find(rows.begin(), rows.end(), [](const ShownRow& a, const ShownRow& b) {
        return a.row->group == b.row->group;
      }) != rows.end())
    curves.notes = {
        "A row of several seeds is one line, their mean, in a band from the lowest to the highest."};
  for (const XAxis axis : kXAxes) {
    std::vector<Chart> charts = curves_against(axis, table, rows, runs);
    const bool empty =
        std::all_of(charts.begin(), charts.end(), [](const Chart& c) { return c.series.empty(); });
    if (axis == XAxis::steps || !empty) curves.against.push_back({axis_name(axis), std::move(charts)});
  }
  return curves;
}

// Charts the numbers at lengths against the length: ours and, from the same columns, the published ones.
MeasuredTable lengths_of(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  const std::string& first = table.columns.front().title;
  const std::string what = table.generated ? first.substr(0, first.find(',')) + ", by length"
                                           : "loss on the last targets, by length";
  const std::string unit = table.generated ? first : "loss, nats";
  Chart ours{what, "tokens of the window", unit, true, false, {}};
  Chart paper{"The same, as published", "tokens of the window", unit, true, false, {}};
  int colour = 0;
  std::string group;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::exchange(group, rows[i].row->group) == rows[i].row->group) continue;
    Series measured, published;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const ReproduceColumn& column = table.columns[c];
      if (column.length == 0) continue;
      const auto length = static_cast<double>(column.length);
      if (const double value = measured_value(table, rows, rows[i], column); std::isfinite(value))
        measured.add(length, value);
      if (c < rows[i].row->published.size() && std::isfinite(rows[i].row->published[c].value))
        published.add(length, rows[i].row->published[c].value);
    }
    add_runs(ours, {std::move(measured)}, rows[i].row->title, colour);
    add_runs(paper, {std::move(published)}, rows[i].row->title, colour);
    ++colour;
  }
  MeasuredTable lengths;
  lengths.title = "By length";
  for (Chart* chart : {&ours, &paper}) {
    for (Series& series : chart->series) series.style = SeriesStyle::line_points;
    if (!chart->series.empty()) lengths.charts.push_back(std::move(*chart));
  }
  return lengths;
}

// A pale bar of a logarithmic axis, one standard deviation above and below a point.
Series deviation_bar(double x, const SeedStatistics& y, int colour) {
  constexpr double kHalfWidth = 1.02;
  Series bar{"", {}, {}, SeriesStyle::band, colour};
  for (const double at : {x / kHalfWidth, x * kHalfWidth}) bar.add(at, y.mean + y.deviation);
  for (const double at : {x * kHalfWidth, x / kHalfWidth}) bar.add(at, y.mean - y.deviation);
  return bar;
}

// What a row learned, in one line: in how many seeds, by which step, and up to which length it holds. Of the seeds that
// did not, where they end and at which values: others were not tried.
std::string learned_line(const ReproduceTable& table, const std::vector<ShownRow>& rows,
                         const ShownRow& shown) {
  const std::vector<const ShownRow*> group = group_of(rows, shown.row->group);
  if (group.empty())
    return !shown.row->left_out.empty()   ? "left out"
           : shown.row->tuning.diverged() ? "diverged at all values that were tried"
                                          : "not run";
  const auto& [by, at, better, place] = table.learned;
  const bool less = value_is(better, Better::lower);
  const auto column = std::find_if(table.columns.begin(), table.columns.end(),
                                   [&](const ReproduceColumn& one) { return one.key == by; });
  std::vector<std::int64_t> steps;
  std::vector<double> ends;
  for (const ShownRow* one : group) {
    const std::optional<RunSeries> run = records_of(*one);
    const Series curve = run ? run->evaluations(by) : Series{};
    if (curve.y.empty()) return fmt::format("no evaluation has {}", by);
    if (const std::optional<std::int64_t> step = step_for_good(curve, at, less))
      steps.push_back(*step);
    else
      ends.push_back(curve.y.back());
  }
  const auto range = [](auto& values, const auto& text) {
    std::sort(values.begin(), values.end());
    const std::string low = text(values.front()), high = text(values.back());
    return low == high ? low : fmt::format("{} to {}", low, high);
  };
  std::string line = fmt::format("{} of {} {}", steps.size(), group.size(), plural(group.size(), "seed"));
  if (!steps.empty())
    line += ", by step " + range(steps, [](std::int64_t step) { return std::to_string(step); });
  if (!ends.empty()) {
    std::vector<std::string> tried;
    for (const ReproduceTune::Key& key : table.tune.keys)
      tried.push_back(fmt::format("{} of {}", key.key, fmt::join(key.values, ", ")));
    if (tried.empty())
      tried.push_back(fmt::format("train.learning_rate of {}", shown.row->config.train.learning_rate));
    const bool has_column = column != table.columns.end();
    const std::string ended = range(ends, [&](double value) {
      return has_column ? fmt::format("{:.{}f}", value * column->factor, column->decimals) : number(value);
    });
    line +=
        fmt::format("; {} at {} ({}), of what was tried: {}", steps.empty() ? "all end" : "the others end",
                    ended, has_column ? column->title : by, fmt::join(tried, "; "));
  }
  std::int64_t longest = 0;
  if (has_lengths_of(table, by))
    for (const ReproduceColumn& one : table.columns) {
      if (one.length == 0) continue;
      const double mean = measured_value(table, rows, shown, one) / one.factor;
      if (!(less ? mean <= at : mean >= at)) break;
      longest = one.length;
    }
  return longest > 0 ? line + fmt::format("; holds up to {} tokens", longest) : line;
}

MeasuredTable learned_of(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  MeasuredTable learned;
  learned.title = "In one line each";
  learned.columns = {{"", "row"}, {"", "learned in"}};
  std::string group;
  for (const ShownRow& shown : rows)
    if (std::exchange(group, shown.row->group) != shown.row->group && shown.row->weights_of.empty())
      learned.add({shown.row->title, learned_line(table, rows, shown)});
  learned.notes = {fmt::format(
      "Learned: from this evaluation of the split valid on, {} is at {} {:g} in all. The tuned values are those of the "
      "lowest loss; others may learn sooner.",
      table.learned.by, value_is(table.learned.better, Better::lower) ? "most" : "least", table.learned.at)};
  return learned;
}

// What one thing brings: the first column of each row less that of the row from which it differs in it.
MeasuredTable differences_of(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  const ReproduceColumn& column = table.columns.front();
  MeasuredTable differences;
  differences.title = "What one thing brings";
  differences.columns = {{"", "row"}, {"", "against"}, {"", column.title}, {"", "beyond the seeds"}};
  std::string group;
  for (const ShownRow& shown : rows) {
    if (std::exchange(group, shown.row->group) == shown.row->group || shown.row->against.empty()) continue;
    const auto other = std::find_if(
        rows.begin(), rows.end(), [&](const ShownRow& one) { return one.row->group == shown.row->against; });
    if (other == rows.end()) continue;  // not among the rows that were asked for
    const SeedStatistics measured = measured_statistics(table, rows, shown, column),
                         its = measured_statistics(table, rows, *other, column);
    const double difference = measured.mean - its.mean;
    const bool known = std::isfinite(measured.deviation) && std::isfinite(its.deviation);
    differences.add(
        {shown.row->title, other->row->title,
         std::isfinite(difference) ? fmt::format("{:+.{}f}", difference, column.decimals) : "not run",
         !known                                                               ? ""
         : is_clearly_lower(measured, its) || is_clearly_lower(its, measured) ? "yes"
                                                                              : "no"});
  }
  differences.notes = {"Beyond the seeds: by the rule of the ranks, the two rows do not tie."};
  return differences;
}

// What follows from the numbers, where the table asks for it.
std::vector<MeasuredTable> findings_of(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  std::vector<MeasuredTable> findings;
  if (!table.learned.by.empty()) findings.push_back(learned_of(table, rows));
  // A table that measures windows alone has no columns.
  if (!table.columns.empty() &&
      std::any_of(rows.begin(), rows.end(), [](const ShownRow& row) { return !row.row->against.empty(); }))
    findings.push_back(differences_of(table, rows));
  return findings;
}

// Charts the first column against another; rows whose titles begin alike are one series. Rows of several seeds have
// bars.
MeasuredTable across_of(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  const ReproduceColumn &up = table.columns[0], &axis = table.columns[table.across];
  Chart chart{up.title + " against " + axis.title, axis.title, up.title, true, false, {}};
  std::vector<Series> points;
  std::string group;
  for (const ShownRow& shown : rows) {
    if (std::exchange(group, shown.row->group) == shown.row->group) continue;
    const double x = measured_value(table, rows, shown, axis);
    const SeedStatistics y = measured_statistics(table, rows, shown, up);
    if (!std::isfinite(x) || !std::isfinite(y.mean)) continue;
    const std::string name = shown.row->title.substr(0, shown.row->title.find(','));
    if (points.empty() || points.back().name != name) {
      const auto colour = static_cast<int>(points.size());
      points.push_back({name, {}, {}, SeriesStyle::points, colour});
    }
    points.back().add(x, y.mean);
    if (std::isfinite(y.deviation)) chart.series.push_back(deviation_bar(x, y, points.back().colour));
  }
  MeasuredTable across;
  if (points.empty()) return across;
  chart.series.insert(chart.series.end(), points.begin(), points.end());
  across.charts.push_back(std::move(chart));
  return across;
}

}  // namespace

std::string table_text(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  Measurement m;
  m.conditions = fmt::format("\n{}\n", table.title);
  m.tables = {numbers_of(table, rows)};
  if (!table.tune.keys.empty()) {
    m.tables.push_back(tried_of(table, rows));
    m.tables.back().title += '\n';
  }
  for (MeasuredTable& one : findings_of(table, rows)) {
    one.title += '\n';
    m.tables.push_back(std::move(one));
  }
  m.tables.push_back(runs_of(rows, "`"));
  for (MeasuredTable& one : m.tables) one.markdown = true;
  MeasuredTable& last = m.tables.back();
  last.listed = true;
  last.notes = notes_of(table, rows);
  for (std::string& remark : remarks_of(rows)) last.notes.push_back(std::move(remark));
  return to_text(m);
}

std::string table_page(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  Measurement m;
  m.title = table.title;
  m.conditions = table.name;
  m.of_this_machine = false;
  m.tables = {numbers_of(table, rows)};
  m.tables.back().notes = notes_of(table, rows);
  if (!table.tune.keys.empty()) m.tables.push_back(tried_of(table, rows));
  for (MeasuredTable& one : findings_of(table, rows)) m.tables.push_back(std::move(one));
  if (table.across > 0) m.tables.push_back(across_of(table, rows));
  if (!table.lengths.empty()) m.tables.push_back(lengths_of(table, rows));
  m.tables.push_back(curves_of(table, rows));
  m.tables.push_back(runs_of(rows, ""));
  m.tables.back().title = "How the rows are run";
  if (std::vector<std::string> remarks = remarks_of(rows); !remarks.empty()) {
    MeasuredTable& measuring = m.tables.emplace_back();
    measuring.title = "How the rows were measured";
    for (std::string& remark : remarks) measuring.add({std::move(remark)});
  }
  MeasuredTable& places = m.tables.emplace_back();
  places.title = "Where the rows' own reports are";
  places.columns = {{"", "row"}, {"", "report"}};
  for (const ShownRow& shown : rows)
    if (shown.result && shown.row->weights_of.empty())
      places.add({shown.row->title, (fs::path(shown.folder) / "report.html").string()});
  return to_html(m);
}

}  // namespace eddy::app
