// The lists of a run's keys, and the two layouts of a config file: with tables, or flat.
#include "train/config/run_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/config/config_file.h"
#include "train/config/task_entry.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::training {

namespace {

using nlohmann::json;

// What data.tokenizer takes.
std::vector<std::string> allowed_tokenizers() {
  std::vector<std::string> all(std::begin(kTokenizerNames), std::end(kTokenizerNames));
  all.emplace_back("*.model");
  return all;
}

// Describes the tasks' own keys; those that tasks share are described once.
void describe_task_keys(KeyList& keys, DataConfig& config) {
  const std::span<const TaskEntry> tasks = task_registry();
  for (auto task = tasks.begin(); task != tasks.end(); ++task) {
    const auto shares = [&](const TaskEntry& other) { return other.describe == task->describe; };
    if (task->describe == nullptr || std::find_if(tasks.begin(), task, shares) != task) continue;
    std::vector<const char*> readers;
    for (const TaskEntry& other : tasks)
      if (shares(other)) readers.push_back(other.name);
    keys.usually_read_by(fmt::format("{}", fmt::join(readers, " ")));
    task->describe(keys, config);
    keys.list_before("");
  }
  keys.usually_read_by("");
}

// Adds a task to the readers of the keys that it reads beside its own.
// errors: ConfigError for a key that there is none of.
void add_reader(KeyList& keys, const TaskEntry& task) {
  std::istringstream words(task.common);
  for (std::string word; words >> word;) {
    ConfigField* const field = keys.find("data", word);
    if (field == nullptr)
      fail<ConfigError>("there is no key data.{} (TaskEntry::common has keys that are described)", word);
    field->readers += (field->readers.empty() ? "" : " ") + std::string(task.name);
  }
}

// Whether the model's keys stand at the top level. There "model" is the model's name; in a run's config it is
// a table.
bool is_flat(const json& value) {
  if (!value.is_object()) return false;
  const auto model = value.find("model");
  return value.contains("family") || (model != value.end() && !model->is_object());
}

// A flat config as one whose keys stand in a [model] table.
ConfigSource with_model_table(ConfigSource source) {
  if (!is_flat(source.value)) return source;
  ConfigSource moved{source.name, json::object(), {}};
  moved.value["model"] = std::move(source.value);
  for (auto& [key, place] : source.places) moved.places.emplace("model." + key, std::move(place));
  return moved;
}

// Reads the keys, and lets family and model follow from each other.
template <class Config>
void read_keys(Config& config, ModelConfig& model, const ConfigSource& source) {
  keys_of(config).read(source);
  const auto table = source.value.find("model");
  const bool has_table = table != source.value.end() && table->is_object();
  imply_names(model, has_table && table->contains("family"), has_table && table->contains("model"));
}

RunConfig run_config_from(ConfigSource source) {
  RunConfig config;
  read_keys(config, config.model, with_model_table(std::move(source)));
  return config;
}

}  // namespace

DataPaths::DataPaths(std::string path) {
  if (!path.empty()) push_back(std::move(path));
}

std::string DataPaths::text() const {
  constexpr std::size_t kShown = 3;
  const std::size_t shown = std::min(kShown, size());
  std::string text =
      fmt::format("{}", fmt::join(begin(), begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (size() > shown) text += fmt::format(" and {} more", size() - shown);
  return text;
}

std::string DataPaths::quoted() const {
  std::string text;
  for (const std::string& path : *this) text += (text.empty() ? "" : " ") + shell_quoted(path);
  return text;
}

ConfigSource read_run_config(const std::string& path) {
  return with_model_table(read_config_file(path));
}

void describe(KeyList& keys, DataConfig& c) {
  keys.section("data");
  keys.add("name", c.name, fmt::format("Task; `{} tasks` lists them", program_name()).c_str()).common();
  keys.add("path", c.path,
           "File or folder of the data, or several, or - for standard input; empty: the task's own default")
      .common()
      .changes_nothing();
  keys.add("tokenizer", c.tokenizer,
           "How text becomes tokens; *.model is a file of SentencePiece, and with ids the text is token ids",
           allowed_tokenizers())
      .common();
  keys.add("split", c.split,
           "Part of the tokens, or of the documents, to train on; 1 where nothing is evaluated",
           {.low = 0, .high = 1, .low_open = true})
      .common();
  keys.add("test", c.test, "Part of the data, at its end, that only `eval --split test` reads", kBelowOne);
  keys.add("order", c.order,
           "How a text is read: random windows, a continuous stream, or document by document",
           value_names<DataOrder>())
      .common();
  keys.add("document", c.document,
           "What is one document of a folder: a file, or a subfolder with its files joined (a repository)",
           value_names<DocumentUnit>());
  keys.add(
      "separator", c.separator,
      "What stands between the documents of a file, with \\n for a newline; empty: a file is one document");
  keys.add(
      "json_field", c.json_field,
      "Field of lines of JSON (.jsonl, .ndjson) that holds the text, a document a line; empty: read as they stand");
  keys.add(
      "offset", c.offset,
      "Whether a stream's first segment begins at the start or at a random place; auto: zero for text, else random",
      value_names<StreamOffset>());
  keys.add(
      "noise", c.noise,
      "Number of noise symbols at the start of the curriculum (recall: tokens before the first question)",
      {2, 16'777'216});
  keys.add("stop_loss", c.stop_loss, "Loss at which the run ends; 0: none", {.low = 0});
  describe_task_keys(keys, c);
  for (const TaskEntry& task : task_registry()) add_reader(keys, task);
}

bool texts_carry_state(const RunConfig& config) {
  const std::string& carry = config.train.carry_state;
  return value_is(carry, CarryState::automatic) ? !value_is(config.data.order, DataOrder::windows)
                                                : value_is(carry, CarryState::always);
}

bool task_reads(const DataConfig& config, std::string_view key) {
  DataConfig copy = config;  // described keys point into a struct that is not const
  KeyList keys;
  describe(keys, copy);
  const ConfigField* const field = keys.find("data", key);
  return field != nullptr && field->is_read_by("", config.name);
}

bool reads_key(const RunConfig& config, const ConfigField& field) {
  if (field.section == "model") return field.is_read_by(config.model.family, config.model.model);
  return field.section != "data" || field.is_read_by("", config.data.name);
}

void describe(KeyList& keys, TrainConfig& c) {
  keys.section("train");
  keys.add("steps", c.steps, "Number of optimizer steps", {0, 1'000'000'000'000}).common();
  keys.add("minutes", c.minutes,
           "Minutes after which the run stops, with its schedule at its end; 0: no limit", {.low = 0})
      .common();
  keys.add("batch", c.batch, "Sequences in a batch", {1, 1'000'000'000}).common();
  keys.add("accumulate", c.accumulate, "Batches whose gradients make one step", {1, 1'000'000'000}).common();
  keys.add("micro_batches", c.micro_batches,
           "Parts of a batch, a power of two, whose gradients are summed as a tree; processes share them",
           {1, 1'000'000'000});
  keys.add(
          "shard_optimizer", c.shard_optimizer,
          "Whether each of several processes keeps the optimizer's state of a part of the parameters, not all of it")
      .changes_nothing();
  keys.add(
          "recompute", c.recompute,
          "Activations that the backward pass computes again, for less memory: those of each layer, or also of each turn "
          "of a loop over the sequence",
          value_names<Recompute>())
      .changes_nothing();
  keys.add("sequence", c.sequence, "Tokens of a sequence; 0: model.segment, or else model.context",
           {0, 1'000'000'000})
      .common();
  keys.add("carry_state", c.carry_state,
           "Whether the recurrent state continues from batch to batch; auto: where the task needs it",
           value_names<CarryState>());
  keys.add("optimizer", c.optimizer, "Optimizer", value_names<OptimizerName>()).common();
  keys.add("learning_rate", c.learning_rate, "Learning rate after the warm-up", {.low = 0}).common();
  keys.add("beta1", c.beta1, "Decay of the running mean of the gradient; sgd: its momentum", kBelowOne);
  keys.add("beta2", c.beta2,
           "Decay of the running mean of the squared gradient; lion: of the mean that is kept", kBelowOne);
  keys.add("eps", c.eps, "Number added to the root of that mean", {.low = 0, .low_open = true});
  keys.add("weight_decay", c.weight_decay, "Weight decay of matrices, multiplied by the learning rate",
           {.low = 0})
      .common();
  keys.add("clip", c.clip, "Largest norm of the gradient; 0: no clipping", {.low = 0}).common();
  keys.add("matrix_momentum", c.matrix_momentum, "muon: decay of the running sum of a matrix's gradient",
           kBelowOne);
  keys.add("matrix_rate", c.matrix_rate, "muon: learning rate of matrices, as a multiple of learning_rate",
           {.low = 0, .low_open = true});
  keys.add(
          "warmup", c.warmup,
          "Steps in which the learning rate rises; where minutes end the run, as large a part of it as of train.steps",
          {0, 1'000'000'000'000})
      .common();
  keys.add("warmup_from", c.warmup_from,
           "Step at which warm-up starts counting: with 0, the first step has learning rate 0", {0, 1})
      .paper_quirk();
  keys.add(
          "schedule", c.schedule,
          "Learning rate after the warm-up, to the last step or minute, whichever comes first; rsqrt: by steps alone",
          value_names<ScheduleName>())
      .common();
  keys.add("min_learning_rate", c.min_learning_rate, "Learning rate at the end", {.low = 0});
  keys.add("seed", c.seed, "Seed of weights, batches and dropout", {0}).common();
  keys.add("eval_every", c.eval_every, "Steps between evaluations; 0: never", {0, 1'000'000'000'000})
      .common()
      .changes_nothing();
  keys.add("eval_batches", c.eval_batches,
           "Random batches of an evaluation; 0: the whole validation split; -1: a fixed sample of it",
           {-1, 1'000'000'000'000})
      .common()
      .changes_nothing();
  keys.add("state_gain_batches", c.state_gain_batches,
           "Batches on which an evaluation measures what clearing the state costs; 0: none",
           {0, 1'000'000'000'000})
      .changes_nothing();
  keys.add("checkpoint_every", c.checkpoint_every, "Steps between checkpoints; 0: only at the end",
           {0, 1'000'000'000'000})
      .common()
      .changes_nothing();
  keys.add("keep", c.keep, "Number of checkpoints kept besides the best", {1, 1'000'000'000})
      .changes_nothing();
  keys.add("sample_every", c.sample_every, "Steps between samples; 0: never", {0, 1'000'000'000'000})
      .changes_nothing();
  keys.add("sample_tokens", c.sample_tokens, "Tokens of a sample; 0: no samples", {0, 1'000'000'000})
      .changes_nothing();
  keys.add("log_every", c.log_every, "Steps between lines of the log", {1, 1'000'000'000}).changes_nothing();
  keys.add("tensorboard", c.tensorboard,
           "Whether the run's folder also gets event files that TensorBoard reads")
      .changes_nothing();
  keys.add("max_bad_steps", c.max_bad_steps,
           "Steps in a row with a loss or gradient that is not finite, after which the run ends",
           {0, 1'000'000'000})
      .changes_nothing();
  keys.add(
          "rollback", c.rollback,
          "After max_bad_steps; auto: go back to the last good checkpoint with half the learning rate, 3 times",
          value_names<RollbackRule>())
      .changes_nothing();
  keys.add("memory_check", c.memory_check,
           "Before a run that takes more memory than there is; warn: begin it all the same",
           value_names<MemoryCheck>())
      .changes_nothing();
  keys.add("threads", c.threads, "CPU threads; 0: all", {0, 256}).common().changes_nothing();
  keys.add("rank_timeout", c.rank_timeout,
           "Seconds that a process of several waits for another within a step; 0: for ever", {.low = 0})
      .changes_nothing();
  keys.add("device", c.device, "Where to compute", value_names<DeviceChoice>()).common().changes_nothing();
  keys.add(
          "precision", c.precision,
          "Type of activations and products; parameters stay f32 in bf16. f64: CPU only, tf32: GPU only, bf16 on the CPU: fast with AVX512-BF16, AMX or BFMMLA",
          value_names<Precision>())
      .common();
  keys.add("capture", c.capture, "Whether a GPU replays recorded steps; off: it launches every kernel anew",
           value_names<StepCapture>())
      .changes_nothing();
}

std::int64_t eval_sample_batches(const TrainConfig& config) {
  constexpr std::int64_t kPart = 10;
  // Divided first: both keys may be large.
  const double trained = static_cast<double>(config.eval_every) * static_cast<double>(config.accumulate);
  return static_cast<std::int64_t>(std::clamp(trained / kPart, 1.0, 1e9));
}

Dtype precision_dtype(const std::string& precision) {
  const auto named = value_named<Precision>(precision);
  if (!named) fail<ConfigError>("config: train.precision is {:?} ({})", precision, value_choice<Precision>());
  return *named == Precision::f64 ? Dtype::f64 : *named == Precision::bf16 ? Dtype::bf16 : Dtype::f32;
}

void describe(KeyList& keys, RunConfig& config) {
  describe(keys, config.model);
  describe(keys, config.data);
  describe(keys, config.train);
}

ModelConfig model_config_from_json(const json& value, const std::string& name) {
  ConfigSource source{name, value, {}};
  if (!is_flat(value) && value.is_object()) {
    source.value = json::object();
    const auto model = value.find("model");
    if (model == value.end()) fail<ConfigError>("{}: the config has no model table and no model key", name);
    source.value["model"] = *model;
  }
  ModelConfig config;
  read_keys(config, config, with_model_table(std::move(source)));
  return config;
}

RunConfig run_config_from_json(const json& value, const std::string& name) {
  return run_config_from({name, value, {}});
}

RunConfig load_run_config(const std::string& path) {
  return run_config_from(read_config_file(path));
}

json to_json(const ModelConfig& config) {
  ModelConfig copy = config;  // described keys point into the struct, so they need one that is not const
  return keys_of(copy).to_json().at("model");
}

json to_json(const RunConfig& config) {
  RunConfig copy = config;
  return keys_of(copy).to_json();
}

void validate(const RunConfig& config) {
  ModelConfig model = config.model;
  if (model.vocab == 0) model.vocab = std::max<std::int64_t>(model.n_out, 1);
  validate(model);
  const TrainConfig& train = config.train;
  std::vector<std::pair<const char*, std::string>> names{{"tokenizer", config.data.tokenizer}};
  for (const std::string& path : config.data.path) names.emplace_back("path", path);
  for (const auto& [key, text] : names)
    if (!json_string(text))
      fail<ConfigError>("config: data.{} is {}, which is not UTF-8 (rename the file, or name a link to it)",
                        key, quote_text(text));
  // The segment length (segment_length in train/tasks/task.h) where it is not the context itself.
  const bool own = train.sequence > 0;
  const std::int64_t row = own ? train.sequence : model.segment;
  if (model.positions && row > model.context)
    fail<ConfigError>("config: {} must not exceed model.context with learned positions: {} {}, context {}",
                      own ? "train.sequence" : "model.segment", own ? "sequence" : "segment", row,
                      model.context);
  for (const TaskEntry& task : task_registry())
    if (task.check != nullptr && config.data.name == task.name) task.check(config);
  if (config.data.test > 0 && !(config.data.split + config.data.test < 1))
    fail<ConfigError>(
        "config: data.split and data.test leave nothing to validate: {} and {} (below 1 in all)",
        config.data.split, config.data.test);
  if (const auto parts = static_cast<std::uint64_t>(train.micro_batches);
      !std::has_single_bit(parts) || train.batch % train.micro_batches != 0)
    fail<ConfigError>(
        "config: train.micro_batches is {} with train.batch {} (a power of two that divides the batch)",
        train.micro_batches, train.batch);
  if (train.warmup > train.steps)
    fail<ConfigError>(
        "config: train.warmup must not exceed train.steps: warmup {}, steps {} (for few steps set train.warmup to 0)",
        train.warmup, train.steps);
  if (train.min_learning_rate > train.learning_rate)
    fail<ConfigError>("config: train.min_learning_rate must not exceed train.learning_rate: {} and {}",
                      train.min_learning_rate, train.learning_rate);
}

}  // namespace eddy::training
