// The configuration of a training run: model, data and training, as one described struct (config.h); the
// configurations of the papers by name, which are data of each family (models/<family>/presets.toml); and the
// device and the precision that a user chose, checked against each other before a GPU is opened.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/eddy/config.h"
#include "models/optimizer/optimizer.h"
#include "models/recompute.h"
#include "models/value_names.h"
#include "tensor/base/device.h"
#include "tensor/base/dtype.h"
#include "train/config/config.h"
#include "train/config/tokenizer_names.h"

namespace eddy::training {

// The values of keys.

// data.order: how a text is read.
enum class DataOrder { windows, stream, documents };
// data.document: what is one document of a folder of texts.
enum class DocumentUnit { file, folder };
// data.offset: where a stream's segments begin; automatic: by the task.
enum class StreamOffset { automatic, zero, random };
// train.carry_state; automatic: as the task's order of data needs it.
enum class CarryState { automatic, always, never };
// train.rollback: what happens after max_bad_steps.
enum class RollbackRule { off, automatic };
// train.memory_check, and `--memory-check`: before what exceeds the memory there is.
enum class MemoryCheck { refuse, warn };
// train.capture; automatic: capture steps and replay them where the device supports it.
enum class StepCapture { automatic, off };
// train.precision.
enum class Precision { f32, bf16, tf32, f64 };
// train.device.
enum class DeviceChoice { cpu, cuda };

}  // namespace eddy::training

// Their names, in the order of the values.
template <>
struct eddy::ValueNames<eddy::training::DataOrder> {
  static constexpr const char* all[] = {"windows", "stream", "documents"};
};
template <>
struct eddy::ValueNames<eddy::training::DocumentUnit> {
  static constexpr const char* all[] = {"file", "folder"};
};
template <>
struct eddy::ValueNames<eddy::training::StreamOffset> {
  static constexpr const char* all[] = {"auto", "zero", "random"};
};
template <>
struct eddy::ValueNames<eddy::training::CarryState> {
  static constexpr const char* all[] = {"auto", "always", "never"};
};
template <>
struct eddy::ValueNames<eddy::training::RollbackRule> {
  static constexpr const char* all[] = {"off", "auto"};
};
template <>
struct eddy::ValueNames<eddy::training::MemoryCheck> {
  static constexpr const char* all[] = {"refuse", "warn"};
};
template <>
struct eddy::ValueNames<eddy::training::StepCapture> {
  static constexpr const char* all[] = {"auto", "off"};
};
template <>
struct eddy::ValueNames<eddy::training::Precision> {
  static constexpr const char* all[] = {"f32", "bf16", "tf32", "f64"};
};
template <>
struct eddy::ValueNames<eddy::training::DeviceChoice> {
  static constexpr const char* all[] = {"cpu", "cuda"};
};

namespace eddy::training {

// The value of data.path: a file or a folder, or several, whose files are read as those of one folder.
struct DataPaths : ConfigField::Texts {
  DataPaths() = default;
  DataPaths(std::string path);  // "" is none
  DataPaths(const char* path) : DataPaths(std::string(path)) {}
  explicit DataPaths(ConfigField::Texts paths) : ConfigField::Texts(std::move(paths)) {}

  // For people: "a.txt", "a.txt, b.txt, c.txt and 4 more"; "" for none.
  std::string text() const;
  // As arguments of a command: "a.txt 'my b.txt'".
  std::string quoted() const;
};

// Standard input as a path of data.
inline constexpr const char* kStandardInput = "-";
// What stands between the documents of a file if nobody says otherwise.
inline constexpr const char* kEndOfText = "<|endoftext|>";

// The keys of [data] that several tasks read, or that are of texts, which the folders below the tasks know. A task says
// which of them it reads (TaskEntry::common), and has keys of its own beside it.
struct DataConfig {
  std::string name = "text";               // of the task
  DataPaths path;                          // empty: the data set's own default
  std::string tokenizer = kCharTokenizer;  // a tokenizer's name, or the path of a SentencePiece .model file
  double split = 0.9;  // part of the tokens that is trained on; the rest is for validation
  double test = 0.0;   // part of all tokens, at the very end, that is kept for a test
  std::string order = value_name(DataOrder::windows);
  std::string document = value_name(DocumentUnit::file);
  std::string separator = kEndOfText;  // between the documents of a file; "": none
  std::string json_field;  // of lines of JSON the field that holds the text; "": read as they stand
  std::string offset = value_name(StreamOffset::automatic);
  std::int64_t noise = 32;  // tokens of noise before what is asked for, at first
  double stop_loss = 0.0;   // a loss that ends the run (images: mean of 100 steps); 0: none

  ExtensionKeys extensions;  // the keys of the tasks: extensions.get<CopyKeys>()

  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

// The keys of [train], those of the optimizer and of its schedule included.
struct TrainConfig : OptimizerOptions, ScheduleOptions {
  std::int64_t batch = 64;
  std::int64_t accumulate = 1;     // batches whose gradients are accumulated for one step
  std::int64_t micro_batches = 1;  // parts of a batch's rows, whose gradients are summed as a binary tree
  bool shard_optimizer = false;    // whether each of several processes keeps a part of the optimizer's state
  std::string recompute = value_name(Recompute::none);
  std::int64_t sequence = 0;  // tokens per row; 0: model.segment, or where that is 0 too model.context
  std::string carry_state = value_name(CarryState::automatic);
  std::int64_t seed = 1337;
  std::int64_t eval_every = 250;  // 0: never
  // -1: a fixed sample (eval_sample_batches); 0: the whole validation split; else so many random batches.
  std::int64_t eval_batches = -1;
  std::int64_t state_gain_batches = 8;   // on which an evaluation measures the cost of clearing the state
  std::int64_t checkpoint_every = 1000;  // 0: only at the end
  std::int64_t keep = 2;
  std::int64_t sample_every = 0;  // 0: never
  std::int64_t sample_tokens = 200;
  std::int64_t log_every = 10;
  std::int64_t max_bad_steps = 10;
  std::string rollback = value_name(RollbackRule::off);
  std::string memory_check = value_name(MemoryCheck::refuse);
  std::int64_t threads = 0;  // 0: all
  double rank_timeout =
      600.0;             // seconds that a rank waits for another within a step or an evaluation; 0: for ever
  double minutes = 0.0;  // 0: no limit
  std::string device = value_name(DeviceChoice::cpu);
  std::string precision = value_name(Precision::f32);
  bool tensorboard = false;  // whether the folder gets event files for TensorBoard
  std::string capture = value_name(StepCapture::automatic);

  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

struct RunConfig {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;

  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

// The dtype a model computes in for a value of train.precision; f32 and tf32 both give f32.
// errors: ConfigError for another name.
Dtype precision_dtype(const std::string& precision);

// The batches of the sample of an evaluation with eval_batches -1: a tenth of those trained between two, at least one.
// It depends on nothing else, so that all evaluations of a run, resumed or not, read the same.
std::int64_t eval_sample_batches(const TrainConfig& config);

void describe(KeyList& keys, DataConfig& config);
void describe(KeyList& keys, TrainConfig& config);
void describe(KeyList& keys, RunConfig& config);

// Whether the state of a task that reads texts continues from batch to batch: as train.carry_state says, or where its
// rows continue.
bool texts_carry_state(const RunConfig& config);

// Whether the config's task reads a key of [data]: "order" says whether it reads texts in an order.
bool task_reads(const DataConfig& config, std::string_view key);
// Whether the config's model, or its task, reads a key of a run.
bool reads_key(const RunConfig& config, const ConfigField& field);

// A model's config from JSON: either a run's, with a "model" table (other tables are ignored), or flat, with
// the model's keys at the top. Keys of other model families are ignored. Errors call the JSON `name`.
// errors: ConfigError.
ModelConfig model_config_from_json(const nlohmann::json& value, const std::string& name = "config");

// A run's config from JSON, as to_json wrote it; missing keys take defaults.
// errors: ConfigError.
RunConfig run_config_from_json(const nlohmann::json& value, const std::string& name = "config");

// A run's config from a .toml or .json file; a flat file gives a model and defaults for the rest.
// errors: IoError, ConfigError.
RunConfig load_run_config(const std::string& path);

// All keys with their values, one object per section.
nlohmann::json to_json(const ModelConfig& config);  // flat
nlohmann::json to_json(const RunConfig& config);

// Checks the rules that involve several keys, of the model, of the task and between the sections. A vocab of 0 is
// allowed: the task fills it in.
// errors: ConfigError naming the keys and their values.
void validate(const RunConfig& config);

// A configuration of a paper, with the number of parameters that it must have.
struct NamedConfig {
  std::string name;
  ModelConfig config;
  std::int64_t parameters = 0;
};

// All configurations of the four papers.
const std::vector<NamedConfig>& paper_configs();

// The configuration of this name among paper_configs().
// errors: ConfigError with the nearest name, also among `others`: names that the caller knows. `program` and
// `kind` begin its text.
const ModelConfig& paper_config(const std::string& name, const char* program,
                                const char* kind = "configuration", std::vector<std::string> others = {});

struct DevicePrecision {
  Device device = kCpu;
  Dtype dtype = Dtype::f32;
  MatmulPrecision matmul = MatmulPrecision::f32;
};

// For error texts: the program, and the names of its two options: {"eval", "--device", "--precision"}.
struct DevicePrecisionNames {
  const char* program;
  const char* device;
  const char* precision;
};

// Sets what choose_device_precision runs before it opens a GPU, once in a process: what the program has to settle about
// its kernels first (train/app/measure/kernels/prove.h). It may throw.
void on_first_gpu_use(std::function<void()> run);

// The device "cpu" or "cuda", and how a model is made for the precision "f32", "bf16", "tf32" or "f64" there: its dtype
// and the precision of its f32 products. For "cuda" the GPU is opened.
// errors: ConfigError for another name, and for a precision that the device does not support; DeviceError
// when there is no usable GPU, with what to do.
DevicePrecision choose_device_precision(const DevicePrecisionNames& names, const std::string& device,
                                        const std::string& precision);

// A note on a run that computes in another precision than it was trained in: ", trained in bf16"; "" when
// they are the same.
std::string precision_note(const std::string& trained, const std::string& chosen);

}  // namespace eddy::training
