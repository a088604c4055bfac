// Evaluations and samples of a run, each within its part of train.minutes.
#include "train/run/evaluations.h"

#include <algorithm>
#include <optional>

#include "tensor/base/format.h"
#include "train/process/stop_signal.h"
#include "train/run/run_facts.h"
#include "train/run/run_texts.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::training {

Evaluations::Evaluations(ActiveRun& run)
    : run_(run), state_monitor_(run.config.train.state_gain_batches, run.config.model.clear_state) {}

EvalOptions Evaluations::eval_options() const {
  const TrainConfig& t = run_.config.train;
  EvalOptions options;
  options.batches = std::max<std::int64_t>(t.eval_batches, 0);
  options.sample = t.eval_batches < 0 ? eval_sample_batches(t) : 0;
  options.batch = t.batch;
  options.seed = static_cast<std::uint64_t>(t.seed);
  options.capture = value_is(t.capture, StepCapture::automatic);
  options.share = {t.micro_batches, run_.shared ? run_.request.ranks : nullptr};
  return options;
}

void Evaluations::plan_last() {
  const TrainConfig& t = run_.config.train;
  if (t.eval_every <= 0) return;
  const std::int64_t batches = eval_options().sample;
  run_.time.plan_evaluation((batches > 0 ? batches : std::max<std::int64_t>(t.eval_batches, 0)) * t.batch *
                                std::max<std::int64_t>(run_.task->row_length(), 1),
                            batches > 0);
}

bool Evaluations::is_due_after(std::int64_t step) const {
  const TrainConfig& t = run_.config.train;
  if (t.eval_every <= 0 || given_up_at_ == step) return false;
  if (step == 0) return !run_.time.is_set();
  const bool is_first = !has_evaluated_ && given_up_at_ < 0 && !run_.log->records().last_evaluation();
  return step % t.eval_every == 0 || (is_first && run_.time.first_evaluation_is_due(run_.now()));
}

std::string Evaluations::record(const EvalResult& result, bool of_task, bool whole) {
  run_.log->record(EvalRecord{run_.state.step, value_name(Split::valid), result.loss, result.tokens,
                              result.metrics, of_task, result.of, whole});
  return evaluation_text(run_, result);
}

// Evaluates until `end`, in seconds from the beginning of the run.
Evaluations::Evaluated Evaluations::evaluate_until(double end, const EvalOptions& options, const char* what,
                                                   bool with_gain) {
  Evaluated made;
  const EvalProgress unless_stopped = [&](std::int64_t done, std::int64_t total) {
    run_.show_work(what, done, total);
    made.stopped = made.stopped || stop_requested() || run_.now() >= end;
    return !made.stopped;
  };
  made.result = run_.task->evaluate(*run_.model, options, unless_stopped);
  if (!made.stopped && with_gain)
    state_monitor_.measure(*run_.task, *run_.model, options, made.result, unless_stopped);
  return made;
}

void Evaluations::evaluate(bool last) {
  if (const std::optional<EvalRecord>& recorded = run_.log->records().last_evaluation();
      recorded && recorded->step == run_.state.step && !recorded->of_task &&
      (phase_began(run_) < run_.state.step || has_evaluated_)) {
    if (recorded->loss < run_.state.best_loss) save_best(recorded->loss);
    return;
  }
  const double began = run_.now();
  const auto [result, stopped] = evaluate_until(last ? run_.time.end() : run_.time.end_of_part(began),
                                                eval_options(), "evaluating", true);
  if (stopped) return give_up(result);
  run_.time.note_evaluation(run_.now() - began, result.tokens, result.of);
  has_evaluated_ = true;
  const std::string text = record(result);
  const bool best = result.loss < run_.state.best_loss;
  run_.log->say(fmt::format("step {}: validation loss {}{}", run_.state.step, text, best ? " (best)" : ""));
  const double done = run_.log->progress().part_done(run_.state.step, Clock::now());
  if (const std::string warning = state_monitor_.warning(result, done);
      !warning.empty() && run_.model->is_recurrent())
    run_.event(warning);
  if (best) save_best(result.loss);
  run_.show_now({});
}

// Of an evaluation that took too long an event keeps the number. It is of other tokens than that of the others.
void Evaluations::give_up(const EvalResult& so_far) {
  if (stop_requested()) return;
  given_up_at_ = run_.state.step;
  run_.event(fmt::format(
      "step {}: the evaluation was stopped, it takes too much of train.minutes {}: the loss on its first {} is {:.4f} "
      "({} eval {} measures all; a train.eval_batches of 1 or more less)",
      run_.state.step, run_.config.train.minutes, extent_text(run_, so_far), so_far.loss, program_name(),
      run_.folder.string()));
}

void Evaluations::evaluate_whole() {
  const std::optional<EvalRecord>& sampled = run_.log->records().last_evaluation();
  if (!sampled || sampled->step != run_.state.step || sampled->tokens >= sampled->of) return;
  const std::optional<EvalRecord>& recorded = run_.log->records().last_whole();
  if (recorded && recorded->step == run_.state.step) return;
  EvalOptions all = eval_options();
  if (all.sample == 0) return;
  all.sample = 0;
  Evaluated whole{.result = {}, .stopped = true};
  if (run_.time.whole_fits(run_.now(), run_.time.whole_seconds()))
    whole = evaluate_until(run_.time.end(), all, "evaluating the whole validation split", false);
  if (!whole.stopped)
    run_.log->say(fmt::format("step {}: validation loss of the whole split {}", run_.state.step,
                              record(whole.result, false, true)));
  else if (!stop_requested())
    run_.log->say(fmt::format("the whole validation split has {} targets, more than time allows: {} eval {}",
                              grouped(sampled->of), program_name(), run_.folder.string()));
}

void Evaluations::save_best(double loss) {
  run_.state.best_loss = loss;
  run_.state.best_step = run_.state.step;
  if (run_.state.step > 0) run_.save(true);
}

void write_sample(ActiveRun& run, bool last) {
  const TrainConfig& t = run.config.train;
  const std::optional<SampleRecord>& made = run.log->records().last_sample();
  if (t.sample_tokens <= 0 || (made && made->step == run.state.step)) return;
  const double began = run.now(), end = last                  ? run.time.end()
                                        : run.state.step == 0 ? run.time.end_of_first_sample(began)
                                                              : run.time.end_of_part(began);
  std::int64_t tokens = 0;
  const auto stop = [&] {
    run.show_work("writing a sample", tokens++, t.sample_tokens);
    return stop_requested() || run.now() >= end;
  };
  std::string text;
  try {
    text = run.task->sample(*run.model, t.sample_tokens, static_cast<std::uint64_t>(t.seed), stop);
  } catch (const NonFiniteError& error) {  // steps and evaluations report it too; the run continues
    run.event(fmt::format("no sample at step {}: {}", run.state.step, error.what()));
  }
  run.time.note_sample(run.now() - began);
  if (text.empty() || stop_requested()) return;
  const WordShare share = run.task->known_words(text);
  const SampleRecord sample{run.state.step, text, share.words, share.known};
  run.log->record(sample);
  const std::string known = known_words_text(sample);
  run.log->say(
      fmt::format("--- sample at step {}{}{}\n{}\n---", sample.step, known.empty() ? "" : ": ", known, text));
}

}  // namespace eddy::training
