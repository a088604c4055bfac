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

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

constexpr const char* kNoValue = "-";  // of a configuration's key, in a run without one
constexpr const char* kCsvHead = "run,measure,step,tokens,operations,seconds,value\n";

// Whether a folder is that of a program's own loop (train/loops/own_loop.h): it has no configuration.
bool is_own_loop(const std::string& folder, const Metrics& metrics) {
  std::error_code error;
  return metrics.run && !fs::exists(fs::path(folder) / "config.json", error);
}

// The latest configuration of a run; that it began with where it has no checkpoint yet.
RunConfig config_of(const std::string& folder) {
  if (checkpoints_of_run(folder).empty()) return load_run_config((fs::path(folder) / "config.json").string());
  return load_config_of_run(folder);
}

// The validation loss (an empty name) or a measure beside it, by step.
Series evaluations_of(const ReportedRun& run, const std::string& measure) {
  Series series{run.name, {}, {}};
  for (const EvalRecord& eval : run.metrics.evals) {
    if (eval.split != "valid" || eval.whole) continue;
    double value = measure.empty() ? eval.loss : kNotMeasured;
    for (const auto& [name, number] : eval.extras)
      if (name == measure) value = number;
    if (std::isfinite(value)) series.add(static_cast<double>(eval.step), value);
  }
  return series;
}

Series training_of(const ReportedRun& run) {
  Series raw{run.name, {}, {}};
  for (const StepRecord& record : run.metrics.steps) raw.add(static_cast<double>(record.step), record.loss);
  Series smooth = running_median(raw);
  return smooth.x.empty() ? raw : smooth;
}

// Where the runs of a group stood: tokens of the first one, since the configuration decides them, and the mean of the
// seconds.
Course course_of(const std::vector<ReportedRun>& runs, const SeedGroup& group) {
  std::vector<Course> courses;
  std::vector<StepRecord> first, records;
  for (const std::size_t run : group.runs) {
    const std::vector<StepRecord>& steps = runs[run].metrics.steps;
    if (steps.empty()) continue;
    courses.emplace_back(steps);
    if (first.empty()) first = steps;
  }
  for (StepRecord record : first) {
    double seconds = 0;
    for (const Course& course : courses) seconds += course.at(record.step, Along::seconds);
    if (!std::isfinite(seconds)) continue;  // a run that has ended
    record.seconds = seconds / static_cast<double>(courses.size());
    records.push_back(std::move(record));
  }
  return Course(records, runs[group.runs.front()].facts.flops_per_token);
}

// The names of measures beside the loss, in the order in which they appear.
std::vector<std::string> measures_of(const std::vector<ReportedRun>& runs) {
  std::vector<std::string> names;
  for (const ReportedRun& run : runs)
    for (const EvalRecord& eval : run.metrics.evals)
      for (const auto& [name, value] : eval.extras)
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

const OwnKind kOwnPoints{"a file of points of Eddy's", [](const std::string& path) {
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
  run.metrics = read_metrics(fs::path(folder) / "metrics.jsonl");
  run.own_loop = is_own_loop(folder, run.metrics);
  if (!run.own_loop) run.config = config_of(folder);
  // A file whose line is lost does not say them.
  run.facts = run.metrics.run ? *run.metrics.run : facts_of(run.config);
  return run;
}

std::vector<ReportedRun> read_reported_runs(const std::vector<std::string>& folders) {
  std::vector<ReportedRun> runs;
  std::map<std::string, int> names;
  for (const std::string& folder : folders) ++names[runs.emplace_back(read_reported_run(folder)).name];
  for (ReportedRun& run : runs)
    if (names[run.name] > 1) run.name = run.folder;
  return runs;
}

std::vector<SeedGroup> groups_of(const std::vector<ReportedRun>& runs) {
  std::vector<SeedGroup> groups;
  std::vector<RunConfig> configs;  // of the groups, with one seed
  for (std::size_t i = 0; i < runs.size(); ++i) {
    RunConfig config = runs[i].config;
    config.train.seed = 0;
    if (runs[i].own_loop) config.data.name.clear();  // that of no run
    const auto found = std::find(configs.begin(), configs.end(), config);
    if (runs[i].own_loop || found == configs.end()) {
      configs.push_back(std::move(config));
      groups.push_back({runs[i].name, {i}});
    } else {
      groups[static_cast<std::size_t>(found - configs.begin())].runs.push_back(i);
    }
  }
  for (SeedGroup& group : groups)
    if (group.runs.size() > 1)
      group.name +=
          fmt::format(" and {} more {}", group.runs.size() - 1, plural(group.runs.size() - 1, "seed"));
  return groups;
}

TextTable differences_of(const std::vector<ReportedRun>& runs, const std::vector<SeedGroup>& groups) {
  TextTable table{{"setting"}, {}};
  std::vector<std::string> keys;
  std::map<std::string, std::vector<std::string>> values;  // of each run
  for (const ReportedRun& run : runs) {
    RunConfig config = run.config;
    const ConfigKeys fields = keys_of(config);
    for (const ConfigField& field : fields.fields()) {
      std::vector<std::string>& all = values[field.full_key()];
      if (all.empty()) keys.push_back(field.full_key());
      all.push_back(run.own_loop ? kNoValue : text_of(field));
    }
  }
  for (const SeedGroup& group : groups) table.head.push_back(group.name);
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
                                    const std::vector<SeedGroup>& groups, Along along) {
  std::vector<std::string> names{"Validation loss", "Training loss, running median"};
  const std::vector<std::string> measures = measures_of(runs);
  for (const std::string& measure : measures) {
    std::string title = measure;
    std::replace(title.begin(), title.end(), '_', ' ');
    names.push_back(std::move(title));
  }
  std::vector<Chart> charts;
  for (std::size_t n = 0; n < names.size(); ++n) {
    Chart chart{names[n], axis_title(along), n < 2 ? "loss, nats" : names[n], false, false, {}};
    for (std::size_t g = 0; g < groups.size(); ++g) {
      std::vector<Series> of_runs;
      for (const std::size_t run : groups[g].runs)
        of_runs.push_back(n == 1 ? training_of(runs[run])
                                 : evaluations_of(runs[run], n == 0 ? std::string() : measures[n - 2]));
      Chart by_step;
      add_runs(by_step, std::move(of_runs), groups[g].name, static_cast<int>(g));
      Chart drawn = drawn_along(std::move(by_step), course_of(runs, groups[g]), along);
      std::move(drawn.series.begin(), drawn.series.end(), std::back_inserter(chart.series));
    }
    chart.log_y = wants_log(chart.series);
    if (!chart.series.empty()) charts.push_back(std::move(chart));
  }
  return charts;
}

std::string points_csv(const std::vector<ReportedRun>& runs) {
  std::string text = kCsvHead;
  const std::vector<std::string> measures = measures_of(runs);
  for (const ReportedRun& run : runs) {
    const Course course(run.metrics.steps, run.facts.flops_per_token);
    const auto add = [&](const std::string& measure, std::int64_t step, double value) {
      text += fmt::format("{},{},{}", csv_cell(run.name), csv_cell(measure), step);
      for (const Along along : {Along::tokens, Along::operations, Along::seconds})
        text += "," + csv_number(course.at(step, along));
      text += "," + csv_number(value) + "\n";
    };
    for (const StepRecord& record : run.metrics.steps) {
      add("train_loss", record.step, record.loss);
      add("tokens_per_second", record.step, record.tokens_per_second);
    }
    for (const EvalRecord& eval : run.metrics.evals) {
      const std::string split = eval.split + (eval.whole ? "_whole_" : "_");
      add(split + "loss", eval.step, eval.loss);
      for (const auto& [name, value] : eval.extras) add(split + name, eval.step, value);
    }
  }
  return text;
}

}  // namespace eddy::app
