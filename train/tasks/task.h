// What a run is trained and judged on. The trainer knows no data: it asks a Task for batches, carries the
// model's state from one to the next when the task says so, and lets the task measure the model. A task is
// one file, train/task_<name>.cpp, and one line in task_registry.cpp; `data.name` chooses it.
//
//   for each step:  rate = learning_rate(step, scheduled)
//                   next(step, 0), ..., next(step, accumulate - 1)      the batches of one optimizer step
//                   forward, loss, backward, optimizer
//                   after_step(model, step + 1, loss)
//   now and then:   evaluate, sample, report, save
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "models/model.h"
#include "train/config/run_config.h"
#include "train/eval/evaluate.h"
#include "train/text/tokenizer.h"

namespace eddy {

class HtmlPage;

// What after_step may ask of the trainer.
struct AfterStep {
  std::string message;                   // for the log and the report's events; empty: nothing to say
  std::optional<EvalResult> evaluation;  // a measurement made on the way, to be recorded
  bool stop = false;                     // the task is learned: end the run as if its steps were done
};

class Task {
 public:
  Task() = default;
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // What the report's title calls the data: "tinyshakespeare".
  virtual std::string name() const = 0;
  // The sizes in a few words: "900 training and 100 validation tokens, vocabulary 65 (char)".
  virtual std::string summary() const = 0;

  // Puts the task's vocab and n_out where the model's are 0.
  // errors: ConfigError, naming key and values, when the model's vocab, n_out, readout or context does not
  // fit the task. Called before the model is made.
  virtual void fit(ModelConfig& model) const = 0;

  // The batch of one micro-batch of one step. Without carries_state it is a pure function of (seed, step,
  // micro) and of what load restores. With it, the task goes on by one segment at each call; calls come in
  // order and none is repeated.
  virtual Batch next(std::int64_t step, std::int64_t micro) = 0;
  // Whether the model's state goes from batch to batch, row by row. Rows that Batch::start flags begin anew.
  virtual bool carries_state() const { return false; }

  // Tokens of each row of every training batch; 0 when they differ from batch to batch.
  virtual std::int64_t row_length() const { return 0; }

  // What must survive a resume: stream positions, a curriculum. An object, null for nothing. load gets what
  // save gave; `file` stands for it in errors. It is called before an evaluation too, where a task takes only
  // what the measure depends on, such as the length that a curriculum has reached. errors of load:
  // FormatError for damaged values, ConfigError when the configuration was changed so that they fit no more.
  virtual nlohmann::json save() const;
  virtual void load(const nlohmann::json& saved, const std::string& file);

  // The learning rate of a step, counted from 0; `scheduled` is that of train.schedule.
  virtual double learning_rate(std::int64_t step, double scheduled) const;
  // Called after every optimizer step, skipped ones included, before a checkpoint of it is written.
  // `steps_done` counts this one; `loss` is its loss, NaN when the step was skipped.
  virtual AfterStep after_step(const Model& model, std::int64_t steps_done, double loss);

  // The loss and other numbers of the model on data it is not trained on. Leaves the training's positions and
  // state alone.
  // errors: ValueError for a split or options the task does not have, sizes that make no batch.
  virtual EvalResult evaluate(const Model& model, const EvalOptions& options,
                              const EvalProgress& progress = {}) const = 0;

  // Text the model writes, "" for tasks that have none.
  virtual std::string sample(const Model& model, std::int64_t tokens, std::uint64_t seed) const;
  // Adds sections of the task's own to the run's report: charts, pictures, tables.
  virtual void report(HtmlPage& page, const Model& model) const;

  // Whether the data come from data.path; else they are made from other keys.
  virtual bool reads_files() const { return false; }
  // Whether evaluate draws anything by options.seed.
  virtual bool draws(const EvalOptions& options) const = 0;

  // Of tasks on text, else nullptr. Saved with the run. Lives as long as the task.
  virtual const Tokenizer* tokenizer() const { return nullptr; }
  // Names the data, so that a resumed run can tell that it got other data; "" when there is nothing to tell.
  virtual std::string data_sha256() const { return {}; }
};

// What a task is made from.
struct TaskArguments {
  RunConfig config;
  std::unique_ptr<Tokenizer> tokenizer;  // of the run that is resumed, evaluated or started from; or none
  std::string same_data_as;      // data_sha256 of the run that is gone on with; empty: any data will do
  std::string run;               // that run's name, for errors
  bool training = true;          // false: evaluate alone is called; what training needs is not checked
  std::ostream* says = nullptr;  // is told where the data come from; may be null
};

// The task that config.data.name names.
// errors: ConfigError for an unknown name (the nearest is given) and for keys that do not fit each other;
// IoError, FormatError and ValueError for data that cannot be read or are too small.
std::unique_ptr<Task> make_task(TaskArguments arguments);

// One row of the list of tasks.
struct TaskEntry {
  const char* name;
  const char* summary;
  std::unique_ptr<Task> (*make)(TaskArguments&& arguments);
};
std::span<const TaskEntry> task_registry();

// Tokens of one row of a batch: train.sequence, or where that is 0 model.segment, or where that is 0 too
// model.context.
std::int64_t segment_length(const RunConfig& config);

}  // namespace eddy
