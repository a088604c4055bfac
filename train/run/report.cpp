// Chooses the numbers of a run and their places on its page. train/page/ draws the charts and writes the
// HTML.
#include "train/run/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "train/files/text_file.h"
#include "train/page/human_text.h"
#include "train/run/state_watch.h"

namespace eddy {
namespace {

using Json = nlohmann::ordered_json;  // settings stay in the order they were given in

constexpr std::size_t kMostTextBytes = 8000;  // of one sample or event
constexpr std::size_t kMostEvents = 200;
constexpr std::size_t kMostFolded = 20;

// One field of the step records against the step.
template <class Field>
Series step_series(const Metrics& metrics, std::string name, Field StepRecord::*field) {
  Series s;
  s.name = std::move(name);
  for (const StepRecord& record : metrics.steps) {
    s.x.push_back(static_cast<double>(record.step));
    s.y.push_back(static_cast<double>(record.*field));
  }
  return s;
}

bool any_finite(const Series& s) {
  return std::any_of(s.y.begin(), s.y.end(), [](double y) { return std::isfinite(y); });
}
bool any_positive(const Series& s) {
  return std::any_of(s.y.begin(), s.y.end(), [](double y) { return y > 0; });
}

// The median of the finite values (of two middle ones the upper); NaN when there is none.
double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return kNotMeasured;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Raw values faintly behind their running median, or alone when there are too few to smooth.
std::vector<Series> with_median(Series raw, int colour) {
  raw.colour = colour;
  Series smooth = running_median(raw);
  if (smooth.x.empty()) return {raw};
  smooth.name += " (running median)";
  raw.style = SeriesStyle::faint;
  return {raw, smooth};
}

// Whether values need a logarithmic axis: the highest is over 50 times the lowest.
bool wants_log(const std::vector<Series>& series) {
  double low = INFINITY;
  double high = 0;
  for (const Series& s : series) {
    if (s.style == SeriesStyle::faint) continue;
    for (const double y : s.y) {
      if (!std::isfinite(y)) continue;
      low = std::min(low, y);
      high = std::max(high, y);
    }
  }
  return low > 0 && high > 50 * low;
}

Chart step_chart(std::string title, std::string y_title, std::vector<Series> series) {
  Chart chart;
  chart.title = std::move(title);
  chart.x_title = "step";
  chart.y_title = std::move(y_title);
  chart.series = std::move(series);
  return chart;
}

std::string split_name(const std::string& split) {
  return split == "valid" ? "validation" : split;
}

Chart loss_chart(const Metrics& metrics) {
  std::vector<Series> series;
  const Series training = step_series(metrics, "training", &StepRecord::loss);
  if (!training.x.empty()) series = with_median(training, 0);
  // One line for each split, in the order in which they first appear.
  std::vector<Series> evals;
  for (const EvalRecord& eval : metrics.evals) {
    const std::string name = split_name(eval.split);
    auto it = std::find_if(evals.begin(), evals.end(), [&](const Series& s) { return s.name == name; });
    if (it == evals.end()) {
      Series s;
      s.name = name;
      s.style = SeriesStyle::line_points;
      s.colour = 1 + static_cast<int>(evals.size());
      it = evals.insert(evals.end(), std::move(s));
    }
    it->x.push_back(static_cast<double>(eval.step));
    it->y.push_back(eval.loss);
  }
  series.insert(series.end(), evals.begin(), evals.end());
  Chart chart = step_chart("Loss", "loss", std::move(series));
  chart.log_y = wants_log(chart.series);
  return chart;
}

// "bits_per_byte" as "Bits per byte".
std::string readable(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

// The evaluations' other measurements: a chart for each name, a line for each split.
std::vector<Chart> measure_charts(const Metrics& metrics) {
  std::vector<Chart> charts;
  for (const EvalRecord& eval : metrics.evals) {
    for (const auto& [name, value] : eval.extras) {
      const std::string title = readable(name);
      auto chart =
          std::find_if(charts.begin(), charts.end(), [&](const Chart& c) { return c.title == title; });
      if (chart == charts.end()) chart = charts.insert(charts.end(), step_chart(title, title, {}));
      const std::string split = split_name(eval.split);
      auto line = std::find_if(chart->series.begin(), chart->series.end(),
                               [&](const Series& s) { return s.name == split; });
      if (line == chart->series.end()) {
        Series s;
        s.name = split;
        s.style = SeriesStyle::line_points;
        s.colour = 1 + static_cast<int>(chart->series.size());
        line = chart->series.insert(chart->series.end(), std::move(s));
      }
      line->x.push_back(static_cast<double>(eval.step));
      line->y.push_back(value);
    }
  }
  for (Chart& chart : charts) chart.log_y = wants_log(chart.series);
  return charts;
}

std::vector<Chart> training_charts(const Metrics& metrics) {
  std::vector<Chart> charts;
  const Series rate = step_series(metrics, "learning rate", &StepRecord::learning_rate);
  if (any_finite(rate)) charts.push_back(step_chart("Learning rate", "learning rate", {rate}));
  const Series norm = step_series(metrics, "gradient norm", &StepRecord::grad_norm);
  if (any_finite(norm)) {
    charts.push_back(step_chart("Gradient norm", "norm", with_median(norm, 0)));
    charts.back().log_y = wants_log(charts.back().series);
  }
  const Series speed = step_series(metrics, "tokens per second", &StepRecord::tokens_per_second);
  if (any_finite(speed)) charts.push_back(step_chart("Speed", "tokens per second", with_median(speed, 0)));
  Series memory = step_series(metrics, "memory", &StepRecord::memory_bytes);
  if (any_positive(memory)) {
    for (double& bytes : memory.y) bytes /= 1024.0 * 1024.0;
    charts.push_back(step_chart("Memory", "MiB", {memory}));
  }
  return charts;
}

// The size of the tape when the backward pass starts. With truncated backpropagation the lines are flat.
std::vector<Chart> graph_charts(const Metrics& metrics) {
  std::vector<Chart> charts;
  const Series nodes = step_series(metrics, "nodes", &StepRecord::graph_nodes);
  const Series depth = step_series(metrics, "depth", &StepRecord::graph_depth);
  if (any_positive(nodes) || any_positive(depth)) {
    charts.push_back(step_chart("Nodes and depth of the graph", "nodes", {nodes, depth}));
  }
  Series saved = step_series(metrics, "saved for the backward pass", &StepRecord::saved_bytes);
  if (any_positive(saved)) {
    for (double& bytes : saved.y) bytes /= 1024.0 * 1024.0;
    charts.push_back(step_chart("Saved for the backward pass", "MiB", {saved}));
  }
  return charts;
}

std::optional<EvalRecord> best_of(const ReportData& data) {
  if (data.best_eval) return data.best_eval;
  std::optional<EvalRecord> best;
  for (const EvalRecord& eval : data.metrics.evals) {
    if (eval.split != "valid" || !std::isfinite(eval.loss)) continue;
    if (!best || eval.loss < best->loss) best = eval;
  }
  return best;
}

std::vector<Tile> summary(const ReportData& data) {
  const Metrics& metrics = data.metrics;
  std::vector<Tile> tiles;
  if (const std::optional<EvalRecord> best = best_of(data)) {
    tiles.push_back({"Best " + split_name(best->split) + " loss", human_number(best->loss),
                     "at step " + grouped(best->step)});
  }
  if (!metrics.steps.empty()) {
    const std::vector<double> losses = step_series(metrics, "", &StepRecord::loss).y;
    const std::size_t recent = std::min<std::size_t>(losses.size(), 20);
    const std::vector<double> last(losses.end() - static_cast<std::ptrdiff_t>(recent), losses.end());
    tiles.push_back({"Final training loss", human_number(median(last)),
                     recent > 1 ? fmt::format("median of the last {} records", recent) : ""});
    tiles.push_back({"Steps", grouped(metrics.steps.back().step), ""});
  }
  if (data.tokens_seen > 0)
    tiles.push_back({"Tokens seen", human_count(static_cast<double>(data.tokens_seen)), ""});
  if (std::isfinite(data.seconds)) tiles.push_back({"Time", human_duration(data.seconds), ""});
  const double speed = median(step_series(metrics, "", &StepRecord::tokens_per_second).y);
  if (std::isfinite(speed)) tiles.push_back({"Tokens per second", human_count(speed), "median"});
  if (data.parameters > 0) {
    tiles.push_back(
        {"Parameters", human_count(static_cast<double>(data.parameters)), grouped(data.parameters)});
  }
  // The last one: a state may come into use late, or be given up.
  double gain = kNotMeasured;
  for (const EvalRecord& eval : metrics.evals)
    for (const auto& [name, value] : eval.extras)
      if (name == "state_gain") gain = value;
  if (std::isfinite(gain))
    tiles.push_back({"State gain", human_number(gain),
                     gain < kMinStateGain ? "nats: the state is ignored" : "nats lost without the state"});
  std::int64_t memory = 0;
  for (const StepRecord& record : metrics.steps) memory = std::max(memory, record.memory_bytes);
  if (memory > 0) tiles.push_back({"Memory", human_bytes(memory), "highest"});
  return tiles;
}

std::string shortened(const std::string& text) {
  if (text.size() <= kMostTextBytes) return text;
  std::size_t end = kMostTextBytes;
  // Not inside a character: continuation bytes of UTF-8 are 10xxxxxx.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  return fmt::format("{}\n[{} more bytes]", text.substr(0, end), text.size() - end);
}

void add_samples(HtmlPage& page, const ReportData& data) {
  const std::vector<SampleRecord>& records = data.metrics.samples;
  const auto labelled = [](const SampleRecord& record) {
    return LabelledText{"step " + grouped(record.step), shortened(record.text)};
  };
  std::vector<LabelledText> shown;
  for (const LabelledText& sample : data.samples) shown.push_back({sample.label, shortened(sample.text)});
  std::vector<LabelledText> folded;
  if (shown.empty() && !records.empty()) {
    shown.push_back(labelled(records.front()));
    if (records.size() > 1) {
      shown.push_back(labelled(records.back()));
      shown.front().label = "before: " + shown.front().label;
      shown.back().label = "after: " + shown.back().label;
    }
    // Of many samples in between, a few evenly spaced ones tell the story.
    const std::size_t middle = records.size() > 2 ? records.size() - 2 : 0;
    const std::size_t count = std::min(middle, kMostFolded);
    for (std::size_t k = 0; k < count; ++k) folded.push_back(labelled(records[1 + k * middle / count]));
  }
  if (shown.empty()) return;
  page.heading("Samples");
  page.texts(shown);
  page.folded_texts(fmt::format("{} samples in between", folded.size()), folded);
}

// The settings, or a null value when the text is no JSON object or nests deeper than settings ever do: the
// JSON library walks values recursively.
Json parse_settings(const std::string& text) {
  constexpr int kDeepest = 60;
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kDeepest;
    return !too_deep;
  };
  Json settings = Json::parse(text, watch, false);
  return settings.is_object() && !too_deep ? settings : Json();
}

void add_settings(std::vector<std::vector<std::string>>& rows, const std::string& path, const Json& value) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, child] : value.items())
      add_settings(rows, path.empty() ? key : path + "." + key, child);
    return;
  }
  const std::string text = value.is_string() ? value.get<std::string>()
                                             : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  rows.push_back({path, text});
}

void add_config(HtmlPage& page, const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return;
  page.heading("Configuration");
  const Json config = parse_settings(text);
  if (config.is_null()) {
    page.preformatted(text);
    return;
  }
  std::vector<std::vector<std::string>> rows;
  add_settings(rows, "", config);
  page.table({"setting", "value"}, rows);
}

void add_events(HtmlPage& page, const std::vector<EventRecord>& events) {
  if (events.empty()) return;
  page.heading("Events");
  const std::size_t left_out = events.size() > kMostEvents ? events.size() - kMostEvents : 0;
  if (left_out > 0) page.paragraph(fmt::format("The last {} of {} events.", kMostEvents, events.size()));
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = left_out; i < events.size(); ++i) {
    rows.push_back({grouped(events[i].step), shortened(events[i].text)});
  }
  page.table({"step", "what happened"}, rows);
}

void add_circumstances(HtmlPage& page, const ReportData& data) {
  std::vector<std::vector<std::string>> rows;
  if (!data.command_line.empty()) rows.push_back({"command", data.command_line});
  for (const std::string& line : data.environment) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) {
      rows.push_back({"", line});
    } else {
      rows.push_back({line.substr(0, colon), line.substr(colon + 2)});
    }
  }
  if (rows.empty()) return;
  page.heading("How it was run");
  page.table({}, rows);
}

}  // namespace

std::string render_report(const ReportData& data) {
  std::string subtitle = data.model_name;
  if (data.parameters > 0) {
    if (!subtitle.empty()) subtitle += ", ";
    subtitle += human_count(static_cast<double>(data.parameters)) + " parameters";
  }
  HtmlPage page(data.title.empty() ? "Training run" : data.title, subtitle);
  page.tiles(summary(data));
  if (data.metrics.steps.empty() && data.metrics.evals.empty()) {
    page.paragraph("No step has been recorded yet.");
  } else {
    page.chart(loss_chart(data.metrics));
  }
  page.charts(measure_charts(data.metrics));
  page.charts(training_charts(data.metrics));
  if (const std::vector<Chart> charts = graph_charts(data.metrics); !charts.empty()) {
    page.heading("Graph of a segment");
    page.charts(charts);
  }
  add_samples(page, data);
  if (data.add_sections) data.add_sections(page);
  add_events(page, data.metrics.events);
  add_config(page, data.config_json);
  add_circumstances(page, data);
  return page.html();
}

std::filesystem::path write_report(const std::filesystem::path& run_dir, const ReportData& data) {
  const std::filesystem::path path = run_dir / "report.html";
  replace_text_file(path, render_report(data));
  return path;
}

}  // namespace eddy
