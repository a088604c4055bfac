// Where the runs ended, as a table; the tables and the curves as a page, and as lines for a terminal.
#include <algorithm>
#include <cmath>

#include "tensor/base/format.h"
#include "train/app/report/side_by_side.h"
#include "train/app/views/html_page.h"
#include "train/files/utf8.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

// Where one run ended.
struct RunEnd {
  std::int64_t step = 0;
  double tokens = kNotMeasured, seconds = kNotMeasured, speed = kNotMeasured;
  double training = kNotMeasured, best = kNotMeasured, whole = kNotMeasured, bits = kNotMeasured;
};

RunEnd end_of(const ReportedRun& run) {
  RunEnd end;
  const Metrics& metrics = run.metrics;
  if (!metrics.steps.empty()) {
    const StepRecord& last = metrics.steps.back();
    end.step = last.step;
    if (last.tokens > 0) {
      end.tokens = static_cast<double>(last.tokens);
      end.seconds = last.seconds;
    }
    std::vector<double> speeds, losses;
    for (const StepRecord& record : metrics.steps) {
      speeds.push_back(record.tokens_per_second);
      losses.push_back(record.loss);
    }
    end.speed = median(std::move(speeds));
    // As in the report of a run: of the last tenth, at most the last 20 records.
    const std::size_t recent = std::clamp<std::size_t>(losses.size() / 10, 1, 20);
    end.training = median({losses.end() - static_cast<std::ptrdiff_t>(recent), losses.end()});
  }
  const EvalRecord* best = nullptr;
  for (const EvalRecord& eval : metrics.evals) {
    if (eval.whole && eval.split == "valid") end.whole = eval.loss;
    if (is_better(eval, best)) best = &eval;
  }
  if (best != nullptr) {
    end.best = best->loss;
    for (const auto& [name, value] : best->extras)
      if (name == "bits_per_byte") end.bits = value;
  }
  return end;
}

// The mean of numbers, and their range where they differ as they are shown.
template <class Show>
std::string spread(const std::vector<double>& numbers, const Show& show) {
  std::vector<double> finite = numbers;
  std::erase_if(finite, [](double number) { return !std::isfinite(number); });
  if (finite.empty()) return "-";
  double sum = 0;
  for (const double number : finite) sum += number;
  const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
  const std::string mean = show(sum / static_cast<double>(finite.size())), least = show(*low),
                    most = show(*high);
  return least == most ? mean : fmt::format("{} ({} to {})", mean, least, most);
}

// A column of numbers: how they are taken from a run and shown.
struct EndColumn {
  const char* name;
  double (*value)(const ReportedRun& run, const RunEnd& end);
  std::string (*show)(double value);
};

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "-";
}
std::string bytes_text(double bytes) {
  return human_bytes(static_cast<std::int64_t>(bytes));
}

constexpr EndColumn kEndColumns[] = {
    {"parameters",
     [](const ReportedRun& run, const RunEnd&) { return static_cast<double>(run.facts.parameters); },
     human_count},
    {"state",
     [](const ReportedRun& run, const RunEnd&) { return static_cast<double>(run.facts.state_bytes); },
     bytes_text},
    {"steps", [](const ReportedRun&, const RunEnd& end) { return static_cast<double>(end.step); },
     human_count},
    {"tokens", [](const ReportedRun&, const RunEnd& end) { return end.tokens; }, human_count},
    {"training loss", [](const ReportedRun&, const RunEnd& end) { return end.training; }, loss_text},
    {"best validation loss", [](const ReportedRun&, const RunEnd& end) { return end.best; }, loss_text},
    {"whole split", [](const ReportedRun&, const RunEnd& end) { return end.whole; }, loss_text},
    {"bits per byte", [](const ReportedRun&, const RunEnd& end) { return end.bits; }, loss_text},
    {"time", [](const ReportedRun&, const RunEnd& end) { return end.seconds; }, human_duration},
    {"tokens/s", [](const ReportedRun&, const RunEnd& end) { return end.speed; }, human_count},
};

std::size_t characters_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !is_continuation(byte); }));
}

}  // namespace

TextTable ends_of(const std::vector<ReportedRun>& runs, const std::vector<SeedGroup>& groups) {
  std::vector<RunEnd> ends;
  for (const ReportedRun& run : runs) ends.push_back(end_of(run));
  std::vector<const EndColumn*> shown;  // what any run has
  for (const EndColumn& column : kEndColumns)
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (std::isfinite(column.value(runs[i], ends[i]))) {
        shown.push_back(&column);
        break;
      }
  TextTable table{{"run", "model"}, {}};
  for (const EndColumn* column : shown) table.head.emplace_back(column->name);
  const auto add = [&](const std::string& name, const std::vector<std::size_t>& of) {
    const std::string& model = runs[of.front()].facts.model;  // "family/model"
    std::vector<std::string> row{name, model.substr(model.find('/') + 1)};
    for (const EndColumn* column : shown) {
      std::vector<double> values;
      for (const std::size_t i : of) values.push_back(column->value(runs[i], ends[i]));
      row.push_back(spread(values, column->show));
    }
    table.rows.push_back(std::move(row));
  };
  for (const SeedGroup& group : groups) {
    if (group.runs.size() > 1) add(fmt::format("mean of {} seeds", group.runs.size()), group.runs);
    for (const std::size_t run : group.runs) add(runs[run].name, {run});
  }
  return table;
}

std::string aligned(const TextTable& table) {
  std::vector<std::size_t> widths(table.head.size(), 0);
  std::vector<std::vector<std::string>> lines{table.head};
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  for (std::vector<std::string>& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) {
      line[i] = printable(line[i]);
      std::replace(line[i].begin(), line[i].end(), '\n', ' ');
      widths[i] = std::max(widths[i], characters_of(line[i]));
    }
  std::string text;
  for (const std::vector<std::string>& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i)
      row += line[i] + std::string(widths[i] - characters_of(line[i]) + 2, ' ');
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

std::string side_by_side_page(const std::vector<ReportedRun>& runs, const std::vector<SeedGroup>& groups) {
  HtmlPage page(fmt::format("{} {} side by side", runs.size(), plural(runs.size(), "run")));
  page.heading("Where they ended");
  const TextTable ends = ends_of(runs, groups);
  page.table(ends.head, ends.rows);
  page.paragraph(
      "State: what one stream keeps after a segment, a cache of what it read included. Training loss: the median of the "
      "last records. Steps, tokens and time are those of the last recorded step.");
  page.heading("Curves");
  std::vector<Choice> choices;
  for (const Along along : kAlong) {
    const std::vector<Chart> charts = curves_of_groups(runs, groups, along);
    if (charts.empty() && along != Along::steps) continue;
    choices.push_back({axis_name(along), [&page, charts] {
                         if (charts.empty()) return page.paragraph("Nothing has been recorded yet.");
                         page.chart(charts.front());
                         page.charts({charts.begin() + 1, charts.end()});
                       }});
  }
  page.choice("against", choices);
  if (groups.size() < runs.size())
    page.paragraph(
        "Runs that differ in train.seed alone are one line, their mean, in a band from the lowest to the highest. It "
        "ends with the first of them that does.");
  page.heading("What differs in their configurations");
  const TextTable differing = differences_of(runs, groups);
  if (differing.rows.empty())
    page.paragraph("Nothing.");
  else
    page.table(differing.head, differing.rows);
  page.heading("Where they are");
  std::vector<std::vector<std::string>> places;
  for (const ReportedRun& run : runs)
    places.push_back({run.name, run.folder, run.facts.text, run.facts.text_sha256.substr(0, 16)});
  page.table({"run", "folder", "text", "SHA-256 of the text"}, places);
  return page.html();
}

}  // namespace eddy::app
