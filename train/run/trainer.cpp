// One training run, from its task to its report.
#include "train/run/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "models/optimizer/optimizer.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/threads/thread_pool.h"
#include "train/config/device_precision.h"
#include "train/files/text_file.h"
#include "train/page/human_text.h"
#include "train/run/checkpoint.h"
#include "train/run/environment.h"
#include "train/run/metrics.h"
#include "train/run/progress.h"
#include "train/run/report.h"
#include "train/run/run_folder.h"
#include "train/run/run_lock.h"
#include "train/run/state_watch.h"
#include "train/run/stop_signal.h"
#include "train/run/weights.h"
#include "train/step/captured_step.h"
#include "train/tasks/task.h"

namespace eddy {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// A saved state on the model's device and in its dtype: a run may be resumed in another precision.
State placed(const State& saved, Dtype dtype, Device device) {
  State state;
  for (const auto& [name, tensor] : saved) {
    const Tensor cast = is_floating(tensor.dtype()) ? raw::cast(tensor, dtype) : tensor;
    state.set(name, raw::to_device(cast, device));
  }
  return state;
}

class Run {
 public:
  explicit Run(const TrainRequest& request)
      : request_(request),
        config_(request.config),
        state_watch_(config_.train.state_gain_batches, config_.model.clear_state) {}

  TrainEnd train() {
    if (config_.train.threads > 0) set_thread_count(static_cast<int>(config_.train.threads));
    prepare();
    const StopOnSignal signals;
    try {
      open();
    } catch (...) {
      // Nothing is learned yet: a folder that could not be filled is removed, so the command can be repeated.
      std::error_code ignored;
      if (made_folder_) fs::remove_all(run_dir_, ignored);
      throw;
    }
    try {
      return loop();
    } catch (...) {
      rescue();
      throw;
    }
  }

 private:
  // Makes task, model and optimizer. All checks are here, before a folder is made.
  void prepare() {
    const auto [device, dtype] = choose_device_precision({"train", "train.device", "train.precision"},
                                                         config_.train.device, config_.train.precision);
    const bool resuming = !request_.resume.empty();
    run_dir_ = resuming ? request_.resume : request_.run_dir;
    if (run_dir_.empty())
      fail<ValueError>("train: the run has no folder (--run DIR for a new one, --resume DIR)");
    if (!run_dir_.has_filename()) run_dir_ = run_dir_.parent_path();  // "runs/a/" becomes "runs/a"
    std::error_code error;
    if (!resuming && fs::exists(run_dir_, error) && !ended_before_first_checkpoint(run_dir_))
      fail_because_it_exists();
    if (resuming && fs::exists(run_dir_ / "state.json", error)) fail_because_it_is_a_checkpoint();
    if (resuming && fs::is_directory(run_dir_, error)) lock_.emplace(run_dir_);  // else load_run says more

    std::optional<LoadedRun> loaded;
    if (const std::string& from = resuming ? request_.resume : request_.init_from; !from.empty())
      loaded = load_run(from, dtype, request_.checkpoint);
    make_the_task(loaded, resuming);
    if (loaded) check_same_model(*loaded);
    model_ = make_model(config_.model, dtype, device);
    if (loaded) {
      load_parameters(model_->params(), parameter_map(loaded->model->params()), loaded->checkpoint.string());
    } else {
      model_->params().initialize(static_cast<std::uint64_t>(config_.train.seed));
    }
    if (task_->row_length() > 0) model_->check_length(task_->row_length(), task_->carries_state());
    optimizer_ = make_optimizer(model_->params(), config_.train);
    if (resuming) {
      const State saved = task_->carries_state() ? load_recurrent(loaded->checkpoint) : State();
      if (!saved.empty()) check_same_rows(loaded->config.train.batch);
      load_optimizer(loaded->checkpoint, *model_, *optimizer_);
      state_ = loaded->state;
      task_->load(nlohmann::json::parse(state_.task), (loaded->checkpoint / "state.json").string());
      if (task_->carries_state())
        carried_ = {placed(saved, model_->params().values().dtype(), model_->params().values().device()),
                    loaded->config.train.batch};
    }
    captured_step_.emplace(*model_, *optimizer_, config_.train.capture == "auto");
    state_.text_sha256 = task_->data_sha256();
  }

  void make_the_task(std::optional<LoadedRun>& loaded, bool resuming) {
    TaskArguments arguments;
    arguments.config = config_;
    arguments.messages = &std::cout;
    if (loaded) {
      arguments.tokenizer = std::move(loaded->tokenizer);
      arguments.run = loaded->checkpoint.string();
      if (resuming) arguments.expected_sha256 = loaded->state.text_sha256;
    }
    task_ = make_task(std::move(arguments));
    task_->set_model_sizes(config_.model);
  }

  [[noreturn]] void fail_because_it_exists() const {
    if (checkpoints_of_run(run_dir_).empty())
      fail<IoError>("train: {} exists and holds no checkpoint to go on from (choose another folder)",
                    run_dir_.string());
    fail<IoError>("train: {} exists (go on with it by --resume {}, or choose another folder)",
                  run_dir_.string(), run_dir_.string());
  }

  [[noreturn]] void fail_because_it_is_a_checkpoint() const {
    const fs::path run = fs::absolute(run_dir_).parent_path().parent_path();
    const std::string name = checkpoint_step(run_dir_) >= 0 ? run_dir_.filename().string() : "step-N";
    fail<ValueError>(
        "train: {} is a checkpoint (to go on from it: --resume {} --checkpoint {}; to start a new run with "
        "its weights: --init-from {})",
        run_dir_.string(), run.string(), name, run_dir_.string());
  }

  void check_same_model(const LoadedRun& loaded) const {
    const nlohmann::json theirs = to_json(resolved(loaded.config.model)),
                         mine = to_json(resolved(config_.model));
    std::vector<std::string> may_differ = {"dropout", "init_std"};
    if (!loaded.config.model.positions) may_differ.push_back("context");
    if (loaded.config.model.family == "recurrent_transformer")
      for (const char* of_others : {"segment", "window"}) may_differ.emplace_back(of_others);
    std::string differ;
    for (const auto& [key, value] : theirs.items())
      if (mine.at(key) != value && std::find(may_differ.begin(), may_differ.end(), key) == may_differ.end())
        differ +=
            fmt::format("{}{} {} for {}", differ.empty() ? "" : ", ", key, mine.at(key).dump(), value.dump());
    if (differ.empty()) return;
    fail<ConfigError>(
        "train: the configuration's model is not that of {}: {} (resume and init-from take the same "
        "[model] table)",
        loaded.checkpoint.string(), differ);
  }

  // Each row of a batch has its own state, which belongs to that row's data.
  void check_same_rows(std::int64_t batch) const {
    if (config_.train.batch != batch)
      fail<ConfigError>(
          "train: train.batch is {} and the run carries the state of {} rows (resume with the same batch, or "
          "start a new run with --init-from)",
          config_.train.batch, batch);
  }

  void open() {
    std::error_code error;
    if (request_.resume.empty()) {
      if (run_dir_.has_parent_path()) fs::create_directories(run_dir_.parent_path(), error);
      // create_directory is atomic: of two programs that begin the same run only one continues.
      const bool made = !error && fs::create_directory(run_dir_, error);
      if (error) fail<IoError>("train: {} cannot be made: {}", run_dir_.string(), error.message());
      lock_.emplace(run_dir_);
      // Looked at again under the lock: by now it may be the run of another process.
      if (!made && !ended_before_first_checkpoint(run_dir_)) fail_because_it_exists();
      made_folder_ = made;
      if (!made) fs::remove(run_dir_ / "metrics.jsonl", error);  // of the run that ended before its first one
      remove_left_overs(run_dir_);
      replace_text_file(run_dir_ / "config.json", to_json(config_).dump(1) + "\n");
      if (const Tokenizer* tokenizer = task_->tokenizer()) {
        replace_text_file(run_dir_ / "tokenizer.json", tokenizer->to_json() + "\n");
        const std::string model = tokenizer->model_file();
        if (!model.empty()) replace_text_file(run_dir_ / "tokenizer.model", model);
      }
    } else {
      remove_left_overs(run_dir_);
      correct_best();
      drop_metrics_after(run_dir_ / "metrics.jsonl", state_.step);
    }
    metrics_.emplace(run_dir_ / "metrics.jsonl");
    started_ = Clock::now();
    seconds_before_ = state_.seconds;
    ProgressOptions options;
    options.total_steps = config_.train.steps;
    options.minutes_limit = config_.train.minutes;
    progress_.emplace(stdout, options, started_);
    const TrainConfig& t = config_.train;
    progress_->message(fmt::format("{} on {}: {} parameters, {}, {} on {}, {} threads, {}",
                                   config_.model.model, task_->name(), model_->params().count(),
                                   task_->summary(), t.precision, t.device, thread_count(),
                                   run_dir_.string()));
    if (config_.train.precision == "bf16" && model_->params().values().device() == kCpu)
      event("bf16 on the CPU rounds as a GPU does and is slower than f32: it is there for checks");
    if (model_->params().values().device() == kCpu)
      if (const std::string why = slow_matmul_reason(); !why.empty()) event("slow products: " + why);
    if (task_->row_length() > 0)
      if (const std::string what = model_->unused_parts(task_->row_length(), task_->carries_state());
          !what.empty())
        event("warning: " + what);
    if (!request_.resume.empty())
      say_resumed();
    else  // the run can be resumed from the beginning, and a full disk shows before anything is learned
      save(false);
  }

  // Points `best` to the checkpoint that the state names: the run may have ended between that checkpoint and
  // the pointer to it, or the pointer is damaged.
  void correct_best() const {
    const fs::path folder = run_dir_ / "checkpoints", pointer = folder / "best";
    const std::string name = "step-" + std::to_string(state_.best_step);
    if (state_.best_step <= 0 || !fs::exists(folder / name / "state.json")) return;
    if (!fs::exists(pointer) || read_text_file(pointer) != name + "\n")
      replace_text_file(pointer, name + "\n");
  }

  // Whether a signal or train.minutes asks for the end. It is looked at between steps, accumulated batches,
  // batches of an evaluation, and tokens of a sample.
  bool must_end() const {
    const double minutes = config_.train.minutes;
    return stop_requested() || (minutes > 0 && seconds_between(started_, Clock::now()) >= 60 * minutes);
  }

  // Does what a stop kept the last step from doing. Returns whether the run ends.
  bool do_what_is_owed() {
    const TrainConfig& t = config_.train;
    if (state_.step > 0 && task_->owes_after_step() && after_step(kNotMeasured)) return true;
    const bool sampled = t.sample_every > 0 && state_.step % t.sample_every == 0 && state_.step < t.steps;
    if (state_.step == 0 || (sampled && !request_.resume.empty() && !has_sample())) write_sample();
    return false;
  }

  // Whether the metrics hold a sample of this step.
  bool has_sample() const {
    const Metrics metrics = read_metrics(run_dir_ / "metrics.jsonl");
    return std::any_of(metrics.samples.begin(), metrics.samples.end(),
                       [&](const SampleRecord& sample) { return sample.step == state_.step; });
  }

  void say_resumed() {
    event(fmt::format("resumed at step {}", state_.step));
    const std::vector<std::string> foreign = read_metrics(run_dir_ / "metrics.jsonl").foreign;
    if (!foreign.empty())
      event(fmt::format(
          "warning: metrics.jsonl has {} lines that are no records, the first is {} (they stay, and "
          "the report leaves them out)",
          foreign.size(), foreign.front()));
  }

  TrainEnd loop() {
    const TrainConfig& t = config_.train;
    TrainEnd end = TrainEnd::finished;
    std::int64_t bad_in_a_row = 0;
    const bool learned = do_what_is_owed();
    while (!learned && state_.step < t.steps) {
      if (!must_end() && t.eval_every > 0 && state_.step % t.eval_every == 0) evaluate_now();
      if (must_end()) {
        end = stop_requested() ? TrainEnd::interrupted : TrainEnd::time_over;
        break;
      }
      const Clock::time_point before = Clock::now();
      const double rate = task_->learning_rate(state_.step, learning_rate_at(t, state_.step));
      task_before_step_ = task_->save();
      const std::vector<Batch> batches = next_batches();
      if (batches.empty()) continue;  // as below
      std::int64_t tokens = 0;
      for (const Batch& batch : batches) tokens += batch.tokens.elements();
      const StepResult result = step(batches, rate);
      if (result.stopped) continue;  // to the end of the run: the step is not counted
      const double ms = 1000 * seconds_between(before, Clock::now());
      ++state_.step;
      task_before_step_.reset();
      state_.tokens += tokens;
      note_loss(result);
      state_.seconds = seconds_before_ + seconds_between(started_, Clock::now());
      bad_in_a_row = result.finite ? 0 : bad_in_a_row + 1;
      report_step(result, rate, static_cast<double>(tokens) / ms * 1000, ms);
      if (!result.finite && bad_in_a_row >= t.max_bad_steps) {
        event(fmt::format("stopped: {} steps in a row were not finite", bad_in_a_row));
        end = TrainEnd::too_many_bad_steps;
        break;
      }
      if (after_step(result.finite ? result.loss : kNotMeasured)) break;
      if (must_end()) continue;
      if (t.sample_every > 0 && state_.step % t.sample_every == 0 && state_.step < t.steps) write_sample();
      if (t.checkpoint_every > 0 && state_.step % t.checkpoint_every == 0 && state_.step < t.steps) {
        save(false);
        write_report_now();
      }
    }
    return finish(end);
  }

  // The batches of the next step; none when the run must end before all are read.
  std::vector<Batch> next_batches() {
    std::vector<Batch> batches;
    for (std::int64_t micro = 0; micro < config_.train.accumulate; ++micro) {
      if (micro > 0 && must_end()) return {};
      batches.push_back(task_->next(state_.step, micro));
    }
    return batches;
  }

  StepResult step(const std::vector<Batch>& batches, double rate) {
    StepOptions options;
    options.learning_rate = rate;
    options.seed = static_cast<std::uint64_t>(config_.train.seed);
    options.step = state_.step;
    options.carry_state = task_->carries_state();
    options.stop = [this] { return must_end(); };
    StepResult result = captured_step_->step(batches, carried_, options);
    if (result.stopped) return result;
    if (const std::string message = captured_step_->take_message(); !message.empty()) event(message);
    for (const std::string& notice : take_warnings()) event(notice);
    if (!result.finite) event(fmt::format("step {} skipped: {}", state_.step, result.problem));
    if (options.carry_state && result.finite && carried_.state.empty() && !said_no_state_) {
      said_no_state_ = true;
      event(fmt::format("{} has no state to carry: every batch begins afresh", config_.model.model));
    }
    return result;
  }

  // Keeps what tells later whether the run was going well. A step without targets has no loss.
  void note_loss(const StepResult& result) {
    if (!result.finite || std::isfinite(result.loss)) state_.loss = result.loss;
    if (std::isfinite(state_.loss)) state_.lowest_loss = std::min(state_.lowest_loss, state_.loss);
  }

  // Calls the task's after_step; returns whether the run ends.
  bool after_step(double loss) {
    AfterStep after = task_->after_step(*model_, state_.step, loss,
                                        [this](std::int64_t, std::int64_t) { return !must_end(); });
    if (after.evaluation) record_evaluation(*after.evaluation);
    if (!after.message.empty()) event(after.message);
    return after.stop;
  }

  void report_step(const StepResult& result, double rate, double tokens_per_second, double ms) {
    const std::int64_t memory = allocator(model_->params().values().device()).stats().peak_bytes;
    if (state_.step == 1 || state_.step % config_.train.log_every == 0 || !result.finite) {
      StepRecord record;
      record.step = state_.step;
      record.loss = result.loss;
      record.learning_rate = rate;
      record.grad_norm = result.grad_norm;
      record.tokens_per_second = tokens_per_second;
      record.memory_bytes = memory;
      record.ms = ms;
      record.graph_nodes = result.graph.nodes;
      record.saved_bytes = result.graph.saved_bytes;
      record.graph_depth = result.graph.max_depth;
      metrics_->write(record);
    }
    progress_->update({state_.step, result.loss, rate, tokens_per_second, memory}, Clock::now());
  }

  // Records an evaluation; returns its loss and other numbers as a text.
  std::string record_evaluation(const EvalResult& result) {
    EvalRecord record;
    record.step = state_.step;
    record.loss = result.loss;
    record.tokens = result.tokens;
    record.extras = result.extras;
    metrics_->write(record);
    std::string text = fmt::format("{:.4f}", result.loss);
    for (const auto& [name, value] : result.extras) text += fmt::format(", {} {}", name, human_number(value));
    return text;
  }

  // `last`: the evaluation at the end of a run, which comes on top of train.minutes.
  void evaluate_now(bool last = false) {
    const TrainConfig& t = config_.train;
    EvalOptions options;
    options.batches = t.eval_batches;
    options.batch = t.batch;
    options.seed = static_cast<std::uint64_t>(t.seed);
    options.capture = t.capture == "auto";
    // The end of the run need not wait for the end of a pass over a long text.
    bool stopped = false;
    const EvalProgress unless_stopped = [&](std::int64_t, std::int64_t) {
      stopped = stopped || (last ? stop_requested() : must_end());
      return !stopped;
    };
    EvalResult result = task_->evaluate(*model_, options, unless_stopped);
    if (!stopped) state_watch_.measure(*task_, *model_, options, result, unless_stopped);
    cut_by_time_ = stopped && !stop_requested();
    if (stopped) return;
    const std::string text = record_evaluation(result);
    const bool best = result.loss < state_.best_loss;
    progress_->message(
        fmt::format("step {}: validation loss {}{}", state_.step, text, best ? " (best)" : ""));
    const double done = progress_->part_done(state_.step, Clock::now());
    if (const std::string warning = state_watch_.warning(result, done); !warning.empty()) event(warning);
    if (best) {
      state_.best_loss = result.loss;
      state_.best_step = state_.step;
      if (state_.step > 0) save(true);
    }
    write_report_now();
  }

  // `last`: as for evaluate_now.
  void write_sample(bool last = false) {
    const TrainConfig& t = config_.train;
    if (t.sample_tokens <= 0) return;
    bool stopped = false;
    const auto stop = [&] { return stopped = last ? stop_requested() : must_end(); };
    std::string text;
    try {
      text = task_->sample(*model_, t.sample_tokens, static_cast<std::uint64_t>(t.seed), stop);
    } catch (const NonFiniteError& error) {  // steps and evaluations report it too; the run continues
      event(fmt::format("no sample at step {}: {}", state_.step, error.what()));
    }
    cut_by_time_ = stopped && !stop_requested();
    if (text.empty() || stopped) return;
    metrics_->write(SampleRecord{state_.step, text});
    progress_->message(fmt::format("--- sample at step {}\n{}\n---", state_.step, text));
  }

  void save(bool best) {
    state_.seconds = seconds_before_ + seconds_between(started_, Clock::now());
    state_.task = (task_before_step_ ? *task_before_step_ : task_->save()).dump();
    save_checkpoint(run_dir_, config_, task_->tokenizer(), *model_, *optimizer_, carried_.state, state_, best,
                    config_.train.keep);
    saved_step_ = state_.step;
  }

  // Saves a checkpoint after an error: the steps done, with the data positions before the step that failed.
  void rescue() {
    if (saved_step_ == state_.step) return;
    std::string text;
    try {
      save(false);
      text = fmt::format("an error ended the run at step {}: saved; go on with --resume {}", state_.step,
                         run_dir_.string());
    } catch (const std::exception& error) {
      text = fmt::format("an error ended the run at step {}, which could not be saved: {}", state_.step,
                         error.what());
    }
    progress_->message(text);
  }

  void event(const std::string& text) {
    metrics_->write(EventRecord{state_.step, text});
    progress_->message(text);
  }

  void write_report_now() {
    ReportData data;
    data.title = fmt::format("{} on {}", config_.model.model, task_->name());
    data.parameters = model_->params().count();
    data.config = config_;
    data.command_line = request_.command_line;
    data.environment = environment_lines();
    data.metrics = read_metrics(run_dir_ / "metrics.jsonl");
    data.tokens_seen = state_.tokens;
    data.seconds = seconds_before_ + seconds_between(started_, Clock::now());
    data.add_sections = [this](HtmlPage& page) { task_->report(page, *model_); };
    try {
      write_report(run_dir_, data);
    } catch (const IoError& error) {  // the page can be made again: the run continues
      event(fmt::format("warning: no report: {}", error.what()));
    }
  }

  // Saves, measures and reports. Returns how the run ended: an interrupt may come as late as here.
  TrainEnd finish(TrainEnd end) {
    // The checkpoint comes first, so that a failing evaluation cannot lose what was learned.
    if (saved_step_ != state_.step) save(false);
    if (end == TrainEnd::finished || (end == TrainEnd::time_over && !cut_by_time_)) {
      if (config_.train.eval_every > 0) evaluate_now(true);
      if (!stop_requested()) write_sample(true);
      if (stop_requested()) end = TrainEnd::interrupted;
    }
    switch (end) {
      case TrainEnd::finished:
        break;
      case TrainEnd::time_over:
        event(fmt::format("stopped after {} minutes at step {}{}", config_.train.minutes, state_.step,
                          cut_by_time_ ? ", inside an evaluation or a sample" : ""));
        break;
      case TrainEnd::interrupted:
        event(fmt::format("interrupted at step {}: saved; go on with --resume {}", state_.step,
                          run_dir_.string()));
        break;
      case TrainEnd::too_many_bad_steps:
        break;
    }
    progress_->finish(Clock::now());
    write_report_now();
    progress_->message(fmt::format("report: {}", (run_dir_ / "report.html").string()));
    return end;
  }

  const TrainRequest& request_;
  RunConfig config_;
  StateWatch state_watch_;
  fs::path run_dir_;
  bool made_folder_ = false;
  std::optional<RunLock> lock_;
  std::unique_ptr<Task> task_;
  std::optional<nlohmann::json> task_before_step_;  // set while a step is in progress
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<CapturedStep> captured_step_;
  CarriedState carried_;  // of training; evaluations have their own
  TrainingState state_;
  std::int64_t saved_step_ = -1;
  bool said_no_state_ = false;
  bool cut_by_time_ = false;  // train.minutes ended an evaluation or a sample, which is not begun again
  std::optional<MetricsWriter> metrics_;
  std::optional<Progress> progress_;
  Clock::time_point started_;
  double seconds_before_ = 0;
};

}  // namespace

TrainEnd train(const TrainRequest& request) {
  return Run(request).train();
}

}  // namespace eddy
