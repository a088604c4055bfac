// The writers of a measurement.
#include "train/app/measure/measurement.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <ctime>

#include "tensor/system/processors.h"
#include "tensor/threads/thread_pool.h"
#include "train/app/measure/bench.h"
#include "train/plan/environment.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

bool is_shown(const MeasuredTable& table, std::size_t column) {
  return column >= table.columns.size() || table.columns[column].key.empty() ||
         !table.columns[column].title.empty();
}

// Returns the table as it is shown, with the name of its series before each row.
Table shown(const MeasuredTable& table) {
  Table all;
  all.align = "lr";
  if (!table.names.empty()) all.header.push_back(table.names);
  for (std::size_t i = 0; i < table.columns.size(); ++i)
    if (is_shown(table, i)) all.header.push_back(table.columns[i].title);
  for (const MeasuredSeries& series : table.series)
    for (const std::vector<Cell>& row : series.rows) {
      std::vector<std::string>& cells = all.rows.emplace_back();
      if (!table.names.empty()) cells.push_back(series.name);
      for (std::size_t i = 0; i < row.size(); ++i)
        if (is_shown(table, i)) cells.push_back(row[i].text);
    }
  return all;
}

// Returns the place of "a.b" in an object: b inside a.
nlohmann::json& place_of(nlohmann::json& object, const std::string& key) {
  const std::size_t dot = key.find('.');
  return dot == std::string::npos ? object[key] : object[key.substr(0, dot)][key.substr(dot + 1)];
}

nlohmann::json rows_json(const MeasuredTable& table, const MeasuredSeries& series) {
  nlohmann::json rows = nlohmann::json::array();
  for (const std::vector<Cell>& row : series.rows) {
    nlohmann::json& about = rows.emplace_back(nlohmann::json::object());
    for (std::size_t i = 0; i < row.size(); ++i)
      if (!table.columns[i].key.empty()) place_of(about, table.columns[i].key) = row[i].value;
  }
  return rows;
}

// "AMD EPYC, 2 threads".
std::string machine() {
  return fmt::format("{}, {} {}", processor_name(), thread_count(), plural(thread_count(), "thread"));
}

Chart chart_of(const MeasuredTable& table, const MeasuredPlot& plot) {
  Chart chart{plot.title, table.columns[0].title, plot.unit, true, true, {}};
  for (const MeasuredSeries& series : table.series) {
    Series& line = chart.series.emplace_back();
    line.name = series.name;
    line.style = SeriesStyle::line_points;
    for (const std::vector<Cell>& row : series.rows)
      line.add(row[0].value.get<double>(), row[plot.column].value.get<double>());
  }
  return chart;
}

// Appends a table with its pictures and notes.
void add_table(HtmlPage& page, const MeasuredTable& table) {
  if (!table.title.empty()) page.heading(table.title);
  std::vector<Chart> plots;
  for (const MeasuredPlot& plot : table.plots) plots.push_back(chart_of(table, plot));
  if (!plots.empty()) page.chart(plots.front());
  if (plots.size() > 1) page.charts({plots.begin() + 1, plots.end()});
  for (const Chart& chart : table.charts) page.chart(chart);
  std::vector<Choice> choices;
  for (const ChosenCharts& one : table.against)
    choices.push_back({one.name, [&page, &one] {
                         for (const Chart& chart : one.charts) page.chart(chart);
                       }});
  page.choice("against", choices);
  if (const Table rows = shown(table); !rows.header.empty() || !rows.rows.empty()) page.table(rows);
  for (const std::string& note : table.notes) page.paragraph(note);
}

}  // namespace

std::string today() {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
}
Cell::Cell(double number) : value(number), text(table_number(number)) {}
Cell::Cell(std::int64_t number) : value(number), text(grouped(number)) {}
Cell bytes_cell(std::int64_t bytes) {
  return {bytes, human_bytes(bytes)};
}

void MeasuredTable::add(std::vector<Cell> row) {
  if (series.empty()) series.emplace_back();
  series.back().rows.push_back(std::move(row));
}

std::string to_text(const MeasuredTable& table) {
  std::string text = table.title.empty() ? "" : table.title + '\n';
  text += table.markdown ? to_markdown(shown(table)) : to_text(shown(table));
  if (table.listed && !table.notes.empty()) text += '\n';
  for (const std::string& note : table.notes) text += (table.listed ? "- " : "") + note + '\n';
  return text;
}

std::string to_text(const Measurement& measurement) {
  std::string text = measurement.conditions.empty() ? "" : measurement.conditions + '\n';
  for (const MeasuredTable& table : measurement.tables) {
    if (&table != &measurement.tables.front()) text += '\n';
    text += to_text(table);
  }
  return text;
}

nlohmann::json to_json(const Measurement& measurement, const std::string& command) {
  nlohmann::json all = measurement.facts;
  all["bench"] = measurement.bench;
  all["environment"] = environment_lines();
  for (const MeasuredTable& table : measurement.tables) {
    const Table as_shown = shown(table);
    nlohmann::json& measured = all["measured"].emplace_back();
    measured = {{"machine", measurement.machine.empty() ? machine() : measurement.machine},
                {"date", today()},
                {"command", command},
                {"columns", as_shown.header},
                {"rows", as_shown.rows}};
    if (!table.rows_are.empty()) measured["rows_are"] = table.rows_are;
    if (table.key.empty()) continue;
    nlohmann::json& list = place_of(all, table.key) = nlohmann::json::array();
    for (const MeasuredSeries& series : table.series) {
      if (table.names.empty()) {
        list = rows_json(table, series);
      } else {
        list.push_back(series.facts);
        list.back()["points"] = rows_json(table, series);
      }
    }
  }
  return all;
}

std::string to_html(const Measurement& measurement) {
  HtmlPage page(measurement.title, measurement.conditions);
  if (!measurement.about.empty()) page.paragraph(measurement.about);
  for (const MeasuredTable& table : measurement.tables) add_table(page, table);
  if (!measurement.details.empty())
    page.folded(measurement.details_title, [&] { page.texts(measurement.details); });
  if (!measurement.of_this_machine) return page.html();
  page.heading("Machine");
  page.preformatted(fmt::format("{}\n", fmt::join(environment_lines(), "\n")));
  return page.html();
}

}  // namespace eddy::app
