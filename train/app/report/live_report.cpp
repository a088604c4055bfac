// How a run stands in words, and the page made of what it shows.
#include "train/app/report/live_report.h"

#include <chrono>
#include <cmath>
#include <string>

#include "tensor/base/format.h"
#include "train/plan/environment.h"
#include "train/run/run_facts.h"
#include "train/run/run_texts.h"
#include "train/step/clock.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

// All but when the page is written.
PageStatus running_status(const RunView& view) {
  const ReadyRun& run = view.run;
  const Clock::time_point now = Clock::now();
  const TrainConfig& t = run.config.train;
  PageStatus status;
  status.word = "running";
  status.every_s = std::ceil(view.every_s);
  status.text = fmt::format("step {} of {}", grouped(run.state.step), grouped(t.steps));
  status.text +=
      fmt::format(", {:.0f} % done", std::floor(100 * view.progress.part_done(run.state.step, now)));
  if (t.minutes > 0) status.text += fmt::format(" of {}", human_duration(60 * t.minutes));
  if (const std::optional<double> left = view.progress.seconds_left(now))
    status.text += fmt::format(", {} left", human_duration(std::floor(*left)));
  const std::string folder = shell_quoted(run.folder.string());
  status.commands = {stopping_text(),
                     fmt::format("to go on after that: {} train --resume {}", program_name(), folder)};
  return status;
}

PageStatus ended_status(const ReadyRun& run, TrainEnd end) {
  constexpr const char* kWords[] = {"finished", "finished", "interrupted", "stopped"};
  PageStatus status;
  status.word = kWords[static_cast<std::size_t>(end)];
  status.text = fmt::format("at step {}", grouped(run.state.step));
  const std::string folder = shell_quoted(run.folder.string());
  if (end == TrainEnd::time_over)
    status.text += fmt::format(", after {}", human_duration(60 * run.config.train.minutes));
  if (end == TrainEnd::too_many_bad_steps) status.text += ": too many steps in a row were not finite";
  if (end == TrainEnd::interrupted) {
    status.text += ", saved";
    status.commands = {fmt::format("to go on: {} train --resume {}", program_name(), folder)};
  } else {
    status.commands = continuing_texts(run, end);
  }
  if (run.task->tokenizer() != nullptr)
    status.commands.push_back(fmt::format("to write with it: {} chat {}", program_name(), folder));
  return status;
}

PageStatus failed_status(const ReadyRun& run) {
  PageStatus status;
  status.word = "failed";
  status.text = fmt::format("at step {}: an error ended it", grouped(run.state.step));
  status.commands = {
      fmt::format("to go on: {} train --resume {}", program_name(), shell_quoted(run.folder.string()))};
  return status;
}

PageStatus status_of(const RunView& view) {
  PageStatus status = view.failed ? failed_status(view.run)
                      : view.end  ? ended_status(view.run, *view.end)
                                  : running_status(view);
  const std::chrono::duration<double> written = std::chrono::system_clock::now().time_since_epoch();
  status.written_s = written.count();
  return status;
}

}  // namespace

void LiveReport::operator()(const RunView& view) {
  const ReadyRun& run = view.run;
  if (view.whole) sections_ = run.task->report(*run.model);
  ReportData data;
  data.status = status_of(view);
  data.seconds = view.seconds;
  data.sections = sections_;
  data.title = fmt::format("{} on {}", run.config.model.model, run.task->name());
  data.parameters = run.model->params().count();
  data.config = run.config;
  data.environment = environment_lines();
  data.metrics = view.records.metrics();
  data.phase_began = phase_began(run);
  data.tokens_seen = run.state.tokens;
  data.baselines = run.state.baselines;
  data.epochs = epochs_of(run);
  data.learning_verdict = learning_verdict_of(run, view.records);
  write_report(run.folder, data);
}

}  // namespace eddy::app
