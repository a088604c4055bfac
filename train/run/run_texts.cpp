// Lines for the terminal and the events of a run.
#include "train/run/run_texts.h"

#include <algorithm>
#include <cstdint>

#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"
#include "train/page/human_text.h"

namespace eddy {

std::string opening_text(const ReadyRun& run) {
  const TrainConfig& t = run.config.train;
  return fmt::format("{} on {}: {} parameters (width {}), {}, {} on {}, {} threads, {}",
                     run.config.model.model, run.task->name(), run.model->params().count(),
                     run.config.model.dim, run.task->summary(), t.precision, t.device, thread_count(),
                     run.folder.string());
}

std::string resumed_text(const ReadyRun& run, bool nothing_to_train) {
  const std::int64_t step = run.state.step;
  if (!nothing_to_train) return fmt::format("resumed at step {}", step);
  if (run.state.learned)
    return fmt::format(
        "the task was learned at step {}: nothing is left to train (go on with a lower --data.stop_loss; 0: without an "
        "early end)",
        step);
  return fmt::format(
      "all {0} steps are done: nothing is left to train (go on with --train.steps N, N above {0})", step);
}

std::string ended_text(const ReadyRun& run, TrainEnd end) {
  if (end == TrainEnd::time_over)
    return fmt::format("stopped after {} minutes at step {}", run.config.train.minutes, run.state.step);
  if (end == TrainEnd::interrupted)
    return fmt::format("interrupted at step {}: saved; go on with --resume {}", run.state.step,
                       run.folder.string());
  return {};
}

std::vector<std::string> continuing_texts(const ReadyRun& run, TrainEnd end) {
  const std::string folder = shell_quoted(run.folder.string());
  if (end == TrainEnd::time_over) return {fmt::format("to go on: eddy train --resume {}", folder)};
  if (end != TrainEnd::finished || run.state.learned) return {};
  std::vector<std::string> lines = {fmt::format("to train on: eddy train --resume {} --train.steps {}",
                                                folder,
                                                2 * std::max<std::int64_t>(run.config.train.steps, 1))};
  if (run.task->tokenizer() != nullptr)
    lines.push_back(fmt::format("on another text: eddy train --init-from {} --data TEXTS --run NEW", folder));
  return lines;
}

}  // namespace eddy
