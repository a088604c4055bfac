// Reads runs, groups them by their seed, and draws their means and bands.
#include "train/app/report/side_by_side.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tensor/base/format.h"
#include "train/run/checkpoint.h"
#include "train/run/run_facts.h"
#include "train/run/run_folder.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

constexpr const char* kNoValue = "-";  // of a configuration's key, in a run without one
constexpr const char* kCsvHead = "run,measure,step,tokens,operations,seconds,value\n";

// Whether a folder is that of a program's own loop (train/loops/user_loop.h): it has no configuration.
bool is_user_loop(const std::string& folder, const Metrics& metrics) {
  std::error_code error;
  return metrics.run && !fs::exists(fs::path(folder) / "config.json", error);
}

// The latest configuration of a run; that it began with where it has no checkpoint yet.
RunConfig config_of(const std::string& folder) {
  if (checkpoints_of_run(folder).empty()) return load_run_config((fs::path(folder) / "config.json").string());
  return load_config_of_run(folder);
}

// The values of a series that are finite: the others leave no gap in a curve.
Series finite(const Series& series) {
  Series kept{series.name, {}, {}};
  for (std::size_t i = 0; i < series.x.size(); ++i)
    if (std::isfinite(series.y[i])) kept.add(series.x[i], series.y[i]);
  return kept;
}

// Where the runs of a group stood: tokens of the first one, since the configuration decides them, and the mean of the
// seconds.
StepTimeline timeline_of(const std::vector<ReportedRun>& runs, const SeedGroup& group) {
  std::vector<StepTimeline> timelines;
  std::vector<StepRecord> first, records;
  for (const std::size_t run : group.runs) {
    const std::vector<StepRecord>& steps = runs[run].series.step_records();
    if (steps.empty()) continue;
    timelines.emplace_back(steps);
    if (first.empty()) first = steps;
  }
  for (StepRecord record : first) {
    double seconds = 0;
    for (const StepTimeline& timeline : timelines) seconds += timeline.at(record.step, XAxis::seconds);
    if (!std::isfinite(seconds)) continue;  // a run that has ended
    record.seconds = seconds / static_cast<double>(timelines.size());
    records.push_back(std::move(record));
  }
  return StepTimeline(records, runs[group.runs.front()].facts.flops_per_token);
}

// The measures beside the loss of any run, in the order in which they appear.
std::vector<std::string> measures_of(const std::vector<ReportedRun>& runs) {
  std::vector<std::string> names;
  for (const ReportedRun& run : runs)
    for (const std::string& name : run.series.measures())
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string csv_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : std::string();
}

}  // namespace

const OutputKind kPointsFile{"a file of points of Eddy's", [](const std::string& path) {
                               std::string line;
                               std::ifstream file(path, std::ios::binary);
                               return std::getline(file, line) && line + "\n" == kCsvHead;
                             }};

ReportedRun read_reported_run(const std::string& folder) {
  ReportedRun run;
  run.folder = folder;
  run.name = fs::absolute(folder).lexically_normal().filename().string();
  if (run.name.empty())  // "runs/a/"
    run.name = fs::absolute(folder).lexically_normal().parent_path().filename().string();
  run.series = RunSeries::read(fs::path(folder) / "metrics.jsonl");
  const Metrics& records = run.series.records();
  if (!records.run && run.series.empty())
    fail<FormatError>("report: {}/metrics.jsonl has no record ({} eval measures the model of the run)",
                      folder, program_name());
  run.user_loop = is_user_loop(folder, records);
  if (!run.user_loop) run.config = config_of(folder);
  // A file whose line is lost does not say them.
  run.facts = records.run ? *records.run : facts_of(run.config);
  return run;
}

std::vector<ReportedRun> read_reported_runs(const std::vector<std::string>& folders) {
  std::vector<ReportedRun> runs = read_runs(folders, read_reported_run);
  std::map<std::string, int> names;
  for (const ReportedRun& run : runs) ++names[run.name];
  for (ReportedRun& run : runs)
    if (names[run.name] > 1) run.name = run.folder;
  return runs;
}

std::vector<SeedGroup> groups_of(const std::vector<ReportedRun>& runs) {
  std::vector<const RunConfig*> configs;
  for (const ReportedRun& run : runs)
    configs.push_back(run.user_loop || run.series.empty() ? nullptr : &run.config);
  std::vector<SeedGroup> groups;
  for (std::vector<std::size_t>& group : groups_by_seed(configs)) {
    std::string name = runs[group.front()].name;
    if (const std::size_t more = group.size() - 1; more > 0)
      name += fmt::format(" and {} more {}", more, plural(more, "seed"));
    groups.push_back({std::move(name), std::move(group)});
  }
  return groups;
}

std::vector<std::string> listed_apart(const std::vector<ReportedRun>& runs) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].series.empty()) {
      if (runs.size() > 1)
        lines.push_back(
            fmt::format("{} has recorded no step and no evaluation, and belongs to no mean", runs[i].name));
      continue;
    }
    const auto end = runs.begin() + static_cast<std::ptrdiff_t>(i);
    const auto same = std::find_if(runs.begin(), end, [&](const ReportedRun& earlier) {
      return !runs[i].user_loop && !earlier.user_loop && !earlier.series.empty() &&
             earlier.config == runs[i].config;
    });
    if (same != end)
      lines.push_back(
          fmt::format("{} has the configuration and the seed of {}, and is listed apart (a copy, or a second "
                      "run of one seed)",
                      runs[i].name, same->name));
  }
  return lines;
}

Table differences_of(const std::vector<ReportedRun>& runs, const std::vector<SeedGroup>& groups) {
  Table table{{"setting"}};
  std::vector<std::string> keys;
  std::map<std::string, std::vector<std::string>> values;  // of each run
  for (const ReportedRun& run : runs) {
    RunConfig config = run.config;
    const ConfigKeys fields = keys_of(config);
    for (const ConfigField& field : fields.fields()) {
      std::vector<std::string>& all = values[field.full_key()];
      if (all.empty()) keys.push_back(field.full_key());
      all.push_back(run.user_loop ? kNoValue : text_of(field));
    }
  }
  for (const SeedGroup& group : groups) table.header.push_back(group.name);
  for (const std::string& key : keys) {
    const std::vector<std::string>& all = values[key];
    std::set<std::string> different(all.begin(), all.end());
    different.erase(kNoValue);
    if (different.size() < 2) continue;
    std::vector<std::string> row{key};
    for (const SeedGroup& group : groups) {
      std::string cell;
      std::set<std::string> named;
      for (const std::size_t run : group.runs)
        if (run < all.size() && named.insert(all[run]).second) cell += (cell.empty() ? "" : ", ") + all[run];
      row.push_back(std::move(cell));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<Chart> curves_of_groups(const std::vector<ReportedRun>& runs,
                                    const std::vector<SeedGroup>& groups, XAxis axis) {
  std::vector<std::string> names{"Validation loss", "Training loss, running median"};
  const std::vector<std::string> measures = measures_of(runs);
  for (const std::string& measure : measures) names.push_back(with_spaces(measure));
  std::vector<Chart> charts;
  for (std::size_t n = 0; n < names.size(); ++n) {
    Chart chart{names[n], axis_title(axis), n < 2 ? "loss, nats" : names[n], false, false, {}};
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::vector<Series> of_runs;
      for (const std::size_t run : groups[g].runs) {
        const RunSeries& series = runs[run].series;
        of_runs.push_back(n == 1 ? smoothed(series.steps(&StepRecord::loss))
                                 : finite(series.evaluations(n == 0 ? "loss" : measures[n - 2])));
      }
      Chart by_step;
      add_runs(by_step, std::move(of_runs), groups[g].name, static_cast<int>(g));
      Chart drawn = with_x_axis(std::move(by_step), timeline_of(runs, groups[g]), axis);
      std::move(drawn.series.begin(), drawn.series.end(), std::back_inserter(chart.series));
    }
    chart.log_y = wants_log(chart.series);
    if (!chart.series.empty()) charts.push_back(std::move(chart));
  }
  return charts;
}

std::string points_csv(const std::vector<ReportedRun>& runs) {
  std::string text = kCsvHead;
  for (const ReportedRun& run : runs) {
    const StepTimeline timeline(run.series.step_records(), run.facts.flops_per_token);
    const auto add = [&](const std::string& measure, std::int64_t step, double value) {
      text += fmt::format("{},{},{}", csv_cell(run.name), csv_cell(measure), step);
      for (const XAxis axis : {XAxis::tokens, XAxis::operations, XAxis::seconds})
        text += "," + csv_number(timeline.at(step, axis));
      text += "," + csv_number(value) + "\n";
    };
    for (const StepRecord& record : run.series.step_records()) {
      add("train_loss", record.step, record.loss);
      add("tokens_per_second", record.step, record.tokens_per_second);
    }
    for (const EvalRecord& eval : run.series.records().evals) {
      const std::string split = eval.split + (eval.whole ? "_whole_" : "_");
      add(split + "loss", eval.step, eval.loss);
      for (const auto& [name, value] : eval.metrics) add(split + name, eval.step, value);
    }
  }
  return text;
}

}  // namespace eddy::app
