// Lines for the terminal and the events of a run.
#include "train/run/run_texts.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"
#include "train/plan/environment.h"
#include "train/plan/run_progress.h"
#include "train/run/run_folder.h"
#include "train/step/gradient_reach.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::training {

std::string opening_text(const ReadyRun& run) {
  const TrainConfig& t = run.config.train;
  return fmt::format("{} on {}: {} parameters (width {}), {}, {} on {}, {} {}, {}", run.config.model.model,
                     run.task->name(), run.model->params().count(), run.config.model.dim, run.task->summary(),
                     t.precision, t.device, thread_count(), plural(thread_count(), "thread"),
                     run.folder.string());
}

std::vector<std::string> opening_notes(const ReadyRun& run, const TrainRequest& request) {
  std::vector<std::string> notes;
  const bool on_cpu = run.model->params().values().device() == kCpu;
  if (on_cpu && run.model->params().activations() == Dtype::bf16)
    notes.emplace_back(
        "bf16 is slower than f32 here, a check for a GPU's results: the CPU level in use has no products in bf16");
  if (const std::string why = on_cpu ? slow_matmul_reason() : ""; !why.empty())
    notes.push_back("slow products: " + why);
  notes.insert(notes.end(), request.notes.begin(), request.notes.end());
  if (const std::string what = schedule_text(run.config.train); !what.empty()) notes.push_back(what);
  if (const std::string what =
          unread_state_warning(*run.model, run.task->row_length(), run.task->carries_state());
      !what.empty())
    notes.push_back(what);
  return notes;
}

std::string ranks_text(const ReadyRun& run, const Ranks& ranks) {
  std::string names = ranks.name(0);
  for (int rank = 1; rank < ranks.size(); ++rank) names += ", " + ranks.name(rank);
  const ParamStore& params = run.model->params();
  const std::int64_t parts = run.config.train.micro_batches / ranks.size(),
                     sent = params.gradients().bytes() * (ranks.size() - 1) / ranks.size();
  const bool shard = run.config.train.shard_optimizer;
  return fmt::format(
      "{} ranks share the run: {}; each has {} of the {} micro-batches of a batch and sends {} of {}; rank 0 keeps {} of "
      "parameters, {} of gradients and {} of the optimizer's state{}",
      ranks.size(), names, parts, run.config.train.micro_batches, human_bytes(shard ? sent : 2 * sent),
      shard ? "gradients, and after them as much of parameters" : "gradients",
      human_bytes(params.values().bytes()), human_bytes(params.gradients().bytes()),
      human_bytes(run.optimizer->bytes()), shard ? ", its part" : "");
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

std::string stopping_text() {
  return fmt::format("to stop it, saved (in its terminal also Ctrl-C): kill {}", ::getpid());
}

std::string rise_text(const ReadyRun& run, double before, double now, double seconds) {
  const TrainConfig& t = run.config.train;
  TrainConfig planned = t;
  planned.steps = run.planned_steps;
  const std::int64_t step = run.state.step;
  const auto part_over = [step](const TrainConfig& config, double progress) {
    const double by_steps = static_cast<double>(step) / static_cast<double>(config.steps);
    return std::isfinite(progress) ? std::max(progress, by_steps) : by_steps;
  };
  const double was = learning_rate_at(planned, t.learning_rate, step, before),
               rate = learning_rate_at(t, t.learning_rate, step, now);
  constexpr double kNoticeable = 1.1;
  if (rate <= kNoticeable * was || part_over(t, now) >= part_over(planned, before)) return {};
  std::string whole = fmt::format("{} steps", grouped(t.steps));
  if (follows_time(t))
    whole = fmt::format("{}, or what was trained before, {}, and {} {} from here, whichever end first", whole,
                        human_duration(std::floor(seconds)), t.minutes, plural(t.minutes, "minute"));
  return fmt::format(
      "the learning rate goes back up at step {}, from {} to {}: train.schedule \"{}\" spans the whole run, {} (to keep a "
      "rate: train.schedule constant, and train.learning_rate)",
      step, human_number(was), human_number(rate), t.schedule, whole);
}

std::string extent_text(const ReadyRun& run, const EvalResult& result) {
  return fmt::format("{}{} {}", grouped(result.tokens),
                     result.is_part() ? " of " + grouped(result.of) : std::string(),
                     run.task->tokenizer() != nullptr ? "tokens" : "targets");
}

std::string evaluation_text(const ReadyRun& run, const EvalResult& result) {
  std::string text = fmt::format("{:.4f}", result.loss);
  for (const auto& [name, value] : result.metrics) {
    text += fmt::format(", {} {}", name, human_number(value));
    if (name == "bits_per_byte" && run.state.baselines && std::isfinite(value))
      text += fmt::format(" ({})", run.state.baselines->place_of(value));
  }
  return text + " on " + extent_text(run, result);
}

std::string ended_text(const ReadyRun& run, TrainEnd end) {
  if (end == TrainEnd::time_over)
    return fmt::format("stopped after {} {} at step {}", run.config.train.minutes,
                       plural(run.config.train.minutes, "minute"), run.state.step);
  if (end == TrainEnd::interrupted)
    return fmt::format("interrupted at step {}: saved; go on with --resume {}", run.state.step,
                       shell_quoted(run.folder.string()));
  return {};
}

std::vector<std::string> continuing_texts(const ReadyRun& run, TrainEnd end) {
  const std::string folder = shell_quoted(run.folder.string());
  if (end == TrainEnd::time_over)
    return {fmt::format("to go on: {} train --resume {}", program_name(), folder)};
  if (end == TrainEnd::too_many_bad_steps) {
    const std::string back =
        checkpoint_before_failure(run.folder, run.state.best_step, run.state.lowest_loss).filename().string();
    if (back.empty()) return {};
    return {fmt::format(
        "to go back to before that: {} train --resume {} --checkpoint {} --train.learning_rate {}",
        program_name(), folder, back, human_number(run.config.train.learning_rate / 2))};
  }
  if (end != TrainEnd::finished || run.state.learned) return {};
  std::vector<std::string> lines = {
      fmt::format("to train on: {} train --resume {} --train.steps {}", program_name(), folder,
                  2 * std::max<std::int64_t>({run.config.train.steps, run.state.step, 1}))};
  if (run.task->tokenizer() != nullptr)
    lines.push_back(fmt::format("on another text: {} train --init-from {} --data TEXTS --run NEW",
                                program_name(), folder));
  return lines;
}

}  // namespace eddy::training
