// The cells, the Markdown and the charts of a table.
#include "train/reproduce/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tensor/base/error.h"
#include "train/files/utf8.h"
#include "train/page/html_page.h"
#include "train/page/human_text.h"
#include "train/run/metrics.h"

namespace eddy {
namespace {

namespace fs = std::filesystem;
using Cells = std::vector<std::string>;

std::string number(double value) {
  return human_number(value, 5);
}

std::string published_cell(const Published& published) {
  if (!std::isfinite(published.value)) return published.remark;
  if (published.remark.empty()) return number(published.value);
  return fmt::format("{} ({})", number(published.value), published.remark);
}

// Returns the number of a column for a row, NaN where it was not measured.
double own_value(const ReproduceTable& table, const std::vector<ShownRow>& rows, const ShownRow& shown,
                 const ReproduceColumn& column) {
  const auto measured = [&](const ShownRow& one) {
    if (!one.result) return kNotMeasured;
    const auto found = one.result->values.find(column.key);
    return found != one.result->values.end() ? found->second : kNotMeasured;
  };
  if (!column.relative) return column.factor * measured(shown);
  for (const ShownRow& other : rows)
    if (other.row->name == table.reference) return measured(shown) / measured(other);
  return kNotMeasured;
}

std::string own_cell(const ReproduceTable& table, const std::vector<ShownRow>& rows, const ShownRow& shown,
                     const ReproduceColumn& column) {
  if (!shown.result) return "not run";
  const double value = own_value(table, rows, shown, column);
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, column.decimals) : "-";
}

// Whether any row has a published number for a column.
bool is_published(const ReproduceTable& table, std::size_t column) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [&](const ReproduceRow& row) { return column < row.published.size(); });
}

Cells header_of(const ReproduceTable& table) {
  Cells header{"row"};
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (is_published(table, i)) header.push_back(table.columns[i].title + ", paper");
    header.push_back(table.columns[i].title + ", ours");
  }
  header.insert(header.end(), {"seed", "steps", "tokens", "time"});
  return header;
}

Cells cells_of(const ReproduceTable& table, const std::vector<ShownRow>& rows, const ShownRow& shown) {
  Cells cells{shown.row->title};
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (is_published(table, i))
      cells.push_back(i < shown.row->published.size() ? published_cell(shown.row->published[i]) : "");
    cells.push_back(own_cell(table, rows, shown, table.columns[i]));
  }
  cells.push_back(std::to_string(shown.row->config.train.seed));
  if (shown.result) {
    const RowResult& r = *shown.result;
    cells.insert(cells.end(), {std::to_string(r.step), human_count(static_cast<double>(r.tokens)),
                               human_duration(r.seconds)});
  } else {
    cells.insert(cells.end(), {"", "", ""});
  }
  return cells;
}

// A table of its own: these cells are long and would leave no room for numbers beside them.
const Cells kRunHeader{"row", "command", "device"};

Cells run_of(const ShownRow& shown) {
  return {shown.row->title, shown.command, shown.result ? shown.result->device : ""};
}

// Returns the number of characters: bytes that begin one.
std::size_t width_of(const std::string& text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation));
}

std::string markdown(const std::vector<Cells>& lines) {
  std::vector<std::size_t> widths(lines.front().size(), 3);
  for (const Cells& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width_of(line[i]));
  std::string text;
  const auto add = [&](const Cells& line) {
    text += '|';
    for (std::size_t i = 0; i < line.size(); ++i)
      text += " " + line[i] + std::string(widths[i] - width_of(line[i]), ' ') + " |";
    text += '\n';
  };
  add(lines.front());
  Cells rule;
  for (const std::size_t width : widths) rule.emplace_back(width, '-');
  add(rule);
  for (std::size_t i = 1; i < lines.size(); ++i) add(lines[i]);
  return text;
}

std::vector<std::string> remarks_of(const std::vector<ShownRow>& rows) {
  std::vector<std::string> lines;
  for (const ShownRow& shown : rows) {
    if (!shown.result) continue;
    std::string line = fmt::format("{}: {} parameters", shown.row->name, grouped(shown.result->parameters));
    for (const std::string& remark : shown.result->remarks) line += "; " + remark;
    lines.push_back(std::move(line));
  }
  return lines;
}

// With more rows than colours, the later ones are drawn with points.
SeriesStyle style_of(std::size_t index) {
  return index < static_cast<std::size_t>(kChartColours) ? SeriesStyle::line : SeriesStyle::line_points;
}

void add_series(Chart& chart, Series series, std::size_t index, const ShownRow& shown) {
  if (series.x.empty()) return;
  series.name = shown.row->title;
  series.style = style_of(index);
  series.colour = static_cast<int>(index);
  chart.series.push_back(std::move(series));
}

void add_curves(HtmlPage& page, const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  std::string name = table.chart_key;
  std::replace(name.begin(), name.end(), '_', ' ');
  Chart extra{name, "step", name, false, false, {}};
  Chart valid{"Validation loss of all rows", "step", "loss, nats", false, false, {}};
  Chart training{"Training loss, running median", "step", "loss, nats", false, false, {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Metrics metrics;
    try {
      metrics = read_metrics(fs::path(rows[i].folder) / "metrics.jsonl");
    } catch (const IoError&) {  // the table needs none
      continue;
    }
    Series losses, numbers, steps;
    for (const EvalRecord& record : metrics.evals) {
      losses.add(static_cast<double>(record.step), record.loss);
      for (const auto& [key, value] : record.extras)
        if (key == table.chart_key) numbers.add(static_cast<double>(record.step), table.chart_factor * value);
    }
    for (const StepRecord& record : metrics.steps) steps.add(static_cast<double>(record.step), record.loss);
    Series smooth = running_median(steps);
    add_series(valid, std::move(losses), i, rows[i]);
    add_series(extra, std::move(numbers), i, rows[i]);
    add_series(training, smooth.x.empty() ? std::move(steps) : std::move(smooth), i, rows[i]);
  }
  page.heading("Curves");
  if (!extra.series.empty()) page.chart(extra);
  page.chart(valid);
  page.chart(training);
}

// Charts the loss against the length of the window: ours and, from the same columns, the published one.
void add_lengths(HtmlPage& page, const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  Chart ours{
      "Loss on the last targets by length, ours", "tokens of the window", "loss, nats", true, false, {}};
  Chart paper{"The same, as published", "tokens of the window", "loss, nats", true, false, {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Series own, published;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const ReproduceColumn& column = table.columns[c];
      if (!column.key.starts_with("last_")) continue;
      const double length = std::strtod(column.key.c_str() + 5, nullptr);
      if (const double value = own_value(table, rows, rows[i], column); std::isfinite(value))
        own.add(length, value);
      if (c < rows[i].row->published.size() && std::isfinite(rows[i].row->published[c].value))
        published.add(length, rows[i].row->published[c].value);
    }
    add_series(ours, std::move(own), i, rows[i]);
    add_series(paper, std::move(published), i, rows[i]);
  }
  for (Chart* chart : {&ours, &paper})
    for (Series& series : chart->series) series.style = SeriesStyle::line_points;
  page.heading("Loss by length");
  for (const Chart* chart : {&ours, &paper})
    if (!chart->series.empty()) page.chart(*chart);
}

// Charts the first column against another; rows whose titles begin alike are one series.
void add_across(HtmlPage& page, const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  const ReproduceColumn &up = table.columns[0], &along = table.columns[table.across];
  Chart chart{up.title + " against " + along.title, along.title, up.title, true, false, {}};
  for (const ShownRow& shown : rows) {
    const double x = own_value(table, rows, shown, along), y = own_value(table, rows, shown, up);
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    const std::string name = shown.row->title.substr(0, shown.row->title.find(','));
    if (chart.series.empty() || chart.series.back().name != name)
      chart.series.push_back({name, {}, {}, SeriesStyle::points});
    chart.series.back().add(x, y);
  }
  if (!chart.series.empty()) page.chart(chart);
}

}  // namespace

std::string table_text(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  std::vector<Cells> lines{header_of(table)};
  std::vector<Cells> runs{kRunHeader};
  for (const ShownRow& shown : rows) {
    lines.push_back(cells_of(table, rows, shown));
    runs.push_back(run_of(shown));
    runs.back()[1] = "`" + shown.command + "`";
  }
  std::string text = fmt::format("\n{}\n\n{}\n{}", table.title, markdown(lines), markdown(runs));
  std::vector<std::string> notes = table.notes;
  for (std::string& remark : remarks_of(rows)) notes.push_back(std::move(remark));
  if (!notes.empty()) text += '\n';
  for (const std::string& line : notes) text += "- " + line + '\n';
  return text;
}

std::string table_page(const ReproduceTable& table, const std::vector<ShownRow>& rows) {
  HtmlPage page(table.title, table.name);
  std::vector<Cells> lines, runs;
  for (const ShownRow& shown : rows) {
    lines.push_back(cells_of(table, rows, shown));
    runs.push_back(run_of(shown));
  }
  page.table(header_of(table), lines);
  for (const std::string& note : table.notes) page.paragraph(note);
  if (table.across > 0) add_across(page, table, rows);
  if (!table.lengths.empty()) add_lengths(page, table, rows);
  add_curves(page, table, rows);
  page.heading("How the rows are run");
  page.table(kRunHeader, runs);
  if (const std::vector<std::string> remarks = remarks_of(rows); !remarks.empty()) {
    page.heading("How the rows were measured");
    std::vector<Cells> lines_of_remarks;
    for (const std::string& remark : remarks) lines_of_remarks.push_back({remark});
    page.table({}, lines_of_remarks);
  }
  page.heading("Where the rows' own reports are");
  std::vector<Cells> places;
  for (const ShownRow& shown : rows)
    if (shown.result && shown.row->weights_of.empty())
      places.push_back({shown.row->title, (fs::path(shown.folder) / "report.html").string()});
  page.table({"row", "report"}, places);
  return page.html();
}

}  // namespace eddy
