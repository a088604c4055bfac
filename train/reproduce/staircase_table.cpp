// Trains the points of the staircase benchmark, and keeps them like the rows of a table.
#include "train/reproduce/staircase_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/threads/thread_pool.h"
#include "train/config/config.h"
#include "train/config/device_precision.h"
#include "train/eval/evaluate.h"
#include "train/files/text_file.h"
#include "train/reproduce/run.h"
#include "train/run/metrics.h"

namespace eddy {
namespace {

constexpr const char* kFolder = "bench-staircase";
constexpr std::int64_t kLargestSize = 1 << 20;
// A killed point loses at most so many steps.
constexpr std::int64_t kSaveEvery = 50;

const std::vector<std::string>& known_models() {
  static const std::vector<std::string> models = {"transformer_xl", "staircase", "cached_staircase",
                                                  "ladder",         "universal", "feedback"};
  return models;
}

bool has_steps(const std::string& model) {
  return model != "transformer_xl" && model != "feedback";
}
bool has_chunks(const std::string& model) {
  return model == "staircase" || model == "cached_staircase";
}

void check_list(const char* name, const std::vector<std::int64_t>& values) {
  const std::set<std::int64_t> different(values.begin(), values.end());
  if (values.empty() || different.size() != values.size() || *different.begin() < 1 ||
      *different.rbegin() > kLargestSize)
    fail<ConfigError>("bench staircase: --{} {} (different whole numbers, 1 to {})", name,
                      fmt::join(values, ","), kLargestSize);
}

void check_options(const StaircaseBenchOptions& options) {
  if (options.models.empty()) fail<ConfigError>("bench staircase: no models (at least one)");
  for (const std::string& model : options.models)
    if (std::find(known_models().begin(), known_models().end(), model) == known_models().end())
      fail<ConfigError>("bench staircase: there is no model \"{}\" (nearest: {}; all: {})", model,
                        nearest_match(model, known_models()), fmt::join(known_models(), ", "));
  if (std::set<std::string>(options.models.begin(), options.models.end()).size() != options.models.size())
    fail<ConfigError>("bench staircase: --models {} (each once)", fmt::join(options.models, ","));
  check_list("n", options.n);
  check_list("c", options.c);
  if (options.tokenizer != "char" && options.tokenizer != "byte")
    fail<ConfigError>("bench staircase: --tokenizer {} (char or byte, of which losses compare)",
                      options.tokenizer);
  if (options.device != "cpu" && options.device != "cuda")
    fail<ConfigError>("bench staircase: --device is {:?} (cpu or cuda)", options.device);
  if (options.seed < 0) fail<ConfigError>("bench staircase: --seed {} (at least 0)", options.seed);
}

StaircaseBenchPoint point_of(const StaircaseBenchOptions& options, const std::string& model, std::int64_t n,
                             std::int64_t c) {
  StaircaseBenchPoint point;
  point.name = model + (n > 0 ? fmt::format("-n{}", n) : "") + (c > 0 ? fmt::format("-c{}", c) : "");
  point.model = model;
  point.n = n;
  point.c = c;
  ModelConfig& m = point.config.model;
  m.family = "staircase";
  m.model = model;
  m.dim = options.dim;
  m.mlp_dim = 4 * options.dim;
  m.heads = options.heads;
  m.layers = model == "universal" ? 1 : options.layers;
  m.segment = m.context = options.segment;
  m.dropout = 0;
  if (has_chunks(model)) {
    m.chunk = c;
    m.steps = n;
    m.span = n * c;
    if (model == "cached_staircase") m.cache_after = 1;
  } else {
    m.span = options.segment;
    if (n > 0) m.repeats = n;
  }
  DataConfig& d = point.config.data;
  d.path = options.data;
  d.tokenizer = options.tokenizer;
  d.order = "stream";
  TrainConfig& t = point.config.train;
  t.steps = options.steps;
  t.batch = options.batch;
  t.optimizer = "adam";
  t.learning_rate = options.learning_rate;
  t.beta2 = 0.999;
  t.weight_decay = 0;
  t.clip = 0.1;
  t.warmup = std::min<std::int64_t>(100, options.steps / 4);
  t.seed = options.seed;
  t.device = options.device;
  t.eval_every = t.sample_tokens = t.state_gain_batches = 0;
  t.checkpoint_every = kSaveEvery;
  t.log_every = 1;
  validate(point.config);
  return point;
}

// Returns the points as rows of a table, so that row_state and measure_row (run.h) can be used.
ReproduceTable table_of(const StaircaseBench& bench) {
  ReproduceTable table;
  table.name = table.program = "bench staircase";
  table.folder =
      bench.options.device == "cpu" ? kFolder : fmt::format("{}-{}", kFolder, bench.options.device);
  table.evaluation.split = "valid";
  table.evaluation.batches = 0;
  table.evaluation.batch = 0;  // 0: the batch of training
  for (const StaircaseBenchPoint& point : bench.points) {
    ReproduceRow row;
    row.name = row.title = point.name;
    row.config = point.config;
    table.rows.push_back(std::move(row));
  }
  return table;
}

void take_result(const RowResult& result, const std::filesystem::path& folder, StaircaseBenchPoint& point) {
  if (result.step > point.config.train.steps)
    fail<ConfigError>(
        "bench staircase: {} was trained for {} steps, more than --steps {} (choose another --runs)",
        folder.string(), result.step, point.config.train.steps);
  point.steps = result.step;
  point.parameters = result.parameters;
  point.bits = result.values.at("loss") * std::numbers::log2e;
  point.batch_ms = point.best_ms = result.values.at("step_ms");
  for (const StepRecord& step : read_metrics(folder / "metrics.jsonl").steps) {
    point.peak_bytes = std::max(point.peak_bytes, step.memory_bytes);
    point.saved_bytes = std::max(point.saved_bytes, step.saved_bytes);
    if (step.ms < point.best_ms) point.best_ms = step.ms;
  }
  // Uses the configuration of the run, since the task has filled in the vocabulary.
  const std::string file = (folder / "config.json").string();
  point.costs =
      staircase_costs(run_config_from_json(nlohmann::json::parse(read_text_file(file)), file).model);
  point.done = true;
}

}  // namespace

double StaircaseBenchPoint::kept_bytes_per_token() const {
  // saved_bytes includes the weights: every product saves a handle to its weight, and all parameters are one
  // buffer of f32.
  return static_cast<double>(saved_bytes - 4 * parameters) /
         static_cast<double>(config.train.batch * config.model.segment);
}

StaircaseBench plan_staircase_bench(const StaircaseBenchOptions& options) {
  check_options(options);
  StaircaseBench bench;
  bench.options = options;
  bench.threads = thread_count();
  for (const std::string& model : options.models) {
    if (!has_steps(model)) {
      bench.points.push_back(point_of(options, model, 0, 0));
      continue;
    }
    for (const std::int64_t n : options.n) {
      if (!has_chunks(model)) bench.points.push_back(point_of(options, model, n, 0));
      // With N = 1 nothing is ever cached, so it is the plain staircase.
      if (has_chunks(model) && (n > 1 || model == "staircase"))
        for (const std::int64_t c : options.c) bench.points.push_back(point_of(options, model, n, c));
    }
  }
  if (bench.points.empty())
    fail<ConfigError>("bench staircase: nothing to measure: cached_staircase with N = 1 is the staircase");
  return bench;
}

StaircaseBench bench_staircase(const StaircaseBenchOptions& options,
                               const std::function<void(std::string_view)>& log,
                               const std::function<void(const StaircaseBench&)>& keep) {
  StaircaseBench bench = plan_staircase_bench(options);
  const Device device =
      choose_device_precision({"bench staircase", "--device", "--precision"}, options.device, "f32").device;
  const ReproduceTable table = table_of(bench);
  // Report an error of any point before time is spent on another.
  for (const ReproduceRow& row : table.rows) static_cast<void>(row_state(table, row, options.runs));
  const std::string command =
      fmt::format("eddy bench staircase --runs {}{}", options.runs, device == kCpu ? "" : " --device cuda");
  for (std::size_t i = 0; i < bench.points.size(); ++i) {
    const ReproduceRow& row = table.rows[i];
    RowState state = row_state(table, row, options.runs);
    const std::string place = fmt::format("{} of {}, {}", i + 1, bench.points.size(), row.name);
    if (!state.trained) {
      log(fmt::format("\n== {} ==\n", place));
      allocator(device).reset_peak();
      const ReproduceEnd end = train_row(row, state, command);
      if (end == ReproduceEnd::interrupted) {
        bench.interrupted = true;
        return bench;
      }
      state = row_state(table, row, options.runs);
    }
    if (state.result && state.result->measured == measurement_of(table, row)) {
      take_result(*state.result, state.folder, bench.points[i]);
    } else {
      log(fmt::format("{}: measuring\n", place));
      take_result(measure_row(table, row, state.folder, state.folder), state.folder, bench.points[i]);
    }
    log(fmt::format("{}: {:.4f} bits per character, {:.0f} ms a batch\n", place, bench.points[i].bits,
                    bench.points[i].batch_ms));
    keep(bench);
  }
  return bench;
}

}  // namespace eddy
