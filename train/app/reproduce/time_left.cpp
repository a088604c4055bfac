// Measures steps of each row on its own data.
#include "train/app/reproduce/time_left.h"

#include <algorithm>
#include <memory>

#include "models/eddy/fit_params.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"
#include "train/app/measure/run_speed.h"
#include "train/app/reproduce/run.h"
#include "train/plan/memory_verdict.h"
#include "train/step/stop_signal.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::int64_t kFewSteps = 100;  // a row of fewer is over before a time is of use
constexpr double kMeasuredSeconds = 1;

// Makes the tasks of rows, one at a time: rows in a row that read the same data share theirs.
class SharedTask {
 public:
  Task& of(const RunConfig& config) {
    const std::string key = task_key(config);
    if (!task_ || key != key_) {
      task_.reset();
      TaskArguments arguments;
      arguments.config = config;
      task_ = make_task(std::move(arguments));
      key_ = key;
    }
    return *task_;
  }

 private:
  std::unique_ptr<Task> task_;
  std::string key_;
};

// errors: those of the row's data, its model and its steps.
double seconds_of(RunConfig config, Task& task) {
  if (config.train.threads > 0) set_thread_count(static_cast<int>(config.train.threads));
  const DevicePrecision placement = choose_device_precision({"reproduce", "train.device", "train.precision"},
                                                            config.train.device, config.train.precision);
  task.set_model_sizes(config.model);
  fit_params(config.model);
  PlannedRun run = planned_run(config, placement, task, resident_bytes());
  if (judge(run, plan_memory(run), memory_budget()).fit == Fit::exceeds) return 0;
  run.batch = task.next(0, 0);  // not the longest that training may come to
  const double seconds = time_of_run(run, task, measure_run_speed(run, kMeasuredSeconds)).seconds();
  return config.train.minutes > 0 ? std::min(seconds, 60 * config.train.minutes) : seconds;
}

}  // namespace

TimeLeft::TimeLeft(std::vector<const ReproduceRow*> rows) : rows_(std::move(rows)), seconds_(rows_.size()) {}

void TimeLeft::measure(const std::function<void(std::string_view)>& log) {
  const bool worth = std::any_of(rows_.begin(), rows_.end(), [](const ReproduceRow* row) {
    return row->config.train.steps >= kFewSteps;
  });
  if (!worth) return;
  log(fmt::format("timing some steps of {} {}\n", rows_.size(), plural(rows_.size(), "row")));
  SharedTask shared;
  for (std::size_t i = 0; i < rows_.size() && !stop_requested(); ++i) {
    try {
      seconds_[i] = seconds_of(rows_[i]->config, shared.of(rows_[i]->config));
    } catch (const Error&) {
      continue;  // what is wrong is told when the row is trained
    }
    log(fmt::format("  {}: about {}\n", rows_[i]->name, human_duration(seconds_[i])));
  }
  log(fmt::format("all: about {}, and the measuring of the rows\n", human_duration(left_from(0))));
}

std::size_t TimeLeft::place_of(const ReproduceRow& row) const {
  return static_cast<std::size_t>(std::find(rows_.begin(), rows_.end(), &row) - rows_.begin());
}

double TimeLeft::left_from(std::size_t place) const {
  double left = 0;
  for (std::size_t i = place; i < seconds_.size(); ++i) left += seconds_[i];
  return planned_ > 0 ? left * taken_ / planned_ : left;
}

std::string TimeLeft::begin(const ReproduceRow& row) {
  const std::size_t place = place_of(row);
  const double left = left_from(place);
  const std::string time =
      left > 0 ? fmt::format(", about {} to the end of the table", human_duration(left)) : "";
  return fmt::format("\n== row {} of {}, {}: {}{} ==\n", place + 1, rows_.size(), row.name, row.title, time);
}

std::string TimeLeft::end(const ReproduceRow& row, double seconds) {
  const std::size_t place = place_of(row);
  if (place >= seconds_.size() || seconds_[place] == 0) return {};
  planned_ += seconds_[place];
  taken_ += seconds;
  const double left = left_from(place + 1);
  if (left == 0) return {};
  const std::size_t rows = rows_.size() - place - 1;
  return fmt::format("{}: trained in {}; about {} left for {} more {}\n", row.name, human_duration(seconds),
                     human_duration(left), rows, plural(rows, "row"));
}

}  // namespace eddy::app
