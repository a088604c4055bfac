// One run, from its text to its report.
#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "autograd/checkpoint.h"
#include "autograd/tape.h"
#include "models/model.h"
#include "ops/cross_entropy.h"
#include "ops/pointwise.h"
#include "tensor/allocator.h"
#include "tensor/format.h"
#include "tensor/thread_pool.h"
#include "train/adam.h"
#include "train/checkpoint.h"
#include "train/corpus.h"
#include "train/dataset.h"
#include "train/environment.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/report.h"
#include "train/sha256.h"
#include "train/text_file.h"
#include "train/weights.h"

namespace eddy {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t stop_signal = 0;

// While alive, SIGINT and SIGTERM ask the loop to stop; a second one ends the program at once.
class StopOnSignal {
 public:
  StopOnSignal() {
    stop_signal = 0;
    struct sigaction action {};
    action.sa_handler = [](int number) {
      if (stop_signal != 0) {
        std::signal(number, SIG_DFL);
        std::raise(number);
      }
      stop_signal = number;
    };
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~StopOnSignal() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// What one optimizer step measured.
struct StepResult {
  double loss = 0;
  double grad_norm = 0;
  bool finite = true;
  GraphStats graph;
};

class Run {
 public:
  explicit Run(const TrainRequest& request) : request_(request), config_(request.config) {}

  TrainEnd train() {
    if (config_.train.threads > 0) set_thread_count(static_cast<int>(config_.train.threads));
    prepare();
    open();
    const StopOnSignal signals;
    const TrainEnd end = loop();
    return end;
  }

 private:
  // Everything that can be refused is refused here, before a folder is made.
  void prepare() {
    const Dtype dtype = config_.train.precision == "f64" ? Dtype::f64 : Dtype::f32;
    if (config_.train.device != "cpu")
      fail<DeviceError>("train: train.device is {} (this build has: cpu)", config_.train.device);
    const bool resuming = !request_.resume.empty();
    run_dir_ = resuming ? request_.resume : request_.run_dir;
    if (run_dir_.empty())
      fail<ValueError>("train: the run has no folder (--run DIR for a new one, --resume DIR)");
    std::error_code error;
    if (!resuming && fs::exists(run_dir_, error))
      fail<IoError>("train: {} exists (go on with it by --resume {}, or choose another folder)",
                    run_dir_.string(), run_dir_.string());

    std::optional<LoadedRun> loaded;
    if (resuming) loaded = load_run(request_.resume, dtype);
    if (!resuming && !request_.init_from.empty()) loaded = load_run(request_.init_from, dtype);

    TextSource source = resolve_text(config_.data.path, std::cout);
    data_name_ = source.name;
    const std::string text_sha256 = sha256_hex(source.text.view());
    if (resuming && !loaded->state.text_sha256.empty() && loaded->state.text_sha256 != text_sha256)
      fail<ConfigError>(
          "train: {} is not the text that {} was trained on: SHA-256 {} and {} (name it by --data, or start "
          "a "
          "new run with --init-from)",
          source.name, run_dir_.string(), text_sha256, loaded->state.text_sha256);
    tokenizer_ =
        loaded ? std::move(loaded->tokenizer) : make_tokenizer(config_.data.tokenizer, source.text.view());
    if (tokenizer_->name() != config_.data.tokenizer)
      fail<ConfigError>(
          "train: data.tokenizer is {} and that of {} is {} (its parameters fit its own tokens alone)",
          config_.data.tokenizer, loaded->checkpoint.string(), tokenizer_->name());
    if (config_.model.vocab != 0 && config_.model.vocab != tokenizer_->vocab_size())
      fail<ConfigError>(
          "train: model.vocab is {} and the {} tokenizer of this text has {} tokens (leave model.vocab out, "
          "or "
          "use the text the model was made for)",
          config_.model.vocab, tokenizer_->name(), tokenizer_->vocab_size());
    config_.model.vocab = tokenizer_->vocab_size();
    sequence_ = config_.train.sequence > 0 ? config_.train.sequence : config_.model.context;
    corpus_ = split_corpus(tokenizer_->encode(source.text.view()), config_.data.split, sequence_);
    if (config_.model.readout != "all")
      fail<ConfigError>("train: model.readout is {} (text is scored at all positions)",
                        config_.model.readout);

    if (loaded) {
      const ModelConfig theirs = resolved(loaded->config.model), mine = resolved(config_.model);
      ModelConfig comparable = mine;
      comparable.dropout = theirs.dropout;
      comparable.init_std = theirs.init_std;
      comparable.context = theirs.positions ? mine.context : theirs.context;
      if (!(comparable == theirs))
        fail<ConfigError>(
            "train: the model of {} has other sizes than the configuration (resume and init-from take the "
            "same "
            "[model] table)",
            loaded->checkpoint.string());
    }
    model_ = make_model(config_.model, dtype);
    if (loaded) {
      load_parameters(model_->params(), parameter_map(loaded->model->params()), loaded->checkpoint.string());
    } else {
      model_->params().initialize(static_cast<std::uint64_t>(config_.train.seed));
    }
    optimizer_.emplace(model_->params(), config_.train);
    if (resuming) {
      load_optimizer(loaded->checkpoint, *model_, *optimizer_);
      state_ = loaded->state;
    }
    state_.text_sha256 = text_sha256;
  }

  void open() {
    std::error_code error;
    if (request_.resume.empty()) {
      fs::create_directories(run_dir_, error);
      if (error) fail<IoError>("train: {} cannot be made: {}", run_dir_.string(), error.message());
      replace_text_file(run_dir_ / "config.json", to_json(config_).dump(1) + "\n");
      replace_text_file(run_dir_ / "tokenizer.json", tokenizer_->to_json() + "\n");
    } else {
      drop_metrics_after(run_dir_ / "metrics.jsonl", state_.step);
    }
    metrics_.emplace(run_dir_ / "metrics.jsonl");
    started_ = Clock::now();
    seconds_before_ = state_.seconds;
    ProgressOptions options;
    options.total_steps = config_.train.steps;
    options.minutes_limit = config_.train.minutes;
    progress_.emplace(stdout, options, started_);
    const Corpus& corpus = corpus_;
    progress_->message(fmt::format(
        "{} on {}: {} parameters, {} training and {} validation tokens, vocabulary {} ({}), {} threads, {}",
        config_.model.model, data_name_, model_->params().count(), corpus.train().size(),
        corpus.valid().size(), tokenizer_->vocab_size(), tokenizer_->name(), thread_count(),
        run_dir_.string()));
    if (state_.step > 0) event(fmt::format("resumed at step {}", state_.step));
  }

  TrainEnd loop() {
    const TrainConfig& t = config_.train;
    TrainEnd end = TrainEnd::finished;
    std::int64_t bad_in_a_row = 0;
    if (state_.step == 0) write_sample();
    while (state_.step < t.steps) {
      if (t.eval_every > 0 && state_.step % t.eval_every == 0) evaluate_now();
      if (stop_signal != 0) {
        end = TrainEnd::interrupted;
        break;
      }
      if (t.minutes > 0 && seconds_between(started_, Clock::now()) >= 60 * t.minutes) {
        end = TrainEnd::time_over;
        break;
      }
      const Clock::time_point before = Clock::now();
      const double rate = learning_rate_at(t, state_.step);
      const StepResult result = step(rate);
      const double ms = 1000 * seconds_between(before, Clock::now());
      const std::int64_t tokens = t.batch * t.accumulate * sequence_;
      ++state_.step;
      state_.tokens += tokens;
      state_.seconds = seconds_before_ + seconds_between(started_, Clock::now());
      bad_in_a_row = result.finite ? 0 : bad_in_a_row + 1;
      report_step(result, rate, static_cast<double>(tokens) / ms * 1000, ms);
      if (!result.finite && bad_in_a_row >= t.max_bad_steps) {
        event(fmt::format("stopped: {} steps in a row were not finite", bad_in_a_row));
        end = TrainEnd::too_many_bad_steps;
        break;
      }
      if (t.sample_every > 0 && state_.step % t.sample_every == 0 && state_.step < t.steps) write_sample();
      if (t.checkpoint_every > 0 && state_.step % t.checkpoint_every == 0 && state_.step < t.steps) {
        save(false);
        write_report_now();
      }
    }
    finish(end);
    return end;
  }

  // One optimizer step over `accumulate` batches; skipped when loss or gradient is not finite.
  StepResult step(double rate) {
    const TrainConfig& t = config_.train;
    StepResult result;
    model_->params().zero_gradients();
    for (std::int64_t micro = 0; micro < t.accumulate; ++micro) {
      const auto [tokens, targets] = batch(micro);
      ForwardInput input;
      input.tokens = tokens;
      // Micro-batches draw masks of their own.
      input.dropout = {true, static_cast<std::uint64_t>(t.seed),
                       static_cast<std::uint64_t>(state_.step * t.accumulate + micro)};
      const ForwardOutput output = model_->forward(input);
      const Tensor loss = cross_entropy(output.logits, targets);
      const double value = loss.item();
      result.loss += value / static_cast<double>(t.accumulate);
      result.graph = graph_stats();
      if (!std::isfinite(value)) {
        result.finite = false;
        explain_bad_forward(input);
        return result;
      }
      backward(loss, Tensor::full(loss.shape(), 1.0 / static_cast<double>(t.accumulate), loss.dtype(),
                                  loss.device()));
    }
    result.grad_norm = optimizer_->step(model_->params(), rate);
    if (!std::isfinite(result.grad_norm)) {
      result.finite = false;
      std::string where = "the sum of squares is too large";
      for (const Parameter& parameter : model_->params().parameters())
        if (const Tensor gradient = grad(parameter.value); gradient.defined() && !all_finite(gradient)) {
          where = fmt::format("the first is grad.{}", parameter.name);
          break;
        }
      event(fmt::format("step {} skipped: the gradient is not finite; {}", state_.step, where));
    }
    return result;
  }

  // Runs the batch again with every result checked, to name the op and the module.
  void explain_bad_forward(const ForwardInput& input) {
    std::string where = "no single op gives it: the loss itself overflows";
    for (const Parameter& parameter : model_->params().parameters())
      if (!all_finite(parameter.value)) {
        where = fmt::format("parameter {} holds a NaN or infinity", parameter.name);
        event(fmt::format("step {} skipped: the loss is not finite; {}", state_.step, where));
        return;
      }
    try {
      const AnomalyMode checking;
      const NoGrad no_grad;
      static_cast<void>(model_->forward(input));
    } catch (const NonFiniteError& error) {
      where = error.what();
    }
    event(fmt::format("step {} skipped: the loss is not finite; {}", state_.step, where));
  }

  std::pair<Tensor, Tensor> batch(std::int64_t micro) {
    const TrainConfig& t = config_.train;
    std::pair<Tensor, Tensor> result{Tensor::empty({t.batch, sequence_}, Dtype::i32),
                                     Tensor::empty({t.batch, sequence_}, Dtype::i32)};
    sample_batch(corpus_.train(), static_cast<std::uint64_t>(t.seed), static_cast<std::uint64_t>(state_.step),
                 static_cast<std::uint64_t>(micro), t.batch, sequence_, result.first.data<std::int32_t>(),
                 result.second.data<std::int32_t>());
    return result;
  }

  void report_step(const StepResult& result, double rate, double tokens_per_second, double ms) {
    const std::int64_t memory = allocator(kCpu).stats().peak_bytes;
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

  void evaluate_now() {
    const TrainConfig& t = config_.train;
    // An interrupt does not wait for the end of a pass over a long text.
    const EvalProgress go_on = [](std::int64_t, std::int64_t) { return stop_signal == 0; };
    const EvalResult result =
        t.eval_batches == 0 ? evaluate(*model_, corpus_.valid(), sequence_, t.batch, go_on)
                            : evaluate_random(*model_, corpus_.valid(), static_cast<std::uint64_t>(t.seed),
                                              t.eval_batches, t.batch, sequence_, go_on);
    if (stop_signal != 0) return;
    EvalRecord record;
    record.step = state_.step;
    record.loss = result.loss;
    record.tokens = result.tokens;
    metrics_->write(record);
    const bool best = result.loss < state_.best_loss;
    progress_->message(
        fmt::format("step {}: validation loss {:.4f}{}", state_.step, result.loss, best ? " (best)" : ""));
    if (best) {
      state_.best_loss = result.loss;
      state_.best_step = state_.step;
      if (state_.step > 0) save(true);
    }
    write_report_now();
  }

  void write_sample() {
    const TrainConfig& t = config_.train;
    if (t.sample_tokens <= 0) return;
    SampleOptions options;
    options.seed = static_cast<std::uint64_t>(t.seed);
    options.temperature = 0.8;
    std::string text;
    generate(*model_, *tokenizer_, {}, t.sample_tokens, options,
             [&](std::string_view piece) { text += piece; });
    metrics_->write(SampleRecord{state_.step, text});
    progress_->message(fmt::format("--- sample at step {}\n{}\n---", state_.step, text));
  }

  void save(bool best) {
    state_.seconds = seconds_before_ + seconds_between(started_, Clock::now());
    save_checkpoint(run_dir_, config_, *tokenizer_, *model_, *optimizer_, {}, state_, best,
                    config_.train.keep);
    saved_step_ = state_.step;
  }

  void event(const std::string& text) {
    metrics_->write(EventRecord{state_.step, text});
    progress_->message(text);
  }

  void write_report_now() {
    ReportData data;
    data.title = fmt::format("{} on {}", config_.model.model, data_name_);
    data.model_name = config_.model.model;
    data.parameters = model_->params().count();
    data.config_json = to_json(config_).dump();
    data.command_line = request_.command_line;
    data.environment = environment_lines();
    data.metrics = read_metrics(run_dir_ / "metrics.jsonl");
    data.tokens_seen = state_.tokens;
    data.seconds = seconds_before_ + seconds_between(started_, Clock::now());
    write_report(run_dir_, data);
  }

  void finish(TrainEnd end) {
    // The checkpoint comes first: what was learned must not depend on the evaluation going well.
    if (saved_step_ != state_.step) save(false);
    if (end == TrainEnd::finished || end == TrainEnd::time_over) {
      if (config_.train.eval_every > 0) evaluate_now();
      write_sample();
    }
    switch (end) {
      case TrainEnd::finished:
        break;
      case TrainEnd::time_over:
        event(fmt::format("stopped after {} minutes at step {}", config_.train.minutes, state_.step));
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
  }

  const TrainRequest& request_;
  RunConfig config_;
  fs::path run_dir_;
  std::string data_name_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Corpus corpus_;
  std::int64_t sequence_ = 0;
  std::unique_ptr<Model> model_;
  std::optional<AdamOptimizer> optimizer_;
  TrainingState state_;
  std::int64_t saved_step_ = -1;
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
