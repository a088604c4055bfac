// Where the runs ended, as a table; the tables and the curves as a page.
#include <algorithm>
#include <cmath>

#include "tensor/base/format.h"
#include "train/app/report/side_by_side.h"
#include "train/app/views/html_page.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

// The last recorded step; of none all numbers are 0.
StepRecord last_record(const ReportedRun& run) {
  const std::vector<StepRecord>& steps = run.series.step_records();
  return steps.empty() ? StepRecord{} : steps.back();
}

// A measure of the best evaluation; NaN where there is none.
double best_of(const ReportedRun& run, const char* measure) {
  const EvalRecord* best = run.series.best();
  return best == nullptr ? kNotMeasured : measure_of(*best, measure).value_or(kNotMeasured);
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
  double (*value)(const ReportedRun& run);
  std::string (*show)(double value);
};

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "-";
}
std::string bytes_text(double bytes) {
  return human_bytes(static_cast<std::int64_t>(bytes));
}

constexpr EndColumn kEndColumns[] = {
    {"parameters", [](const ReportedRun& run) { return static_cast<double>(run.facts.parameters); },
     human_count},
    {"state", [](const ReportedRun& run) { return static_cast<double>(run.facts.state_bytes); }, bytes_text},
    {"steps", [](const ReportedRun& run) { return static_cast<double>(last_record(run).step); }, human_count},
    {"tokens",
     [](const ReportedRun& run) {
       const std::int64_t tokens = last_record(run).tokens;
       return tokens > 0 ? static_cast<double>(tokens) : kNotMeasured;
     },
     human_count},
    {"training loss", [](const ReportedRun& run) { return run.series.final_training_loss().loss; },
     loss_text},
    {"best validation loss", [](const ReportedRun& run) { return best_of(run, "loss"); }, loss_text},
    {"whole split",
     [](const ReportedRun& run) {
       return run.series.whole() == nullptr ? kNotMeasured : run.series.whole()->loss;
     },
     loss_text},
    {"bits per byte", [](const ReportedRun& run) { return best_of(run, "bits_per_byte"); }, loss_text},
    {"time",
     [](const ReportedRun& run) {
       const StepRecord last = last_record(run);
       return last.tokens > 0 ? last.seconds : kNotMeasured;
     },
     human_duration},
    {"tokens/s", [](const ReportedRun& run) { return run.series.tokens_per_second(); }, human_count},
};

}  // namespace

Table ends_of(const std::vector<ReportedRun>& runs, const std::vector<SeedGroup>& groups) {
  std::vector<const EndColumn*> shown;  // what any run has
  for (const EndColumn& column : kEndColumns)
    if (std::any_of(runs.begin(), runs.end(),
                    [&](const ReportedRun& run) { return std::isfinite(column.value(run)); }))
      shown.push_back(&column);
  Table table{{"run", "model"}};
  for (const EndColumn* column : shown) table.header.emplace_back(column->name);
  const auto add = [&](const std::string& name, const std::vector<std::size_t>& of) {
    const std::string& model = runs[of.front()].facts.model;  // "family/model"
    std::vector<std::string> row{name, model.substr(model.find('/') + 1)};
    for (const EndColumn* column : shown) {
      std::vector<double> values;
      for (const std::size_t i : of) values.push_back(column->value(runs[i]));
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

std::string side_by_side_page(const std::vector<ReportedRun>& runs, const std::vector<SeedGroup>& groups,
                              const std::optional<PageStatus>& status) {
  HtmlPage page(fmt::format("{} {} side by side", runs.size(), plural(std::ssize(runs), "run")));
  if (status) page.status(*status);
  page.heading("Where they ended");
  page.table(ends_of(runs, groups));
  page.paragraph(
      "State: what one stream keeps after a segment, a cache of what it read included. Training loss: the median of the "
      "last records. Steps, tokens and time are those of the last recorded step.");
  for (const std::string& line : listed_apart(runs)) page.paragraph(line + ".");
  page.heading("Curves");
  std::vector<Choice> choices;
  for (const XAxis axis : kXAxes) {
    const std::vector<Chart> charts = curves_of_groups(runs, groups, axis);
    if (charts.empty() && axis != XAxis::steps) continue;
    choices.push_back({axis_name(axis), [&page, charts] {
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
  const Table differing = differences_of(runs, groups);
  if (differing.rows.empty())
    page.paragraph("Nothing.");
  else
    page.table(differing);
  page.heading("Where they are");
  Table places{{"run", "folder", "text", "SHA-256 of the text"}};
  for (const ReportedRun& run : runs)
    places.rows.push_back({run.name, run.folder, run.facts.text, run.facts.text_sha256.substr(0, 16)});
  page.table(places);
  return page.html();
}

}  // namespace eddy::app
