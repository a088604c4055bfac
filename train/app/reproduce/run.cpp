// Trains a row (train/run/trainer.h), measures it with its task, and keeps result.json.
#include "train/app/reproduce/run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/eddy/fit_params.h"
#include "models/weights.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/files/strict_json.h"
#include "tensor/system/processors.h"
#include "tensor/threads/thread_pool.h"
#include "train/app/report/live_report.h"
#include "train/app/reproduce/sample_cost.h"
#include "train/config/config_file.h"
#include "train/config/run_config.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"
#include "train/process/stop_signal.h"
#include "train/record/run_series.h"
#include "train/run/checkpoint.h"
#include "train/run/run_folder.h"
#include "train/run/trainer.h"
#include "train/step/shared_steps.h"
#include "train/tasks/task.h"
#include "train/tasks/text_data.h"
#include "train/text/corpus.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kResultFile = "result.json";
constexpr int kResultFormat = 1;

// Of longer windows fewer are measured: the work grows with number times length.
constexpr std::int64_t kManyWindowsUpTo = 4096;
// Tokens of a batch of windows: their keys and values fill the memory.
constexpr std::int64_t kWindowTokens = 32768;

// Whether a run may continue with another value of this key and still count as the same run.
bool may_change(const ConfigField& key, const RunConfig& wanted) {
  if (key.full_key() == "train.steps") return can_have_more_steps(wanted.train);
  if (key.full_key() == "train.minutes") return !follows_end(wanted.train);
  return key.change == KeyChange::same_run;
}

bool unless_stopped(std::int64_t, std::int64_t) {
  return !stop_requested();
}

// The fields of result.json but its format, its configuration and its values.
template <class Result, class Visit>
void visit_fields(Result& r, const Visit& visit) {
  visit("ended", r.ended);
  visit("step", r.step);
  visit("measured_step", r.measured_step);
  visit("tokens", r.tokens);
  visit("parameters", r.parameters);
  visit("device", r.device);
  visit("measured", r.measured);
  visit("remarks", r.remarks);
}

// Numbers that are not finite are written as null. A digest tells a number that was changed since.
void write_result(const fs::path& folder, const RowResult& r) {
  json about{{"config", to_json(r.config)}, {"seconds", r.seconds}, {"values", json(r.values)}};
  visit_fields(r, [&](const char* key, const auto& value) { about[key] = value; });
  replace_text_file(folder / kResultFile, text_with_digest(std::move(about), kResultFormat));
}

RowResult read_result(const fs::path& file) {
  const auto number_of = [](const json& value) {
    return value.is_null() ? kNotMeasured : value.get<double>();
  };
  constexpr const char* kWayOut = "remove it, and the row is measured again";
  try {
    const json about = read_json_with_digest(file, kResultFormat);
    RowResult r;
    r.config = run_config_from_json(about.at("config"), file.string());
    visit_fields(r, [&](const char* key, auto& value) { about.at(key).get_to(value); });
    r.seconds = number_of(about.at("seconds"));
    for (const auto& [key, value] : about.at("values").items()) r.values[key] = number_of(value);
    return r;
  } catch (const json::exception& error) {
    fail<FormatError>("reproduce: {} is damaged: {} ({})", file.string(), plain_message(error.what()),
                      kWayOut);
  } catch (const Error& error) {
    fail<IoError>("reproduce: {} cannot be read: {} ({})", file.string(), error.what(), kWayOut);
  }
}

// The configuration that the checkpoints of a row hold: the latest, or where that cannot be read another.
RunConfig trained_config(const fs::path& folder) {
  try {
    return load_config_of_run(folder.string());
  } catch (const Error&) {
    try {
      return load_config_of_run(folder.string(), "newest-whole");
    } catch (const FormatError& error) {
      fail<FormatError>("{} (remove {}, and the row is trained again)", error.what(), folder.string());
    }
  }
}

// Adds what training measured: the time of a step and the most memory of any. Without metrics nothing is known of it.
void add_training(const fs::path& folder, RowResult& result) {
  std::map<std::string, double>& values = result.values;
  RunSeries run;
  try {
    run = RunSeries::read(folder / "metrics.jsonl");
  } catch (const IoError& error) {
    result.remarks.push_back(fmt::format("nothing is known of the training: {}", error.what()));
    values["step_ms"] = values["peak_bytes"] = values["saved_bytes"] = kNotMeasured;
    return;
  }
  if (const std::optional<double> gain = run.state_gain()) values["state_gain"] = *gain;
  values["step_ms"] = run.step_ms();
  values["peak_bytes"] = static_cast<double>(run.most(&StepRecord::memory_bytes));
  values["saved_bytes"] = static_cast<double>(run.most(&StepRecord::saved_bytes));
}

bool has_column(const ReproduceTable& table, std::string_view key) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [&](const ReproduceColumn& column) { return column.key == key; });
}

// Whether the table also has numbers of the test split, "test_loss" and so on.
bool has_test_column(const ReproduceTable& table) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [](const ReproduceColumn& column) { return column.key.starts_with("test_"); });
}

// Loads the run to measure: its best checkpoint where evaluations chose one, else its last, on the device
// that the row is trained on.
LoadedRun run_to_measure(const ReproduceRow& row, const fs::path& weights) {
  const char* which = read_pointer(weights / "checkpoints" / "best").name.empty() ? "latest" : "best";
  const auto [device, dtype, precision] = choose_device_precision(
      {"reproduce", "train.device", "train.precision"}, row.config.train.device, row.config.train.precision);
  LoadedRun run = load_run(weights.string(), dtype, which, device, precision);
  if (row.weights_of.empty()) return run;
  RunConfig config = row.config;
  config.model.vocab = run.config.model.vocab;
  config.model.n_out = run.config.model.n_out;
  fit_params(config.model);
  std::unique_ptr<Model> model = make_model(config.model, dtype, device, precision);
  load_parameters(model->params(), parameter_map(run.model->params()), run.checkpoint.string());
  run.model = std::move(model);
  run.config = std::move(config);
  return run;
}

TaskArguments arguments_for(const ReproduceRow& row, const LoadedRun& run) {
  TaskArguments arguments;
  arguments.config = run.config;
  arguments.config.data.path = row.config.data.path;  // the folder may have been moved
  if (run.tokenizer) arguments.tokenizer = tokenizer_from_json(run.tokenizer->to_json());
  expect_data_of(run, arguments);
  arguments.run = run.checkpoint.string();
  arguments.training = false;
  return arguments;
}

// How a row is measured: as the table's, on as many of its own batches as stand for those of the table.
EvalOptions options_of(const ReproduceTable& table, const ReproduceRow& row) {
  EvalOptions options = table.evaluation;
  if (options.batch == 0) options.batch = row.config.train.batch;
  if (options.batches > 0 && row.batches > 0) options.batches = row.batches;
  options.by_words = has_column(table, "tokens_per_word");
  return options;
}

void measure_evaluation(const ReproduceTable& table, const ReproduceRow& row, const LoadedRun& run,
                        Ranks* ranks, RowResult& result) {
  const std::unique_ptr<Task> task = make_task(arguments_for(row, run));
  const std::string state_file = (run.checkpoint / "state.json").string();
  task->load(json_of_text(run.state.task, state_file), state_file);
  EvalOptions options = options_of(table, row);
  options.share = {row.config.train.micro_batches, ranks};
  if (ranks != nullptr) {
    RunConfig shared = run.config;
    shared.train.precision = row.config.train.precision;
    shared.train.device = row.config.train.device;
    send_model(*ranks, shared, *run.model);
  }
  const auto measure = [&](const std::string& prefix) {
    const EvalResult measured = task->evaluate(*run.model, options, unless_stopped);
    result.values[prefix + "loss"] = measured.loss;
    if (std::isfinite(measured.standard_error))
      result.values[prefix + "standard_error"] = measured.standard_error;
    for (const auto& [name, value] : measured.metrics) result.values[prefix + name] = value;
    return measured.tokens;
  };
  const std::int64_t targets = measure("");
  result.remarks.push_back(
      fmt::format("measured on {} targets of {}, at step {}", targets, value_name(options.split), run.step));
  if (has_test_column(table)) {
    EvalOptions kept =
        std::exchange(options, {.split = Split::test, .batch = options.batch, .share = options.share});
    result.remarks.push_back(fmt::format("test: on {} targets", measure("test_")));
    options = std::move(kept);
  }
  if (table.sampled_batches == 0) return;
  options.batches = table.sampled_batches;
  options.seed = static_cast<std::uint64_t>(row.config.train.seed);
  static_cast<void>(measure("sampled_"));
  result.remarks.push_back(fmt::format("the estimate is of {} random batches of {}, seed {}", options.batches,
                                       options.batch, options.seed));
}

// The tokens of the split that is measured.
std::int64_t split_tokens(const ReproduceTable& table, const ReproduceRow& row, const LoadedRun& run) {
  TaskArguments arguments = arguments_for(row, run);
  const TextData data = read_text_data(arguments);
  const auto all = std::ssize(data.tokens);
  const std::int64_t train = part_of(row.config.data.split, all), test = part_of(row.config.data.test, all);
  const Split split = table.evaluation.split;
  return split == Split::train ? train : split == Split::test ? test : all - train - test;
}

// Measures the loss on the last targets of windows of every length. The targets are the same for all lengths,
// as far as their numbers of windows agree.
// source: Liang, table 1.
void measure_lengths(const ReproduceTable& table, const ReproduceRow& row, const LoadedRun& run,
                     RowResult& result) {
  const std::int64_t tokens = split_tokens(table, row, run), last = table.last;
  std::int64_t base = 0;
  for (const std::int64_t length : table.lengths)
    if (length + last <= tokens) base = std::max(base, length);
  std::string counts;
  for (const std::int64_t length : table.lengths) {
    const std::string key = fmt::format("last_{}", length);
    result.values[key] = kNotMeasured;
    if (stop_requested()) return;
    if (length > base || length < last || (row.longest > 0 && length > row.longest)) continue;
    const std::int64_t available = (tokens - base) / last;
    std::int64_t wanted = std::max<std::int64_t>(table.windows, 1);
    if (length > kManyWindowsUpTo) wanted = std::max<std::int64_t>(1, wanted * kManyWindowsUpTo / length);
    EvalOptions options;
    options.split = table.evaluation.split;
    options.batch = std::clamp<std::int64_t>(kWindowTokens / length, 1, std::min<std::int64_t>(32, wanted));
    options.batches = wanted >= available ? 0 : wanted / options.batch;
    options.seed = 42;
    options.score_last = last;
    options.from = base + last;
    TaskArguments arguments = arguments_for(row, run);
    arguments.config.train.sequence = length;
    const EvalResult measured =
        make_task(std::move(arguments))->evaluate(*run.model, options, unless_stopped);
    result.values[key] = measured.loss;
    counts += fmt::format("{}{} at {}", counts.empty() ? "" : ", ", measured.tokens / last, length);
  }
  if (base == 0) {
    result.remarks.push_back(fmt::format("the split {} has {} tokens, too few for windows of {}",
                                         value_name(table.evaluation.split), tokens, table.lengths.front()));
    return;
  }
  result.remarks.push_back(fmt::format(
      "windows by length: {}; of {} that end at tokens {} + {} k (k = 1, 2, ...) of the {} tokens of {}",
      counts, (tokens - base) / last, base, last, tokens, value_name(table.evaluation.split)));
}

// Measures the first column on made rows of every length, on as many tokens of each. A model that cannot read a length
// has no number there.
void measure_made_lengths(const ReproduceTable& table, const ReproduceRow& row, const LoadedRun& run,
                          RowResult& result) {
  const std::int64_t trained = segment_length(run.config);
  for (const std::int64_t length : table.lengths) {
    double& number = result.values[fmt::format("{}_{}", table.columns.front().key, length)];
    number = kNotMeasured;
    if (stop_requested()) return;
    try {
      TaskArguments arguments = arguments_for(row, run);
      arguments.config.train.sequence = length;
      const std::unique_ptr<Task> task = make_task(std::move(arguments));
      run.model->check_length(length, task->carries_state());
      EvalOptions options = options_of(table, row);
      options.batch = std::max<std::int64_t>(1, options.batch * trained / length);
      const EvalResult measured = task->evaluate(*run.model, options, unless_stopped);
      if (table.columns.front().key == "loss") number = measured.loss;
      for (const auto& [name, value] : measured.metrics)
        if (name == table.columns.front().key) number = value;
    } catch (const Error& refused) {
      result.remarks.push_back(fmt::format("not measured at {}: {}", length, refused.what()));
    }
  }
}

std::string evaluation_of(const ReproduceTable& table, const ReproduceRow& row) {
  const EvalOptions e = options_of(table, row);
  std::string text;
  if (table.by_split()) {
    text = fmt::format("{}, {} batches of {} rows", value_name(e.split), e.batches, e.batch);
    if (table.sampled_batches > 0)
      text += fmt::format("; {} random ones, seed {}", table.sampled_batches, row.config.train.seed);
  }
  if (table.lengths.empty()) return text;
  if (table.generated)
    text += fmt::format("; {} at:", table.columns.front().key);
  else
    text += fmt::format("{}last {} of at most {} windows of {}:", text.empty() ? "" : "; ", table.last,
                        table.windows, value_name(e.split));
  for (const std::int64_t length : table.lengths)
    if (row.longest == 0 || length <= row.longest) text += fmt::format(" {}", length);
  return text;
}

// The state that a stream keeps, and what a further token costs: after a segment of tokens 0.
void measure_stream(const ReproduceTable& table, const LoadedRun& run, RowResult& result) {
  const bool timed = has_column(table, "token_ms");
  if (!timed && !has_column(table, "state_bytes")) return;
  constexpr int kUntimed = 3, kTimed = 32;
  const Device device = run.model->params().values().device();
  const auto tokens = [&](std::int64_t count) {
    return raw::to_device(Tensor::zeros({1, count}, Dtype::i64), device);
  };
  // With learned positions the context must have room for the timed tokens.
  std::int64_t before = segment_length(run.config);
  State state;
  if (const std::int64_t remaining = run.model->remaining_context(state); remaining >= 0)
    before = std::clamp<std::int64_t>(remaining - kUntimed - kTimed, 1, before);
  static_cast<void>(run.model->stream(tokens(before), state));
  result.values["state_bytes"] = static_cast<double>(state.bytes());
  result.remarks.push_back(fmt::format("the stream's state is that behind {} tokens", before));
  std::vector<double> times;
  for (int i = 0; timed && i < kUntimed + kTimed && run.model->remaining_context(state) != 0; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    static_cast<void>(raw::to_device(run.model->stream(tokens(1), state), kCpu));
    if (i >= kUntimed)
      times.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count());
  }
  if (timed) result.values["token_ms"] = median(std::move(times));
}

}  // namespace

// A decay that spans all steps would change with their number.
bool can_have_more_steps(const TrainConfig& train) {
  return value_is(train.schedule, ScheduleName::constant) || value_is(train.schedule, ScheduleName::rsqrt);
}

std::vector<std::string> contradictions(RunConfig run, RunConfig wanted) {
  std::vector<std::string> found;
  // A run says what width was found; a configuration whose data nobody has read yet still has the number.
  if (wanted.model.params > 0 && run.model.params == 0) {
    wanted.model.vocab = run.model.vocab;
    wanted.model.n_out = run.model.n_out;
    fit_params(wanted.model);
  }
  for (const auto& [key, fields] : differences(keys_of(run), keys_of(wanted))) {
    const auto& [had, want] = fields;
    // A vocabulary that the table made moves with its runs.
    const bool moved = key == "data.tokenizer" && is_sentencepiece_path(wanted.data.tokenizer) &&
                       fs::path(run.data.tokenizer).filename() == fs::path(wanted.data.tokenizer).filename();
    const bool filled_in =
        (key == "model.vocab" || key == "model.n_out") && value_of(want) == 0;  // filled in by the task
    if (!filled_in && !moved && !may_change(want, wanted))
      found.push_back(fmt::format("{}: {}, wanted {}", key, text_of(had), text_of(want)));
  }
  return found;
}

std::vector<std::string> changed_keys(RunConfig config) {
  RunConfig defaults;
  std::vector<std::string> found;
  for (const auto& [key, fields] : differences(keys_of(defaults), keys_of(config)))
    found.push_back(fmt::format("{} = {}", key, value_of(fields.second).dump()));
  return found;
}

std::span<const CommonColumn> common_columns() {
  static constexpr CommonColumn columns[] = {
      {"parameters", "number of parameters"},
      {"tokens", "tokens trained on"},
      {"vocab", "number of tokens of the vocabulary"},
      {"step_ms", "median time of a step of training, in milliseconds"},
      {"peak_bytes", "most memory of a step"},
      {"saved_bytes", "what the graph of a step keeps for backward, with the weights"},
      {"flops_per_token", "operations of the forward pass, with a carried state"},
      {"state_gain",
       "loss with an emptied state less the loss with it, at the last evaluation (train.state_gain_batches)"},
      {"batch", "examples of a step"},
      {"recurrent_steps", "times that a token passes through the layers"},
      {"sample_operations", "operations of the forward pass of an example"},
      {"paper_operations",
       "the same by the formulas of Kausik's Table 1 (paper_operations in "
       "models/recurrent_transformer/paper_operations.h)"},
      {"standard_error", "of the loss, where it is a mean over random batches (sampled_standard_error)"},
      {"state_bytes", "state of a stream of one sequence behind a segment"},
      {"token_ms", "median time of a token that follows it, in milliseconds"},
  };
  return columns;
}

std::string task_key(RunConfig config) {
  const ModelConfig& model = config.model;
  return fmt::format("{} {} {} {} {} {} {}", keys_of(config.data).to_json().dump(), segment_length(config),
                     config.train.batch, config.train.carry_state, reads_key(model, "readout"),
                     reads_key(model, "block"), model.block);
}

std::string measurement_of(const ReproduceTable& table, const ReproduceRow& row) {
  std::string text = evaluation_of(table, row);
  for (const char* key : {"state_bytes", "token_ms"})
    if (has_column(table, key)) text += fmt::format("; {}", key);
  for (const std::string_view key : kSampleColumns)
    if (has_column(table, key)) text += fmt::format("; {}", key);
  if (has_test_column(table)) text += "; test";
  return text;
}

RowState row_state(const ReproduceTable& table, const ReproduceRow& row, const std::string& runs) {
  RowState state;
  state.folder = fs::path(runs) / table.folder / row.folder();
  std::error_code error;
  if (!fs::exists(state.folder, error)) return state;
  const bool is_trained = row.weights_of.empty();
  const fs::path result_file = state.folder / kResultFile;
  if (is_trained) {
    state.begun = ended_before_first_checkpoint(state.folder);
    if (state.begun) return state;
    if (checkpoints_of_run(state.folder).empty())
      fail<IoError>("reproduce: {} exists and is not a run (choose another --runs)", state.folder.string());
    if (const std::vector<std::string> keys = contradictions(trained_config(state.folder), row.config);
        !keys.empty())
      fail<ConfigError>("reproduce: {} was trained with another configuration: {} (choose another --runs)",
                        state.folder.string(), fmt::join(keys, "; "));
    state.resumable = true;
  }
  if (fs::symlink_status(result_file, error).type() == fs::file_type::not_found) return state;
  RowResult result = read_result(result_file);
  state.kept = result.values;
  if (is_trained) {
    const TrainConfig &had = result.config.train, &want = row.config.train;
    state.trained = state.resumable && had.steps == want.steps && had.minutes == want.minutes;
    if (state.trained) state.result = std::move(result);
  } else if (contradictions(result.config, row.config).empty()) {
    state.result = std::move(result);
  }
  return state;
}

ReproduceEnd train_row(const ReproduceRow& row, const RowState& state, const std::string& command,
                       Ranks* ranks) {
  TrainRequest request;
  request.ranks = ranks;
  request.config = row.config;
  request.command_line = command;
  if (state.resumable) {
    request.resume = state.folder.string();
    request.checkpoint = "newest-whole";  // a step trained again has the same bits
  } else {
    request.run_dir = state.folder.string();
  }
  request.show = LiveReport();
  const TrainEnd end = train(request);
  if (end == TrainEnd::interrupted) return ReproduceEnd::interrupted;
  const LoadedRun run = load_run(state.folder.string());
  RowResult result;
  result.config = row.config;
  result.values = state.kept;
  result.ended = end == TrainEnd::finished ? "finished" : end == TrainEnd::time_over ? "time over" : kGaveUp;
  result.step = run.step;
  result.tokens = run.state.tokens;
  result.seconds = run.state.seconds;
  result.parameters = run.model->params().count();
  result.device = fmt::format("{}, {} {}, {}", row.config.train.device, thread_count(),
                              plural(thread_count(), "thread"), processor_name());
  write_result(state.folder, result);
  return end == TrainEnd::too_many_bad_steps ? ReproduceEnd::failed : ReproduceEnd::done;
}

void keep_value(const fs::path& folder, const std::string& key, double value) {
  RowResult result = read_result(folder / kResultFile);
  result.values[key] = value;
  write_result(folder, result);
}

std::optional<RowResult> measure_row(const ReproduceTable& table, const ReproduceRow& row,
                                     const fs::path& folder, const fs::path& weights, Ranks* ranks) {
  RowResult result = read_result(weights / kResultFile);
  result.config = row.config;
  result.values.clear();
  result.remarks.clear();
  const LoadedRun run = run_to_measure(row, weights);
  result.measured_step = run.step;
  result.parameters = run.model->params().count();
  if (table.by_split()) measure_evaluation(table, row, run, ranks, result);
  if (table.by_windows()) measure_lengths(table, row, run, result);
  if (table.generated) measure_made_lengths(table, row, run, result);
  if (stop_requested()) return std::nullopt;
  const std::int64_t time = segment_length(run.config);
  result.values["parameters"] = static_cast<double>(result.parameters);
  result.values["tokens"] = static_cast<double>(result.tokens);
  if (run.tokenizer) result.values["vocab"] = static_cast<double>(run.tokenizer->vocab_size());
  measure_stream(table, run, result);
  if (std::any_of(std::begin(kSampleColumns), std::end(kSampleColumns),
                  [&](std::string_view key) { return has_column(table, key); }))
    add_sample_cost(run.config, result);
  // The page draws curves against operations, whether it is a column or not.
  result.values["flops_per_token"] = forward_cost(run.config.model, time).flops / static_cast<double>(time);
  if (row.weights_of.empty())
    add_training(weights, result);
  else
    result.remarks.push_back(fmt::format("the weights of {}, not trained itself", row.weights_of));
  if (result.ended != "finished")
    result.remarks.push_back(fmt::format("{} at step {}", result.ended, result.step));
  result.measured = measurement_of(table, row);
  make_folders(folder);
  write_result(folder, result);
  return result;
}

}  // namespace eddy::app
