// One training run: the loop, and what happens between two steps. run_start.cpp says what it starts from, active_run.h
// saves and shows it, and evaluations.h measures it.
#include "train/run/trainer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "train/eval/learning_verdict.h"
#include "train/plan/machine_memory.h"
#include "train/plan/run_progress.h"
#include "train/process/stop_signal.h"
#include "train/run/active_run.h"
#include "train/run/evaluations.h"
#include "train/run/rollback.h"
#include "train/run/run_facts.h"
#include "train/run/run_texts.h"
#include "train/step/gradient_reach.h"
#include "train/step/step_queue.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;

// A step, from the reading of its batches until it is counted.
struct Step {
  std::int64_t before = 0;         // steps done before it
  double began = 0, progress = 0;  // seconds of the run; RunProgress
  bool progress_moved = false;
  std::optional<nlohmann::json> task_before{};  // Task::save, before its batches were read
  std::vector<Batch> batches{};                 // empty: not read yet
  std::int64_t tokens = 0;
  double rate = 0;
  std::vector<std::string> messages{};   // of its launch
  std::int64_t peak_bytes = 0;           // of memory until then
  bool launched = false, ended = false;  // ended: the run must end before it is done
  StepResult result{};
  double ms = 0;
};

class Run {
 public:
  explicit Run(const TrainRequest& request)
      : run_(request, Clock::now()),
        // What ranks exchange is not captured.
        recorder_(run_.model->params(),
                  {.wanted = value_is(run_.config.train.capture, StepCapture::automatic) &&
                             request.ranks == nullptr}),
        steps_(*run_.model, recorder_, run_.config.train.accumulate, run_.config.train.micro_batches),
        evaluations_(run_) {}

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
      if (run_.request.ranks != nullptr) {
        share();
        run_.event(ranks_text(run_, *run_.request.ranks));
      }
      return loop();
    } catch (...) {
      collect_launched();
      run_.rescue();
      throw;
    }
  }

 private:
  // What a run does, in this order. A stop is looked for where it says must_end, and within what takes long. If the GPU
  // already runs the next step, it is collected first. This is allowed only when nothing is due before it
  // (may_run_ahead).
  TrainEnd loop() {
    catch_up();
    while (!run_.is_done() || steps_.under_way() > 0) {
      if (steps_.under_way() == 0) {
        if (!run_.must_end() && due_after(run_.state.step).evaluation) evaluations_.evaluate();
        if (run_.must_end()) return finish(stop_requested() ? TrainEnd::interrupted : TrainEnd::time_over);
      }

      const std::optional<Step> step = take_step();
      if (!step) continue;  // to the end of the run

      report(*step);
      const bool fails = is_one_too_many(step->result);
      if (fails && !goes_back()) return finish(TrainEnd::too_many_bad_steps);
      after_step(step->result.finite ? step->result.loss : kNotMeasured);
      if (run_.state.learned || run_.must_end()) continue;
      const Due due = due_after(run_.state.step);
      if (due.sample) write_sample(run_);
      if (fails || due.checkpoint) save_and_show();
    }
    return finish(TrainEnd::finished);
  }

  // ---- the beginning

  // Begins or takes up the files of the run, and says what runs.
  void open() {
    open_folder(run_, run_.request);
    open_log();
    run_.show_if_due();
    measure_baselines();
    evaluations_.plan_last();
    if (run_.is_latest) run_.saved_step = run_.state.step;
    if (!run_.request.command_line.empty()) keep_command({run_.state.step, run_.request.command_line});
    for (const std::string& note : opening_notes(run_, run_.request)) run_.event(note);
    if (run_.is_resumed()) say_resumed();
    // The run can be resumed from the beginning, of a phase too, and a full disk shows before anything is learned.
    if (!run_.is_resumed() || run_.has_grown) run_.save(false);
    run_.event_if_any(run_.notes);
  }

  void open_log() {
    const TrainConfig& t = run_.config.train;
    run_.seconds_before = run_.state.seconds;
    ProgressOptions options;
    options.total_steps = t.steps;
    options.minutes_limit = t.minutes;
    RunLog& log = run_.log.emplace(stdout, options, run_.started);
    log.say(opening_text(run_));
    run_.nothing_to_train = run_.is_resumed() && run_.is_done() && !run_.task->after_step_pending();
    if (!run_.nothing_to_train) log.say(stopping_text());
    log.open_metrics(run_.folder, run_.is_resumed(), run_.state.step);
    // What was done before the first step is no training.
    progress_.emplace(t, run_.state.step > 0 ? run_.seconds_before : 0, run_.state.progress,
                      log.steps_done_again());
    if (t.tensorboard && !run_.nothing_to_train) log.open_board(run_.folder, run_.state.step);
    if (const std::optional<RunRecord>& known = log.records().run();
        !run_.nothing_to_train && (!known || known->text_sha256 != run_.state.text_sha256))
      log.record(record_of(run_));
  }

  // What simple predictors reach, once per run: a checkpoint keeps it.
  void measure_baselines() {
    run_.state.epoch_tokens = run_.task->epoch_tokens();
    if (run_.has_grown) run_.state.baselines.reset();  // they are of other texts
    if (!run_.state.baselines && run_.config.train.eval_every > 0) {
      const double minutes = run_.config.train.minutes,
                   end = run_.now() + (minutes > 0 ? 60 * minutes / 20 : INFINITY);
      const auto stop = [&] {
        run_.show_work("measuring what xz reaches on the text", 0, 0);
        return stop_requested() || run_.now() >= end;
      };
      run_.state.baselines = run_.task->baselines(stop);
      if (stop_requested()) run_.state.baselines.reset();
    }
    if (const auto& found = run_.state.baselines)
      run_.log->say(fmt::format("to compare, in bits per byte: {} ({})", found->summary(), found->samples()));
  }

  // A resume that has nothing to train leaves the metrics as they are.
  void keep_command(const CommandRecord& command) {
    if (run_.nothing_to_train)
      run_.log->keep(command);
    else
      run_.log->record(command);
  }

  void say_resumed() {
    run_.event(resumed_text(run_, run_.nothing_to_train));
    const Metrics metrics = run_.log->records().metrics();
    if (metrics.foreign > 0)
      run_.event(fmt::format(
          "warning: metrics.jsonl has {} {}, the first is {} (what is none stays, and the report leaves it out)",
          metrics.foreign, plural(metrics.foreign, "line that is no record", "lines that are no records"),
          metrics.first_foreign));
  }

  // Sends the other ranks the run as it is.
  void share() {
    run_.shared.emplace(*run_.request.ranks, run_.config, *run_.model, run_.optimizer, run_.carried);
  }

  // Does what a stop kept the last step from doing.
  void catch_up() {
    if (run_.state.step > 0 && run_.task->after_step_pending()) after_step(kNotMeasured);
    const bool sampled = due_after(run_.state.step).sample;
    if (!run_.state.learned && (run_.state.step == 0 || (sampled && run_.is_resumed()))) write_sample(run_);
  }

  // ---- a step

  // Takes the next step and counts it; nothing when the run must end before it is done. On a GPU the step after it is
  // launched before this one's loss is read.
  std::optional<Step> take_step() {
    if (failed_) std::rethrow_exception(std::exchange(failed_, {}));
    if (!step_) step_.emplace().before = run_.state.step;
    if (!step_->launched && !step_->ended) begin(*step_);
    if (step_->ended) {
      step_.reset();
      return {};
    }
    if (may_run_ahead()) {
      next_.emplace().before = run_.state.step + 1;
      try {
        begin(*next_);
      } catch (...) {
        failed_ = std::current_exception();  // this step is finished first
      }
    }
    return collect();
  }

  // Waits for the step that was launched first, and counts it.
  Step collect() {
    Step& step = *step_;
    step.result = steps_.collect(*run_.optimizer, run_.carried);
    run_.is_between_steps = false;  // until it is counted
    // The next one changed nothing then, and is launched again.
    if (!step.result.finite && next_) next_->launched = false;
    note_events(step);
    const double now = run_.now();
    step.ms = 1000 * (now - std::max(step.began, collected_));
    collected_ = now;
    run_.time.note_step(step.ms / 1000, step.tokens);
    TrainingState& state = run_.state;
    ++state.step;
    state.progress = step.progress;
    run_.task_before_step = next_ ? next_->task_before : std::nullopt;
    state.tokens += step.tokens;
    note_loss(step.result);
    note_outcome(run_, step.result);
    state.seconds = run_.trained_seconds();
    run_.is_between_steps = true;
    Step done = std::move(step);
    step_ = std::exchange(next_, std::nullopt);
    return done;
  }

  // Whether the next step can be launched before the present one is done: nothing is due between them.
  bool may_run_ahead() const {
    const std::int64_t done = run_.state.step + 1;
    const bool fits = !run_.time.is_set() ||
                      (step_->before > 0 && run_.time.step_fits(run_.now() + run_.time.step_seconds()));
    const bool has_said_rise = said_rise_ || !run_.is_resumed();
    return !run_.shared && steps_.may_run_ahead() && !stop_requested() && fits && has_said_rise &&
           run_.task->may_read_ahead(done) && !due_after(done).any();
  }

  // Reads a step's batches, unless that is done, and launches it.
  void begin(Step& step) {
    const TrainConfig& t = run_.config.train;
    if (step.batches.empty()) {
      step.began = run_.now();
      step.progress = progress_->of_step(step.before, step.began, run_.time.steps_end());
      step.progress_moved = progress_->has_moved();
      say_rise(step.progress);
      step.task_before = run_.task->save();
      if (steps_.under_way() == 0) run_.task_before_step = step.task_before;
      step.batches = next_batches(step.before);
      step.ended = step.batches.empty();
      if (step.ended) return;
      for (const Batch& batch : step.batches) step.tokens += batch.tokens.elements();
    }
    step.rate = run_.task->learning_rate(step.before,
                                         learning_rate_at(t, t.learning_rate, step.before, step.progress)) *
                run_.state.rate_factor();
    launch(step);
  }

  // After an error: a step that the device has begun is counted, since the parameters are those after it.
  void collect_launched() {
    try {
      while (run_.is_between_steps && steps_.under_way() > 0) static_cast<void>(collect());
    } catch (...) {
      run_.is_between_steps = false;
    }
  }

  // Once in a resumed run, when its steps are not done again any more.
  void say_rise(double progress) {
    if (said_rise_ || !run_.is_resumed() || progress_->is_recorded(run_.state.step)) return;
    said_rise_ = true;
    run_.event_if_any(rise_text(run_, run_.state.progress, progress, run_.seconds_before));
  }

  // The batches of a step; none when the run must end before all are read.
  std::vector<Batch> next_batches(std::int64_t step) {
    std::vector<Batch> batches;
    for (std::int64_t micro = 0; micro < run_.config.train.accumulate; ++micro) {
      if (micro > 0 && run_.gives_up_step()) return {};
      batches.push_back(run_.task->next(step, micro));
    }
    return batches;
  }

  void launch(Step& step) {
    StepOptions options;
    options.learning_rate = step.rate;
    options.seed = static_cast<std::uint64_t>(run_.config.train.seed);
    options.step = step.before;
    options.carry_state = run_.task->carries_state();
    options.micro_batches = run_.config.train.micro_batches;
    options.recompute = recompute_named(run_.config.train.recompute);
    options.stop = [this] { return run_.gives_up_step(); };
    std::vector<Batch> local = step.batches;
    if (run_.shared) run_.shared->begin_step(local, options);
    step.launched = steps_.launch(*run_.optimizer, local, run_.carried, options);
    if (run_.shared) run_.shared->end_step();
    step.ended = !step.launched;
    if (step.ended) return;
    if (std::string message = recorder_.take_message(); !message.empty())
      step.messages.push_back(std::move(message));
    for (std::string& warning : take_warnings()) step.messages.push_back(std::move(warning));
    step.peak_bytes = allocator(run_.model->params().values().device()).stats().peak_bytes;
  }

  // Records what a step had to say.
  void note_events(const Step& step) {
    const StepResult& result = step.result;
    const bool carries_state = run_.task->carries_state();
    for (const std::string& message : step.messages) run_.event(message);
    if (!result.finite) run_.event(fmt::format("step {} skipped: {}", run_.state.step, result.problem));
    if (run_.state.step == 0 && step.batches.front().scored > 0)
      run_.event_if_any(unreached_warning(run_.config.model, step.batches.front(), carries_state));
    const bool asked_for_state = value_is(run_.config.train.carry_state, CarryState::always);
    if (asked_for_state && result.finite && run_.carried.state.empty() && !said_no_state_) {
      said_no_state_ = true;
      run_.event(fmt::format("{} has no state to carry: every batch begins afresh", run_.config.model.model));
    }
  }

  // Keeps what tells later whether the run was going well. A step without targets has no loss.
  void note_loss(const StepResult& result) {
    TrainingState& state = run_.state;
    if (!result.finite || std::isfinite(result.loss)) state.loss = result.loss;
    if (std::isfinite(state.loss)) state.lowest_loss = std::min(state.lowest_loss, state.loss);
  }

  // ---- between two steps

  void report(const Step& step) {
    const StepResult& result = step.result;
    StepRecord record;
    record.step = run_.state.step;
    record.loss = result.loss;
    record.learning_rate = step.rate;
    record.grad_norm = result.grad_norm;
    record.tokens_per_second = static_cast<double>(step.tokens) / step.ms * 1000;
    const Device device = run_.model->params().values().device();
    record.memory_bytes = step.peak_bytes;
    if (device == kCpu) record.resident_bytes = resident_peak_bytes();
    record.ms = step.ms;
    record.graph_nodes = result.graph.nodes;
    record.saved_bytes = result.graph.saved_bytes;
    record.graph_depth = result.graph.max_depth;
    record.tokens = run_.state.tokens;
    record.seconds = run_.state.seconds;
    record.progress = run_.state.progress;
    if (record.step == 1 || record.step % run_.config.train.log_every == 0 || !result.finite ||
        step.progress_moved)
      run_.log->record(record);
    run_.log->progress().update(record, Clock::now());
    run_.show_if_due();
  }

  // Whether a bad step follows so many others that the run cannot go on like that.
  bool is_one_too_many(const StepResult& result) const {
    return !result.finite && run_.state.bad_steps >= run_.config.train.max_bad_steps;
  }

  // After too many bad steps: whether the run goes on from its last good checkpoint (rollback.h).
  bool goes_back() {
    const RollbackResult back = roll_back(run_, run_.shared && run_.config.train.shard_optimizer);
    run_.event(back.text);
    if (back.done && run_.shared) share();
    return back.done;
  }

  // Calls the task's after_step.
  void after_step(double loss) {
    AfterStep after = run_.task->after_step(*run_.model, run_.state.step, loss,
                                            [this](std::int64_t done, std::int64_t total) {
                                              run_.show_work("validating", done, total);
                                              return !run_.gives_up_step();
                                            });
    if (after.evaluation) evaluations_.record(*after.evaluation, true);
    run_.event_if_any(after.message);
    if (!after.stop) return;
    run_.state.learned = true;
    run_.saved_step = -1;
  }

  // What is due when so many steps are done. At the end finish() makes a sample and a checkpoint in any case.
  struct Due {
    bool end = false, evaluation = false, sample = false, checkpoint = false;
    bool any() const { return end || evaluation || sample || checkpoint; }
  };
  Due due_after(std::int64_t step) const {
    const TrainConfig& t = run_.config.train;
    Due due;
    due.end = step >= t.steps;
    due.evaluation = evaluations_.is_due_after(step);
    due.sample = !due.end && t.sample_every > 0 && step % t.sample_every == 0;
    due.checkpoint = !due.end && is_planned(t, step, false);
    return due;
  }

  void save_and_show() {
    run_.save(false);
    run_.show_now({});
  }

  // ---- the end

  // Saves, measures and reports. Returns how the run ended: an interrupt may come as late as here.
  TrainEnd finish(TrainEnd end) {
    // The checkpoint comes first, so that a failing evaluation cannot lose what was learned.
    if (!run_.is_saved()) run_.save(false);
    if (end == TrainEnd::finished || end == TrainEnd::time_over) {
      // Where the time ended before the first step, there is nothing to measure.
      const bool learned = run_.state.step > 0 || !run_.time.is_set();
      const bool measures = run_.config.train.eval_every > 0 && learned && !evaluations_.gave_up();
      if (measures) evaluations_.evaluate(true);
      if (learned && !stop_requested()) write_sample(run_, true);
      if (measures && !stop_requested()) evaluations_.evaluate_whole();
      if (stop_requested()) end = TrainEnd::interrupted;
    }
    run_.event_if_any(ended_text(run_, end));
    RunLog& log = *run_.log;
    log.progress().finish(Clock::now());
    for (const std::string& line : continuing_texts(run_, end)) log.say(line);
    run_.show_now({.end = end});
    if (const std::string text = learning_verdict_of(run_, log.records()); !text.empty())
      log.say(fmt::format("{} {}: {}; {}", grouped(run_.state.step), plural(run_.state.step, "step"),
                          epochs_text(epochs_of(run_)), text));
    if (run_.request.show) log.say(fmt::format("report: {}", (run_.folder / "report.html").string()));
    return end;
  }

  ActiveRun run_;
  Recorder recorder_;
  StepQueue steps_;
  Evaluations evaluations_;
  std::optional<Step> step_, next_;      // the one to take now, and on a GPU the one behind it
  std::exception_ptr failed_;            // of the launch of `next_`, while a step was under way
  double collected_ = 0;                 // when the last step was counted
  std::optional<RunProgress> progress_;  // from the opening of the log on
  bool said_no_state_ = false, said_rise_ = false;
};

}  // namespace

TrainEnd train(const TrainRequest& request) {
  return Run(request).train();
}

}  // namespace eddy::training
