// Measures steps of each row on its own data.
#include "train/app/reproduce/time_left.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "models/eddy/fit_params.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"
#include "train/app/measure/run_speed.h"
#include "train/app/reproduce/run.h"
#include "train/plan/memory_verdict.h"
#include "train/process/stop_signal.h"
#include "train/step/clock.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::int64_t kFewSteps = 100;  // a row of fewer is over before a time is of use

}  // namespace

RowTimer::RowTimer() = default;
RowTimer::~RowTimer() = default;

RowTimer::Times RowTimer::of(const RunConfig& wanted, double seconds) {
  const std::string key = task_key(wanted);
  if (!task_ || key != key_) {
    task_.reset();
    TaskArguments arguments;
    arguments.config = wanted;
    task_ = make_task(std::move(arguments));
    key_ = key;
  }
  RunConfig config = wanted;
  if (config.train.threads > 0) set_thread_count(static_cast<int>(config.train.threads));
  const DevicePrecision placement = choose_device_precision({"reproduce", "train.device", "train.precision"},
                                                            config.train.device, config.train.precision);
  task_->set_model_sizes(config.model);
  fit_params(config.model);
  PlannedRun run = planned_run(config, placement, *task_, resident_bytes());
  if (judge(run, plan_memory(run), memory_budget()).fit == Fit::exceeds) return {};
  run.batch = task_->next(0, 0);  // not the longest that training may come to
  const RunSpeed speed = measure_run_speed(run, seconds);
  const double all = time_of_run(run, *task_, speed).seconds();
  return {speed.step.median, config.train.minutes > 0 ? std::min(all, 60 * config.train.minutes) : all};
}

TimeLeft::TimeLeft(const std::vector<const ReproduceRow*>& rows) : seconds_(rows.size()) {
  for (const ReproduceRow* row : rows) rows_.push_back(*row);
}

void TimeLeft::measure(const std::function<void(std::string_view)>& log, const Measuring& how) {
  const bool worth = std::any_of(rows_.begin(), rows_.end(),
                                 [](const ReproduceRow& row) { return row.config.train.steps >= kFewSteps; });
  if (!worth) return;
  std::set<std::string> groups;
  for (const ReproduceRow& row : rows_) groups.insert(row.group);
  log(fmt::format("timing some steps of {} {}\n", groups.size(), plural(groups.size(), "row")));
  std::map<std::string, RowTimer::Times> times;  // by the group of the row
  RowTimer timer;
  double tuning = 0, timed_seconds = 0, timed_operations = 0;
  const Clock::time_point begun = Clock::now();
  for (std::size_t i = 0; i < rows_.size() && !stop_requested(); ++i) {
    const ReproduceRow& row = rows_[i];
    const auto [known, is_new] = times.try_emplace(row.group);
    if (is_new) {
      const auto found = how.operations.find(row.name);
      const double operations = found == how.operations.end() ? 0 : found->second;
      const bool estimated = timed_operations > 0 && operations > 0 && seconds_between(begun) > how.most;
      try {
        known->second.training = estimated ? operations * timed_seconds / timed_operations
                                           : timer.of(row.config, how.seconds).training;
      } catch (const Error&) {
        continue;  // what is wrong is told when the row is trained
      }
      if (!estimated && operations > 0) {
        timed_seconds += known->second.training;
        timed_operations += operations;
      }
      const double share = static_cast<double>(row.tuning.steps_left) /
                           static_cast<double>(std::max<std::int64_t>(row.config.train.steps, 1));
      const double trials = share * known->second.training;
      tuning += trials;
      log(fmt::format("  {}: about {}{}{}\n", row.name, human_duration(known->second.training),
                      trials > 0 ? fmt::format(", and {} for its tuning", human_duration(trials)) : "",
                      estimated ? ", by its operations" : ""));
    }
    seconds_[i] = known->second.training;
  }
  const double all = (left_from(0) + tuning) / static_cast<double>(how.jobs);
  log(fmt::format(
      "all: about {}{}, and the measuring of the rows\n", human_duration(all),
      how.jobs > 1 ? fmt::format(" if {} rows side by side are no slower than one alone", how.jobs) : ""));
}

std::size_t TimeLeft::place_of(const ReproduceRow& row) const {
  const auto found =
      std::find_if(rows_.begin(), rows_.end(), [&](const ReproduceRow& one) { return one.name == row.name; });
  return static_cast<std::size_t>(found - rows_.begin());
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
