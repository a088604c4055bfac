// Chooses the numbers of a run and their places on its page. train/app/views/ draws the charts and writes the
// HTML.
#include "train/app/report/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "train/app/views/step_timeline.h"
#include "train/files/output_file.h"
#include "train/record/run_series.h"
#include "train/run/state_monitor.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::size_t kMostTextBytes = 8000;  // of one sample or event
constexpr std::size_t kShownEvents = 200;
constexpr double kFlat = 0.01;  // of its highest value: a curve that varies less is a line of text

// Raw values, peaks included, faintly behind their running median, or alone when there are too few to smooth.
std::vector<Series> with_median(const RunSeries& run, const char* name, double StepRecord::*field) {
  Series raw = run.steps_and_peaks(field, name);
  raw.colour = 0;
  Series smooth = running_median(run.steps(field, name));
  smooth.colour = 0;
  if (smooth.x.empty()) return {raw};
  smooth.name += " (running median)";
  raw.style = SeriesStyle::faint;
  return {raw, smooth};
}

// A chart against the step, on a logarithmic axis where `may_log` and the values call for it.
Chart step_chart(std::string title, std::string y_title, std::vector<Series> series, bool may_log) {
  const bool log_y = may_log && wants_log(series);
  return {std::move(title), "step", std::move(y_title), false, log_y, std::move(series)};
}

// "81 920 of 111 488 targets": what a loss stands on.
std::string extent(const EvalRecord& eval) {
  return grouped(eval.tokens) + (eval.tokens < eval.of ? " of " + grouped(eval.of) : "") + " targets";
}

// The evaluations of a measure as lines, one for each split, in the colours behind that of training.
std::vector<Series> eval_lines(const RunSeries& run, const std::string& measure) {
  std::vector<Series> lines = run.evaluations_by_split(measure);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].style = SeriesStyle::line_points;
    lines[i].colour = 1 + static_cast<int>(i);
  }
  return lines;
}

Chart loss_chart(const RunSeries& run) {
  std::vector<Series> series;
  if (!run.step_records().empty()) series = with_median(run, "training", &StepRecord::loss);
  for (Series& line : eval_lines(run, "loss")) series.push_back(std::move(line));
  return step_chart("Loss", "loss", std::move(series), true);
}

// "bits_per_byte" as "Bits per byte".
std::string readable(std::string name) {
  name = with_spaces(std::move(name));
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

const std::string kBitsPerByte = "Bits per byte";

// Adds a level line for each baseline, as long as the evaluations.
void add_levels(std::vector<Series>& series, const Baselines& baselines) {
  double begin = INFINITY, end = -INFINITY;
  for (const Series& line : series)
    for (const double x : line.x) begin = std::min(begin, x), end = std::max(end, x);
  if (begin == end) end = begin + 1;
  int colour = 1 + static_cast<int>(series.size());
  for (const auto& [name, value] : baselines.listed())
    series.push_back({name, {begin, end}, {value, value}, SeriesStyle::line, colour++ % kChartColours});
}

// The evaluations' other measurements: a chart for each name, a line for each split.
std::vector<Chart> measure_charts(const RunSeries& run, const std::optional<Baselines>& baselines) {
  std::vector<Chart> charts;
  for (const std::string& measure : run.measures()) {
    const std::string title = readable(measure);
    std::vector<Series> lines = eval_lines(run, measure);
    if (title == kBitsPerByte && baselines) add_levels(lines, *baselines);
    charts.push_back(step_chart(title, title, std::move(lines), true));
  }
  return charts;
}

// The value of a series whose finite values are all the same, but for little; nullopt for others.
std::optional<double> flat_value(const Series& series) {
  double low = INFINITY, high = -INFINITY;
  for (const double y : series.y)
    if (std::isfinite(y)) low = std::min(low, y), high = std::max(high, y);
  if (low > high || high - low > kFlat * std::max(std::abs(low), std::abs(high))) return std::nullopt;
  return series.y.back();
}

// Charts, and a line each for those that would be flat.
struct Charts {
  std::vector<Chart> charts;
  std::vector<std::vector<std::string>> flat;

  // Adds what was measured; nothing where nothing was.
  void add(const char* title, const char* y_title, std::vector<Series> series, bool may_log = false) {
    std::erase_if(series, [](const Series& s) {
      return std::none_of(s.y.begin(), s.y.end(), [](double y) { return y > 0; });
    });
    if (series.empty()) return;
    std::vector<std::string> values;
    for (const Series& s : series) {
      const std::optional<double> value = flat_value(s);
      if (!value) return charts.push_back(step_chart(title, y_title, std::move(series), may_log));
      if (s.style == SeriesStyle::faint) continue;  // its median says the same
      // Raw values and their median share a colour; what has none is one of several things.
      values.push_back(human_number(*value) + (series.size() > 1 && s.colour < 0 ? " " + s.name : ""));
    }
    // A unit that the title names already is not said again.
    const bool named =
        std::string_view(title).find(std::string_view(y_title).substr(1)) != std::string_view::npos;
    if (values.size() == 1) values[0] += (named ? "" : std::string(" ") + y_title) + " throughout";
    flat.push_back({title, fmt::format("{}", fmt::join(values, ", "))});
  }
  void add_to(HtmlPage& page) const {
    page.charts(charts);
    if (!flat.empty()) page.table({{}, flat});
  }
};

// Charts against steps, and where the run says how far it was, against tokens and seconds: a reader chooses.
void add_course(HtmlPage& page, const RunSeries& run, const std::vector<Chart>& charts, bool full_width) {
  if (charts.empty()) return;
  const std::optional<RunRecord>& facts = run.records().run;
  const StepTimeline timeline(run.step_records(), facts ? facts->flops_per_token : kNotMeasured);
  std::vector<Choice> choices;
  for (const XAxis axis : kXAxes) {
    std::vector<Chart> against_it;
    for (const Chart& chart : charts) against_it.push_back(with_x_axis(chart, timeline, axis));
    const bool empty = std::all_of(against_it.begin(), against_it.end(),
                                   [](const Chart& chart) { return chart.series.empty(); });
    if (empty && axis != XAxis::steps) continue;
    choices.push_back({axis_name(axis), [&page, full_width, against_it] {
                         if (!full_width) return page.charts(against_it);
                         for (const Chart& chart : against_it) page.chart(chart);
                       }});
  }
  page.choice("against", choices);
}

constexpr double kPerMiB = 1 / (1024.0 * 1024.0);

Charts training_charts(const RunSeries& run) {
  Charts charts;
  charts.add("Learning rate", "learning rate", {run.steps(&StepRecord::learning_rate, "learning rate")});
  charts.add("Gradient norm", "norm", with_median(run, "gradient norm", &StepRecord::grad_norm), true);
  charts.add("Speed", "tokens per second",
             with_median(run, "tokens per second", &StepRecord::tokens_per_second));
  charts.add("Memory", "MiB",
             {run.steps(&StepRecord::resident_bytes, "MiB resident, text included", kPerMiB),
              run.steps(&StepRecord::memory_bytes, "MiB of tensors", kPerMiB)});
  return charts;
}

// The size of the tape when the backward pass starts. With truncated backpropagation the lines are flat.
Charts graph_charts(const RunSeries& run) {
  Charts charts;
  charts.add("Nodes and depth of the graph", "nodes",
             {run.steps(&StepRecord::graph_nodes, "nodes"), run.steps(&StepRecord::graph_depth, "depth")});
  charts.add("Saved for the backward pass", "MiB",
             {run.steps(&StepRecord::saved_bytes, "saved for the backward pass", kPerMiB)});
  return charts;
}

std::vector<StatTile> summary(const ReportData& data, const RunSeries& run) {
  std::vector<StatTile> tiles;
  if (const EvalRecord* best = run.best(); best != nullptr)
    tiles.push_back({"Best validation loss", human_number(best->loss),
                     fmt::format("at step {}, on {}", grouped(best->step), extent(*best))});
  if (const EvalRecord* whole = run.whole(); whole != nullptr)
    tiles.push_back({"Validation loss, whole split", human_number(whole->loss),
                     fmt::format("at step {}, on {}", grouped(whole->step), extent(*whole))});
  if (const auto [loss, records] = run.final_training_loss(); records > 0) {
    const bool trains = data.status && data.status->every_s > 0;
    tiles.push_back(
        {trains ? "Training loss" : "Final training loss", human_number(loss),
         records > 1 ? fmt::format("median of the last {} records", records)
                     : fmt::format("at step {}, the last logged", grouped(run.step_records().back().step))});
    tiles.push_back({"Steps", grouped(run.last_step()), ""});
  }
  if (data.tokens_seen > 0)
    tiles.push_back({"Tokens seen", human_count(static_cast<double>(data.tokens_seen)),
                     data.epochs > 0 ? epochs_text(data.epochs) : ""});
  if (std::isfinite(data.seconds)) tiles.push_back({"Time", human_duration(data.seconds), ""});
  if (const double speed = run.tokens_per_second(); std::isfinite(speed))
    tiles.push_back({"Tokens per second", human_count(speed), "median"});
  if (data.parameters > 0)
    tiles.push_back(
        {"Parameters", human_count(static_cast<double>(data.parameters)), grouped(data.parameters)});
  if (const std::optional<double> gain = run.state_gain(); gain && std::isfinite(*gain))
    tiles.push_back({"State gain", human_number(*gain),
                     *gain < kMinStateGain ? "nats: the state is ignored" : "nats lost without the state"});
  if (const std::int64_t resident = run.most(&StepRecord::resident_bytes); resident > 0)
    tiles.push_back({"Memory", human_bytes(resident), "resident at most, text included"});
  else if (const std::int64_t tensors = run.most(&StepRecord::memory_bytes); tensors > 0)
    tiles.push_back({"Memory", human_bytes(tensors), "of tensors at most"});
  return tiles;
}

// What the loss is worth: the best bits per byte among the baselines, and whether more steps will help.
void add_judgement(HtmlPage& page, const ReportData& data, const RunSeries& run) {
  if (!data.baselines && data.learning_verdict.empty()) return;
  page.heading("Is it good?");
  if (data.baselines) {
    std::vector<std::pair<std::string, double>> all = data.baselines->listed();
    if (const EvalRecord* best = run.best(); best != nullptr)
      for (const auto& [name, value] : best->metrics)
        if (readable(name) == kBitsPerByte && std::isfinite(value))
          all.emplace_back(fmt::format("this run, at step {}", grouped(best->step)), value);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    Table table{{"predictor", "bits per byte"}};
    for (const auto& [name, value] : all) table.rows.push_back({name, fmt::format("{:.2f}", value)});
    if (!data.baselines->no_xz.empty())
      table.rows.push_back({"xz", "not measured: " + data.baselines->no_xz});
    page.table(table);
    page.paragraph(fmt::format("The simple predictors are {}.", data.baselines->samples()));
  }
  if (!data.learning_verdict.empty())
    page.paragraph(fmt::format("{}; {}.", epochs_text(data.epochs), data.learning_verdict));
}

std::string shortened(const std::string& text) {
  if (text.size() <= kMostTextBytes) return text;
  std::size_t end = kMostTextBytes;
  while (end > 0 && is_continuation(text[end])) --end;  // not inside a character
  return fmt::format("{}\n[{} more {}]", text.substr(0, end), text.size() - end,
                     plural(text.size() - end, "byte"));
}

// All samples on a slider; of very many those that are kept, evenly spaced.
void add_samples(HtmlPage& page, const Metrics& metrics) {
  if (metrics.samples.empty()) return;
  std::vector<LabelledText> texts;
  for (const SampleRecord& record : metrics.samples) {
    const std::string known = known_words_text(record);
    texts.push_back({fmt::format("sample {} of {}, at step {}{}{}", texts.size() + 1, metrics.samples.size(),
                                 grouped(record.step), known.empty() ? "" : ": ", known),
                     shortened(record.text)});
  }
  page.heading("Samples");
  if (metrics.written_samples > std::ssize(metrics.samples))
    page.paragraph(fmt::format("{} of the run's {} samples; metrics.jsonl has all.", texts.size(),
                               grouped(metrics.written_samples)));
  page.slider("sample", texts);
}

// A section of the task's own.
void add_section(HtmlPage& page, const ReportSection& section) {
  page.heading(section.heading);
  if (!section.pictures.empty()) page.pictures(section.pictures);
  for (const Chart& chart : section.wide) page.chart(chart);
  if (!section.charts.empty()) page.charts(section.charts);
  if (!section.texts.empty()) page.texts(section.texts);
}

// The settings that differ from the defaults, and folded all the others.
void add_config(HtmlPage& page, RunConfig config) {
  RunConfig defaults;
  const ConfigKeys given = keys_of(config);
  const auto differing = differences(given, keys_of(defaults));
  std::vector<std::vector<std::string>> changed, rest;
  for (const ConfigField& field : given.fields())
    (differing.contains(field.full_key()) ? changed : rest).push_back({field.full_key(), text_of(field)});
  const std::vector<std::string> header = {"setting", "value"};
  page.heading("Configuration");
  if (!changed.empty()) page.table({header, changed});
  page.folded(fmt::format("{} {} at their defaults", rest.size(), plural(rest.size(), "setting")), [&] {
    page.table({header, rest});
  });
}

void add_events(HtmlPage& page, const Metrics& metrics) {
  const std::vector<EventRecord>& events = metrics.events;
  if (events.empty()) return;
  page.heading("Events");
  const std::size_t left_out = events.size() > kShownEvents ? events.size() - kShownEvents : 0;
  if (const std::int64_t all = metrics.earlier_events + std::ssize(events); left_out > 0)
    page.paragraph(fmt::format("The last {} of {} events.", kShownEvents, all));
  Table table{{"step", "what happened"}};
  for (std::size_t i = left_out; i < events.size(); ++i)
    table.rows.push_back({grouped(events[i].step), shortened(events[i].text)});
  page.table(table);
}

void add_circumstances(HtmlPage& page, const ReportData& data) {
  std::vector<std::vector<std::string>> rows;
  for (const CommandRecord& command : data.metrics.commands)
    rows.push_back({command.step == 0 ? "command" : fmt::format("command at step {}", grouped(command.step)),
                    shortened(command.text)});
  for (const std::string& line : data.environment) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos)
      rows.push_back({"", line});
    else
      rows.push_back({line.substr(0, colon), line.substr(colon + 2)});
  }
  if (rows.empty()) return;
  page.heading("How it was run");
  page.table({{}, rows});
}

}  // namespace

std::string render_report(const ReportData& data) {
  std::string subtitle = data.config.model.model;
  if (data.parameters > 0)
    subtitle += ", " + human_count(static_cast<double>(data.parameters)) + " parameters";
  const RunSeries run(data.metrics, data.phase_began);
  HtmlPage page(data.title, subtitle);
  if (data.status) page.status(*data.status);
  page.tiles(summary(data, run));
  if (run.empty()) {
    page.paragraph("No step has been recorded yet.");
  } else {
    add_course(page, run, {loss_chart(run)}, true);
  }
  add_judgement(page, data, run);
  add_course(page, run, measure_charts(run, data.baselines), false);
  training_charts(run).add_to(page);
  if (const Charts charts = graph_charts(run); !charts.charts.empty() || !charts.flat.empty()) {
    page.heading("Graph of a segment");
    charts.add_to(page);
  }
  add_samples(page, data.metrics);
  for (const ReportSection& section : data.sections) add_section(page, section);
  add_events(page, data.metrics);
  add_config(page, data.config);
  add_circumstances(page, data);
  return page.html();
}

std::filesystem::path write_report(const std::filesystem::path& run_dir, const ReportData& data) {
  const std::filesystem::path path = run_dir / "report.html";
  write_output_file("report", path.string(), render_report(data), kPageFile);
  return path;
}

}  // namespace eddy::app
