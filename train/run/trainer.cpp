// One training run: the loop, and what it writes and says. run_start.cpp says what it starts from.
#include "train/run/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "train/eval/standing.h"
#include "train/plan/environment.h"
#include "train/plan/machine_memory.h"
#include "train/record/run_log.h"
#include "train/run/checkpoint.h"
#include "train/run/rollback.h"
#include "train/run/run_facts.h"
#include "train/run/run_start.h"
#include "train/run/run_texts.h"
#include "train/run/run_view.h"
#include "train/run/state_monitor.h"
#include "train/step/gradient_reach.h"
#include "train/step/shared_steps.h"
#include "train/step/stop_signal.h"
#include "train/plan/time_limit.h"
#include "train/step/train_step.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;

class Run {
 public:
  explicit Run(const TrainRequest& request)
      : request_(request),
        started_(Clock::now()),
        run_(prepare_run(request)),
        time_(run_.config.train.minutes),
        // What ranks exchange is not captured.
        recorder_(run_.model->params(),
                  {.wanted = run_.config.train.capture == "auto" && request.ranks == nullptr}),
        state_monitor_(run_.config.train.state_gain_batches, run_.config.model.clear_state) {}

  TrainEnd train() {
    const StopOnSignal signals;
    try {
      open();
    } catch (...) {
      // Nothing is learned yet: a folder that could not be filled is removed, so the command can be repeated.
      std::error_code ignored;
      if (run_.made_folder) fs::remove_all(run_.folder, ignored);
      throw;
    }
    try {
      if (request_.ranks != nullptr) {
        shared_.emplace(*request_.ranks, run_.config, *run_.model, run_.optimizer, run_.carried);
        event(ranks_text(run_, *request_.ranks));
      }
      return loop();
    } catch (...) {
      rescue();
      throw;
    }
  }

 private:
  // Begins or takes up the files of the run, and says what runs.
  void open() {
    open_folder(run_, request_);
    seconds_before_ = run_.state.seconds;
    ProgressOptions options;
    const TrainConfig& t = run_.config.train;
    options.total_steps = t.steps;
    options.minutes_limit = t.minutes;
    log_.emplace(stdout, options, started_);
    const bool on_cpu = run_.model->params().values().device() == kCpu;
    log_->say(opening_text(run_));
    nothing_to_train_ = is_resumed() && is_done() && !run_.task->owes_after_step();
    log_->open_metrics(run_.folder, is_resumed(), run_.state.step);
    if (t.tensorboard && !nothing_to_train_) log_->open_board(run_.folder, run_.state.step);
    if (const std::optional<RunRecord>& known = log_->records().run();
        !nothing_to_train_ && (!known || known->text_sha256 != run_.state.text_sha256))
      log_->record(record_of(run_));
    show_if_due();
    measure_baselines_now();
    if (const std::int64_t batches = evaluation_options().sample; t.eval_every > 0)
      time_.plan_evaluation((batches > 0 ? batches : std::max<std::int64_t>(t.eval_batches, 0)) * t.batch *
                                std::max<std::int64_t>(run_.task->row_length(), 1),
                            batches > 0);
    if (run_.is_latest) saved_step_ = run_.state.step;
    if (!request_.command_line.empty()) keep_command({run_.state.step, request_.command_line});
    if (on_cpu && run_.model->params().activations() == Dtype::bf16)
      event(
          "bf16 is slower than f32 here, a check for a GPU's results: the CPU level in use has no products in bf16");
    if (const std::string why = on_cpu ? slow_matmul_reason() : ""; !why.empty())
      event("slow products: " + why);
    for (const std::string& note : request_.notes) event(note);
    if (const std::string what =
            unread_state_warning(*run_.model, run_.task->row_length(), run_.task->carries_state());
        !what.empty())
      event(what);
    if (is_resumed()) say_resumed();
    // The run can be resumed from the beginning, of a phase too, and a full disk shows before anything is learned.
    if (!is_resumed() || run_.has_grown) save(false);
    if (!run_.notes.empty()) event(run_.notes);
  }

  // What simple predictors reach, once per run: a checkpoint keeps it.
  void measure_baselines_now() {
    run_.state.pass_tokens = run_.task->pass_tokens();
    if (run_.has_grown) run_.state.baselines.reset();  // they are of other texts
    if (!run_.state.baselines && run_.config.train.eval_every > 0) {
      const double minutes = run_.config.train.minutes,
                   end = now() + (minutes > 0 ? 60 * minutes / 20 : INFINITY);
      const auto stop = [&] {
        show("measuring what xz reaches on the text", 0, 0);
        return stop_requested() || now() >= end;
      };
      run_.state.baselines = run_.task->baselines(stop);
      if (stop_requested()) run_.state.baselines.reset();
    }
    if (const auto& found = run_.state.baselines)
      log_->say(fmt::format("to compare, in bits per byte: {} ({})", found->summary(), found->samples()));
  }

  bool is_resumed() const { return !request_.resume.empty(); }
  // Whether all is done that a run can train.
  bool is_done() const { return run_.state.learned || run_.state.step >= run_.config.train.steps; }

  // A resume that has nothing to train leaves the metrics as they are.
  void keep_command(const CommandRecord& command) {
    if (nothing_to_train_)
      log_->keep(command);
    else
      log_->record(command);
  }

  double now() const { return seconds_between(started_); }
  // Whether a signal or train.minutes asks for the end: looked at between steps, and, for what takes long, between
  // accumulated batches, batches of an evaluation, and tokens of a sample.
  bool must_end() const { return stop_requested() || !time_.step_fits(now()); }
  bool gives_up_step() const { return stop_requested() || time_.step_is_late(now()); }

  // Does what a stop kept the last step from doing.
  void run_due_hooks() {
    const TrainConfig& t = run_.config.train;
    if (run_.state.step > 0 && run_.task->owes_after_step()) after_step(kNotMeasured);
    const bool sampled =
        t.sample_every > 0 && run_.state.step % t.sample_every == 0 && run_.state.step < t.steps;
    if (!run_.state.learned && (run_.state.step == 0 || (sampled && is_resumed()))) write_sample();
  }

  void say_resumed() {
    event(resumed_text(run_, nothing_to_train_));
    const Metrics metrics = log_->records().metrics();
    if (metrics.foreign > 0)
      event(fmt::format(
          "warning: metrics.jsonl has {} {}, the first is {} (what is none stays, and the report leaves it out)",
          metrics.foreign, plural(metrics.foreign, "line that is no record", "lines that are no records"),
          metrics.first_foreign));
  }

  TrainEnd loop() {
    const TrainConfig& t = run_.config.train;
    TrainEnd end = TrainEnd::finished;
    run_due_hooks();
    while (!is_done()) {
      if (!must_end() && is_evaluation_due()) evaluate_now();
      if (must_end()) {
        end = stop_requested() ? TrainEnd::interrupted : TrainEnd::time_over;
        break;
      }
      const Clock::time_point before = Clock::now();
      const double rate =
          run_.task->learning_rate(run_.state.step, learning_rate_at(t, t.learning_rate, run_.state.step)) *
          run_.state.rate_factor();
      task_before_step_ = run_.task->save();
      const std::vector<Batch> batches = next_batches();
      if (batches.empty()) continue;  // as below
      std::int64_t tokens = 0;
      for (const Batch& batch : batches) tokens += batch.tokens.elements();
      const StepResult result = step(batches, rate);
      if (result.stopped) continue;  // to the end of the run: the step is not counted
      const double ms = 1000 * seconds_between(before);
      time_.note_step(ms / 1000, tokens);
      ++run_.state.step;
      task_before_step_.reset();
      run_.state.tokens += tokens;
      note_loss(result);
      note_outcome(run_, result);
      run_.state.seconds = seconds_before_ + seconds_between(started_);
      report_step(result, rate, static_cast<double>(tokens) / ms * 1000, ms);
      const bool fails = !result.finite && run_.state.bad_steps >= t.max_bad_steps;
      if (fails && !goes_back()) {
        end = TrainEnd::too_many_bad_steps;
        break;
      }
      after_step(result.finite ? result.loss : kNotMeasured);
      if (run_.state.learned || must_end()) continue;
      if (t.sample_every > 0 && run_.state.step % t.sample_every == 0 && run_.state.step < t.steps)
        write_sample();
      if (fails || (is_planned(t, run_.state.step, false) && run_.state.step < t.steps)) {
        save(false);
        show_now({});
      }
    }
    return finish(end);
  }

  // After too many bad steps: whether the run goes on from its last good checkpoint (rollback.h).
  bool goes_back() {
    const RollbackResult back = roll_back(run_, shared_ && run_.config.train.shard_optimizer);
    event(back.text);
    if (back.done && shared_)
      shared_.emplace(*request_.ranks, run_.config, *run_.model, run_.optimizer, run_.carried);
    return back.done;
  }

  // The batches of the next step; none when the run must end before all are read.
  std::vector<Batch> next_batches() {
    std::vector<Batch> batches;
    for (std::int64_t micro = 0; micro < run_.config.train.accumulate; ++micro) {
      if (micro > 0 && gives_up_step()) return {};
      batches.push_back(run_.task->next(run_.state.step, micro));
    }
    return batches;
  }

  StepResult step(const std::vector<Batch>& batches, double rate) {
    StepOptions options;
    options.learning_rate = rate;
    options.seed = static_cast<std::uint64_t>(run_.config.train.seed);
    options.step = run_.state.step;
    options.carry_state = run_.task->carries_state();
    options.micro_batches = run_.config.train.micro_batches;
    options.recompute = recompute_named(run_.config.train.recompute);
    options.stop = [this] { return gives_up_step(); };
    std::vector<Batch> own = batches;
    if (shared_) shared_->begin_step(own, options);
    StepResult result = train_step(*run_.model, *run_.optimizer, own, run_.carried, options, &recorder_);
    if (shared_) shared_->end_step();
    if (result.stopped) return result;
    if (const std::string message = recorder_.take_message(); !message.empty()) event(message);
    for (const std::string& notice : take_warnings()) event(notice);
    if (!result.finite) event(fmt::format("step {} skipped: {}", run_.state.step, result.problem));
    if (run_.state.step == 0 && batches.front().scored > 0)
      if (const std::string what = unreached_warning(run_.config.model, batches.front(), options.carry_state);
          !what.empty())
        event(what);
    const bool asked_for_state = run_.config.train.carry_state == "always";
    if (asked_for_state && result.finite && run_.carried.state.empty() && !said_no_state_) {
      said_no_state_ = true;
      event(fmt::format("{} has no state to carry: every batch begins afresh", run_.config.model.model));
    }
    return result;
  }

  // Keeps what tells later whether the run was going well. A step without targets has no loss.
  void note_loss(const StepResult& result) {
    if (!result.finite || std::isfinite(result.loss)) run_.state.loss = result.loss;
    if (std::isfinite(run_.state.loss))
      run_.state.lowest_loss = std::min(run_.state.lowest_loss, run_.state.loss);
  }

  // Calls the task's after_step.
  void after_step(double loss) {
    AfterStep after = run_.task->after_step(*run_.model, run_.state.step, loss,
                                            [this](std::int64_t done, std::int64_t total) {
                                              show("validating", done, total);
                                              return !gives_up_step();
                                            });
    if (after.evaluation) record_evaluation(*after.evaluation, true);
    if (!after.message.empty()) event(after.message);
    if (!after.stop) return;
    run_.state.learned = true;
    saved_step_ = -1;
  }

  void report_step(const StepResult& result, double rate, double tokens_per_second, double ms) {
    StepRecord record;
    record.step = run_.state.step;
    record.loss = result.loss;
    record.learning_rate = rate;
    record.grad_norm = result.grad_norm;
    record.tokens_per_second = tokens_per_second;
    const Device device = run_.model->params().values().device();
    record.memory_bytes = allocator(device).stats().peak_bytes;
    if (device == kCpu) record.resident_bytes = resident_peak_bytes();
    record.ms = ms;
    record.graph_nodes = result.graph.nodes;
    record.saved_bytes = result.graph.saved_bytes;
    record.graph_depth = result.graph.max_depth;
    record.tokens = run_.state.tokens;
    record.seconds = run_.state.seconds;
    if (record.step == 1 || record.step % run_.config.train.log_every == 0 || !result.finite)
      log_->record(record);
    log_->progress().update(record, Clock::now());
    show_if_due();
  }

  // Records an evaluation; returns its loss and other numbers as a text.
  std::string record_evaluation(const EvalResult& result, bool of_task = false, bool whole = false) {
    log_->record(EvalRecord{run_.state.step, "valid", result.loss, result.tokens, result.extras, of_task,
                            result.of, whole});
    return evaluation_text(run_, result);
  }

  EvalOptions evaluation_options() const {
    const TrainConfig& t = run_.config.train;
    EvalOptions options;
    options.batches = std::max<std::int64_t>(t.eval_batches, 0);
    options.sample = t.eval_batches < 0 ? eval_sample_batches(t) : 0;
    options.batch = t.batch;
    options.seed = static_cast<std::uint64_t>(t.seed);
    options.capture = t.capture == "auto";
    options.share = {t.micro_batches, shared_ ? request_.ranks : nullptr};
    return options;
  }

  // Every train.eval_every steps, but for the first step of a run that is limited in time.
  bool is_evaluation_due() const {
    const TrainConfig& t = run_.config.train;
    return t.eval_every > 0 && run_.state.step % t.eval_every == 0 && run_.state.step != given_up_at_ &&
           (run_.state.step > 0 || !time_.is_set());
  }

  // Shows how far something is that takes a while.
  void show(const char* what, std::int64_t done, std::int64_t total) {
    std::string text = fmt::format("step {}: {}", run_.state.step, what);
    if (total > 0)
      text += fmt::format(", {:.0f}% of {}", 100 * static_cast<double>(done) / static_cast<double>(total),
                          grouped(total));
    log_->progress().work(text, Clock::now());
    show_if_due();
  }

  struct Evaluated {
    EvalResult result;
    bool stopped = false;  // by the time or a signal: the result is of the batches so far
  };
  // Evaluates until `end`, in seconds from the beginning of the run.
  Evaluated evaluate_until(double end, const EvalOptions& options, const char* what, bool with_gain) {
    Evaluated made;
    const EvalProgress unless_stopped = [&](std::int64_t done, std::int64_t total) {
      show(what, done, total);
      made.stopped = made.stopped || stop_requested() || now() >= end;
      return !made.stopped;
    };
    made.result = run_.task->evaluate(*run_.model, options, unless_stopped);
    if (!made.stopped && with_gain)
      state_monitor_.measure(*run_.task, *run_.model, options, made.result, unless_stopped);
    return made;
  }

  // `last`: the evaluation at the end of a run. One that is recorded for this step is not made again.
  void evaluate_now(bool last = false) {
    if (const std::optional<EvalRecord>& recorded = log_->records().last_evaluation();
        recorded && recorded->step == run_.state.step && !recorded->of_task &&
        (phase_began(run_) < run_.state.step || has_evaluated_)) {
      if (recorded->loss < run_.state.best_loss) save_best(recorded->loss);
      return;
    }
    const double began = now();
    const auto [result, stopped] = evaluate_until(last ? time_.end() : time_.end_of_part(began),
                                                  evaluation_options(), "evaluating", true);
    if (stopped) return give_up_evaluation(result);
    time_.note_evaluation(now() - began, result.tokens, result.of);
    has_evaluated_ = true;
    const std::string text = record_evaluation(result);
    const bool best = result.loss < run_.state.best_loss;
    log_->say(fmt::format("step {}: validation loss {}{}", run_.state.step, text, best ? " (best)" : ""));
    const double done = log_->progress().part_done(run_.state.step, Clock::now());
    if (const std::string warning = state_monitor_.warning(result, done);
        !warning.empty() && run_.model->is_recurrent())
      event(warning);
    if (best) save_best(result.loss);
    show_now({});
  }

  // Of an evaluation that took too long an event keeps the number. It is of other tokens than that of the others.
  void give_up_evaluation(const EvalResult& so_far) {
    if (stop_requested()) return;
    given_up_at_ = run_.state.step;
    event(fmt::format(
        "step {}: the evaluation was stopped, it takes too much of train.minutes {}: the loss on its first {} is {:.4f} "
        "({} eval {} measures all; a train.eval_batches of 1 or more less)",
        run_.state.step, run_.config.train.minutes, extent_text(run_, so_far), so_far.loss, program_name(),
        run_.folder.string()));
  }

  // The whole validation split at the end of a run whose evaluations measure a sample, where time allows.
  void evaluate_whole() {
    const std::optional<EvalRecord>& sampled = log_->records().last_evaluation();
    if (!sampled || sampled->step != run_.state.step || sampled->tokens >= sampled->of) return;
    if (log_->records().last_whole() && log_->records().last_whole()->step == run_.state.step) return;
    EvalOptions options = evaluation_options();
    if (options.sample == 0) return;
    options.sample = 0;
    Evaluated whole{.result = {}, .stopped = true};
    if (time_.whole_fits(now(), time_.whole_seconds()))
      whole = evaluate_until(time_.end(), options, "evaluating the whole validation split", false);
    if (!whole.stopped)
      log_->say(fmt::format("step {}: validation loss of the whole split {}", run_.state.step,
                            record_evaluation(whole.result, false, true)));
    else if (!stop_requested())
      log_->say(fmt::format("the whole validation split has {} targets, more than time allows: {} eval {}",
                            grouped(sampled->of), program_name(), run_.folder.string()));
  }

  void save_best(double loss) {
    run_.state.best_loss = loss;
    run_.state.best_step = run_.state.step;
    if (run_.state.step > 0) save(true);
  }

  // `last`, and a sample that is recorded: as for evaluate_now. One that train.minutes end is kept as far as it came.
  void write_sample(bool last = false) {
    const TrainConfig& t = run_.config.train;
    const std::optional<SampleRecord>& made = log_->records().last_sample();
    if (t.sample_tokens <= 0 || (made && made->step == run_.state.step)) return;
    const double began = now(), end = last                   ? time_.end()
                                      : run_.state.step == 0 ? time_.end_of_first_sample(began)
                                                             : time_.end_of_part(began);
    std::int64_t tokens = 0;
    const auto stop = [&] {
      show("writing a sample", tokens++, t.sample_tokens);
      return stop_requested() || now() >= end;
    };
    std::string text;
    try {
      text = run_.task->sample(*run_.model, t.sample_tokens, static_cast<std::uint64_t>(t.seed), stop);
    } catch (const NonFiniteError& error) {  // steps and evaluations report it too; the run continues
      event(fmt::format("no sample at step {}: {}", run_.state.step, error.what()));
    }
    time_.note_sample(now() - began);
    if (text.empty() || stop_requested()) return;
    log_->record(SampleRecord{run_.state.step, text});
    log_->say(fmt::format("--- sample at step {}\n{}\n---", run_.state.step, text));
  }

  // errors: IoError when the folder of the run was moved or removed.
  void check_place() const {
    if (run_.lock->is_at(run_.folder)) return;
    const std::string now = run_.lock->place().string();
    if (now.empty()) fail<IoError>("train: {} was removed while its run trained", run_.folder.string());
    fail<IoError>("train: {} was moved while its run trained: it is {} now (go on with --resume {})",
                  run_.folder.string(), now, now);
  }

  void save(bool best) {
    check_place();
    run_.state.seconds = seconds_before_ + seconds_between(started_);
    run_.state.task = (task_before_step_ ? *task_before_step_ : run_.task->save()).dump();
    note_checkpoint(run_, best);
    show("saving", 0, 0);
    const double began = now();
    try {
      const State state = shared_ ? shared_->whole_state(run_.carried, *run_.model) : run_.carried.state;
      save_checkpoint(run_.folder, run_.config, run_.task->tokenizer(), *run_.model,
                      shared_ ? shared_->whole_optimizer(*run_.optimizer) : run_.optimizer->save(), state,
                      run_.state, best, run_.config.train.keep);
    } catch (const IoError&) {
      check_place();  // says more when that is why
      throw;
    }
    saved_step_ = run_.state.step;
    time_.note_save(now() - began);
  }

  // Saves a checkpoint after an error: the steps done, with the data positions before the step that failed.
  void rescue() {
    const bool in_place = run_.lock->is_at(run_.folder);
    if (!in_place) run_.folder = run_.lock->place();
    // In the middle of an exchange other ranks do not answer, and some parameters may have changed: the last checkpoint
    // stands.
    const bool is_whole = request_.ranks == nullptr || !request_.ranks->in_exchange;
    std::string text;
    try {
      if (is_whole && saved_step_ != run_.state.step) {
        save(false);
        text = fmt::format("an error ended the run at step {}: saved; go on with --resume {}",
                           run_.state.step, run_.folder.string());
      }
    } catch (const std::exception& error) {
      text = fmt::format("an error ended the run at step {}, which could not be saved: {}", run_.state.step,
                         error.what());
    }
    if (!in_place) return;  // the error says where the run is now
    if (!text.empty()) log_->say(text);
    show_now({.failed = true, .whole = false});
  }

  void event(const std::string& text) {
    if (!nothing_to_train_) log_->record(EventRecord{run_.state.step, text});
    log_->say(text);
  }

  // How the run ended, and how much of it is shown.
  struct Showing {
    std::optional<TrainEnd> end{};
    bool failed = false, whole = true;
  };
  // Shows how the run stands. That can be done again: where it fails, the run goes on.
  void show_now(const Showing& showing) {
    if (!request_.show) return;
    check_place();
    const double began = now();
    try {
      request_.show({.run = run_,
                     .records = log_->records(),
                     .progress = log_->progress(),
                     .seconds = seconds_before_ + began,
                     .every_s = show_timer_.interval(),
                     .end = showing.end,
                     .failed = showing.failed,
                     .whole = showing.whole});
      not_shown_.clear();
      if (showing.whole) time_.note_report(now() - began);
    } catch (const std::exception& error) {
      if (not_shown_ != error.what()) event(fmt::format("warning: no report: {}", error.what()));
      not_shown_ = error.what();
    }
    show_timer_.note(began, now());
  }

  // Shows the run again where it is time. A folder that was moved is noticed by the next checkpoint.
  void show_if_due() {
    if (show_timer_.is_due(now()) && run_.lock->is_at(run_.folder)) show_now({.whole = false});
  }

  // Saves, measures and reports. Returns how the run ended: an interrupt may come as late as here.
  TrainEnd finish(TrainEnd end) {
    // The checkpoint comes first, so that a failing evaluation cannot lose what was learned.
    if (saved_step_ != run_.state.step) save(false);
    if (end == TrainEnd::finished || end == TrainEnd::time_over) {
      // Where the time ended before the first step, there is nothing to measure.
      const bool learned = run_.state.step > 0 || !time_.is_set();
      const bool measures = run_.config.train.eval_every > 0 && learned && given_up_at_ != run_.state.step;
      if (measures) evaluate_now(true);
      if (learned && !stop_requested()) write_sample(true);
      if (measures && !stop_requested()) evaluate_whole();
      if (stop_requested()) end = TrainEnd::interrupted;
    }
    if (const std::string text = ended_text(run_, end); !text.empty()) event(text);
    log_->progress().finish(Clock::now());
    for (const std::string& line : continuing_texts(run_, end)) log_->say(line);
    show_now({.end = end});
    if (const std::string text = standing_of(run_, log_->records()); !text.empty())
      log_->say(fmt::format("{} {}: {}; {}", grouped(run_.state.step), plural(run_.state.step, "step"),
                            passes_text(passes_of(run_)), text));
    if (request_.show) log_->say(fmt::format("report: {}", (run_.folder / "report.html").string()));
    return end;
  }

  const TrainRequest& request_;
  Clock::time_point started_;
  ReadyRun run_;
  TimeLimit time_;
  Recorder recorder_;
  StateMonitor state_monitor_;
  std::optional<nlohmann::json> task_before_step_;  // set while a step is in progress
  std::int64_t saved_step_ = -1;
  bool said_no_state_ = false;
  bool has_evaluated_ = false;  // in this process
  // The step of an evaluation that train.minutes ended; it is not begun again.
  std::int64_t given_up_at_ = -1;
  bool nothing_to_train_ = false;  // a finished run that was resumed
  std::string not_shown_;          // why it could not be shown the last time
  ShowTimer show_timer_;
  std::optional<RunLog> log_;
  std::optional<SharedSteps> shared_;  // with several ranks
  double seconds_before_ = 0;
};

}  // namespace

TrainEnd train(const TrainRequest& request) {
  return Run(request).train();
}

}  // namespace eddy::training
