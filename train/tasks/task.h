// A task defines what a run is trained and evaluated on. The trainer knows no data: a Task gives it batches,
// says whether the model's state is carried from batch to batch, and evaluates the model. A task is one file,
// task_<name>.cpp in train/tasks/ or, where its data are random, train/tasks/synthetic/, with its keys, its class and
// its TaskEntry; a declaration below and a row in task_registry.cpp add it to the list. A program registers its own by
// register_task. The key `data.name` chooses it.
//
//   for each step:    rate = learning_rate(step, scheduled)
//                     next(step, 0), ..., next(step, accumulate - 1)      the batches of one optimizer step
//                     forward, loss, backward, optimizer
//                     after_step(model, step + 1, loss)
//   from time to time: evaluate, sample, report, save
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "train/config/run_config.h"
#include "train/config/task_entry.h"
#include "train/eval/evaluate.h"
#include "train/record/figures.h"
#include "train/text/baselines.h"
#include "train/text/text_measures.h"
#include "train/text/text_phase.h"
#include "train/text/tokenizer.h"

namespace eddy::training {

// What after_step returns to the trainer.
struct AfterStep {
  std::string message;                   // for the log and the report's events; empty: none
  std::optional<EvalResult> evaluation;  // an evaluation that the task made, to be recorded
  bool stop = false;                     // the task is learned: end the run as if its steps were done
};

// Where a run's batches come from, how the model is measured on them, and what a checkpoint keeps of it. A task of
// one's own derives from it, or from SyntheticTask, and is registered (register_task).
class Task {
 public:
  Task() = default;
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // The name of the data in the report's title: "tinyshakespeare".
  virtual std::string name() const = 0;
  // The sizes in a few words: "900 training and 100 validation tokens, vocabulary 65 (char)".
  virtual std::string summary() const = 0;

  // Sets the model's vocab and n_out to the task's where they are 0. Called before the model is made.
  // errors: ConfigError, naming key and values, when the model's vocab, n_out, readout or context does not
  // fit the task.
  virtual void set_model_sizes(ModelConfig& model) const = 0;

  // Returns batch `micro` of one step. Without carries_state it is a pure function of (seed, step, micro) and
  // of what load restores. With carries_state each call advances by one segment; calls come in order, and
  // none is repeated.
  virtual Batch next(std::int64_t step, std::int64_t micro) = 0;
  // Whether the batches and the learning rate of a step may be asked for before after_step of the step before it was
  // called. Then a GPU need not wait for the host. The default is right for every task.
  virtual bool may_read_ahead(std::int64_t /*step*/) const { return false; }
  // Returns a batch with the longest rows that training may come to, and leaves the positions as they are.
  virtual Batch longest_batch();
  // Whether the model's state is carried from batch to batch, row by row. Rows flagged by Batch::start begin
  // with a new state.
  virtual bool carries_state() const { return false; }

  // The beginning of the first text as it is read, for people; "" for tasks without texts.
  virtual std::string beginning() const { return {}; }

  // The number of tokens in each row of a training batch; 0 if it differs from batch to batch.
  virtual std::int64_t row_length() const { return 0; }

  // The number of rows of an evaluation of the whole validation split that are read train.batch at a time, so that the
  // last batch may be smaller; 0 where every batch has train.batch rows.
  virtual std::int64_t validation_rows() const { return 0; }

  // What makes the rows shorter, as advice where memory is short: "a shorter train.sequence"; "" where nothing does.
  virtual std::string shorter_rows() const { return {}; }

  // The number of tokens of an epoch, the data that are trained on; 0 where there is no end of them.
  virtual std::int64_t epoch_tokens() const { return 0; }

  // What a resumed run needs, such as stream positions or a curriculum: an object, or null for nothing.
  virtual nlohmann::json save() const;
  // Restores what save returned; errors call it `file`. It is also called before an evaluation: there a task
  // restores only what the measurement depends on, such as the length that a curriculum has reached.
  // errors: FormatError for damaged values; ConfigError when they do not fit a changed configuration.
  virtual void load(const nlohmann::json& saved, const std::string& file);

  // The learning rate of a step, counted from 0. `scheduled` is the rate by train.schedule.
  virtual double learning_rate(std::int64_t /*step*/, double scheduled) const { return scheduled; }
  // Called after every optimizer step, skipped ones included, before a checkpoint of it is written.
  // `steps_done` counts this one; `loss` is its loss, NaN when the step was skipped or after_step is
  // called again for a resumed run. `progress` is that of an evaluation; if it ends one, save() notes that
  // after_step must be called again.
  virtual AfterStep after_step(const Model& /*model*/, std::int64_t /*steps_done*/, double /*loss*/,
                               const EvalProgress& /*progress*/ = {}) {
    return {};
  }
  // Whether the run that load() restored was stopped inside after_step.
  virtual bool after_step_pending() const { return false; }

  // Returns the loss and other metrics of the model on held-out data. The positions and the state of training
  // do not change.
  // errors: ValueError for a split or options that the task does not have, and for sizes that give no batch.
  virtual EvalResult evaluate(const Model& model, const EvalOptions& options,
                              const EvalProgress& progress = {}) const = 0;

  // The names of the metrics that evaluate gives: the loss, and those in EvalResult::metrics.
  virtual std::vector<std::string> metric_names() const { return {"loss", "accuracy"}; }

  // Returns text that the model generates; "" for tasks without text. `stop` is called between two tokens;
  // true ends the text there.
  virtual std::string sample(const Model& /*model*/, std::int64_t /*tokens*/, std::uint64_t /*seed*/,
                             const std::function<bool()>& /*stop*/ = {}) const {
    return {};
  }
  // How many of the words of such a text stand in the training text too; no words for tasks without text.
  virtual WordShare known_words(const std::string& /*text*/) const { return {}; }
  // Returns sections of the task's own for the run's report: charts, pictures, texts.
  virtual std::vector<ReportSection> report(const Model& /*model*/) const { return {}; }

  // Whether the data come from data.path; otherwise they are generated.
  virtual bool reads_files() const { return false; }
  // Whether evaluate draws random numbers by options.seed.
  virtual bool uses_seed(const EvalOptions& options) const = 0;

  // The tokenizer of a task on text, else nullptr. It is saved with the run and lives as long as the task.
  virtual const Tokenizer* tokenizer() const { return nullptr; }
  // What simple predictors reach on the validation split of a task on text; nullopt for other tasks. `stop` ends what
  // takes long.
  virtual std::optional<Baselines> baselines(const std::function<bool()>& /*stop*/ = {}) const { return {}; }
  // What a token is called where it is no text: "F"; "" where it has no name.
  virtual std::string token_name(std::int32_t /*token*/) const { return {}; }
  // What an answer (a class that the model predicts) is called: "odd"; "" where it has no name. By default that of the
  // token: most tasks answer with tokens.
  virtual std::string answer_name(std::int32_t answer) const { return token_name(answer); }
  // A digest of the data, so that a resumed run detects other data; "" if the configuration determines them.
  virtual std::string data_sha256() const { return {}; }
  // The texts that the digest covers, each with its own, phase by phase, so that a resumed run leaves new files out: as
  // TaskArguments::expected_phases, and with may_grow one phase more where there are new files.
  // Empty where the data are no texts.
  virtual std::vector<TextPhase> data_phases() const { return {}; }
};

// What a task is made from.
struct TaskArguments {
  RunConfig config;                        // of the run
  std::unique_ptr<Tokenizer> tokenizer;    // of the run that is resumed, evaluated or started from; or none
  std::string expected_sha256;             // data_sha256 of the run that is resumed; empty: any data
  std::vector<TextPhase> expected_phases;  // data_phases of that run
  bool may_grow = false;    // what is new in the folder of that run is a new phase; else it is left out
  bool may_extend = false;  // the vocabulary gets characters that the text has and it lacks
  std::vector<std::string> folders;  // where a relative data.path of that run may lie, but for this folder
  std::string run;                   // the name of that run, for errors
  bool training = true;              // false: only evaluate is called; checks for training are skipped
  std::ostream* messages = nullptr;  // gets a line that says where the data come from; may be null
};

// Returns the task that config.data.name names.
// errors: ConfigError for an unknown name (the nearest is given) and for keys that do not fit each other;
// IoError, FormatError and ValueError for data that cannot be read or are too small.
std::unique_ptr<Task> make_task(TaskArguments arguments);

// Refuses a data.path that the task does not read: which of the two is meant is not known.
// errors: ConfigError.
void check_data_is_read(const Task& task, const RunConfig& config);

// Where the data of config.data.path lie: here and, where paths are relative, in each of `folders`; the places that
// have them all, or else the first. A name with * ? or [ that is no file is a pattern: the paths that it fits take its
// place. Standard input is the text that a run kept of it, if one of `folders` has that. A data set that has a name
// (train/fetch/named_data.h) is fetched if it is not there.
// errors: those of path_of_data_set.
std::vector<DataPaths> data_paths(const TaskArguments& arguments);

// The value of TaskEntry::describe for a struct with keys that is copied and compared, and that
// `describe(KeyList&, Keys&)` beside it describes: config.data.extensions.get<Keys>() are its keys.
template <class Keys>
void describe_keys_of(KeyList& keys, DataConfig& config) {
  describe(keys, config.extensions.get<Keys>());
}

// Adds a task to all that know tasks by name. Call it before the first configuration is made, as at the beginning of
// main; texts live as long as the program. With Keys it has keys of its own in [data] (describe_keys_of).
// errors: ConfigError for a name that is taken or has other characters than a-z, 0-9 and _, for a key that is described
// already, and for a data set that there is none of.
void register_task(const TaskEntry& task);
template <class Keys>
void register_task(TaskEntry task) {
  task.describe = describe_keys_of<Keys>;
  register_task(task);
}

// The entry of each task of this build. A new one adds its declaration here and its row in task_registry.cpp.
TaskEntry text_task();
TaskEntry cifar_task();
TaskEntry copy_task();
TaskEntry selective_copy_task();
TaskEntry recall_task();
TaskEntry parity_task();
TaskEntry groups_task();
TaskEntry mqar_task();
TaskEntry algorithm_task();
TaskEntry random_walk_task();

// Sets a model's vocab and n_out where they are 0, for a task whose tokens do not depend on data. A model that does not
// read n_out has a class for each token, of which the task's answers are the first; one with fewer tokens than answers
// cannot be made.
// errors: ConfigError for other sizes than these; `rule` says what the task has. ConfigError for another readout
// than "all" where `why_all` says why the task needs that one.
void fit_tokens(ModelConfig& model, std::int64_t vocab, std::int64_t n_out, const std::string& rule,
                const char* why_all = nullptr);

// The random stream of fresh rows for the splits valid and test, "copy.valid": the rows of one are none of the other.
// errors: ValueError for another split.
std::string fresh_stream(const std::string& task, Split split);

// The number of tokens in a row of a batch: the first of train.sequence, model.segment and model.context that
// is not 0.
std::int64_t segment_length(const RunConfig& config);
// The advice to make that number smaller, for Task::shorter_rows: "a shorter model.segment".
std::string shorter_segments(const RunConfig& config);

}  // namespace eddy::training
