// Times the next token at many lengths, and makes the tables and plots.
#include "train/app/measure/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/eddy/registry.h"
#include "ops/core/capture.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/memory/memory_limit.h"
#include "tensor/threads/thread_pool.h"
#include "train/app/measure/bench.h"
#include "train/config/run_config.h"
#include "train/generate/generate.h"
#include "train/plan/machine_memory.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::int64_t kLeastTokens = 3;
constexpr std::int64_t kTokensOfFullCache = 64;  // timed at one length by a model that reads all tokens

std::vector<std::int64_t> lengths_of(const GenerateBenchOptions& options) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = options.min_length; length < options.max_length; length *= 2)
    lengths.push_back(length);
  lengths.push_back(options.max_length);
  return lengths;
}

// A model and its state at a chosen length, which the model makes from one after some blocks (stream_after), or, if
// it cannot (`reads_all_`), the state after reading all tokens.
class LongStream {
 public:
  LongStream(const ModelConfig& config, const GenerateBenchOptions& options, std::int64_t max_length,
             const DevicePrecision& placement)
      : model_(make_model(config, placement.dtype, placement.device, placement.matmul)),
        recorder_(model_->params(), token_recorder(options.capture)),
        context_(config.context),
        ids_(static_cast<std::size_t>(options.batch), 0) {
    model_->params().initialize(kBenchSeed);
    static_cast<void>(next_logits(*model_, ids_, state_, recorder_));
    reads_all_ = !model_->stream_after(state_, 1);
    if (reads_all_) {
      state_ = {};
      // Warm up until each position of a block is captured, then start again from the first token.
      for (std::int64_t i = 0; can_capture(placement.device) && i < (kCaptureWarmUp + 2) * period(); ++i)
        static_cast<void>(next_logits(*model_, ids_, state_, recorder_));
      state_ = {};
      return;
    }
    // Go past the first blocks, and past the tokens that are captured.
    const std::int64_t blocks = 1 + (can_capture(placement.device) ? kCaptureWarmUp + 2 : 2);
    for (std::int64_t i = 1; i < blocks * period() && i < max_length; ++i)
      static_cast<void>(next_logits(*model_, ids_, state_, recorder_));
  }

  const Model& model() const { return *model_; }
  bool captured() const { return recorder_.graphs() > 0; }
  std::string message() { return recorder_.take_message(); }

  // Whether another token may be timed at this length: a growing cache should stay near it.
  bool may_time_another(std::int64_t length) const {
    return !reads_all_ || model_->remaining_context(state_) < 0 ||
           tokens_read_ < length + std::min(length, kTokensOfFullCache);
  }

  // Returns the seconds of one token after `length` others, and the largest number of bytes of state. A model
  // with blocks is timed over one whole block. A model that reads all tokens continues from where it is.
  std::pair<double, std::int64_t> time_token(std::int64_t length) {
    for (; reads_all_ && tokens_read_ < length; ++tokens_read_)
      static_cast<void>(next_logits(*model_, ids_, state_, recorder_));
    // The state must be the only owner of its tensors: a stream copies tensors that have other owners.
    State state = reads_all_ ? std::exchange(state_, {}) : *model_->stream_after(state_, length);
    const std::int64_t tokens = period();
    std::int64_t bytes = 0;
    double seconds = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
      const Clock::time_point start = Clock::now();
      const Tensor logits = next_logits(*model_, ids_, state, recorder_);
      for (std::size_t row = 0; row < ids_.size(); ++row) ids_[row] = most_probable(logits, row);
      seconds += seconds_between(start);
      bytes = std::max(bytes, bytes_in_use(state));
    }
    // A replayed graph writes its state in place, so the state kept here advances with it.
    if (reads_all_ || model_->stream_signature(state)) state_ = std::move(state);
    tokens_read_ += tokens;
    return {seconds / static_cast<double>(tokens), bytes};
  }

 private:
  // Returns the bytes of the state; of a cache with room for all tokens, only the filled rows count.
  std::int64_t bytes_in_use(const State& state) const {
    const std::int64_t remaining = reads_all_ ? model_->remaining_context(state) : -1;
    if (remaining < 0) return state.bytes();
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : state) {
      const Shape& shape = tensor.shape();
      const bool holds_all = std::find(shape.begin(), shape.end(), context_) != shape.end();
      bytes += holds_all ? tensor.bytes() / context_ * (context_ - remaining) : tensor.bytes();
    }
    return bytes;
  }

  std::int64_t period() const { return model_->stream_period(); }

  static std::int32_t most_probable(const Tensor& logits, std::size_t row) {
    const std::int64_t classes = logits.dim(1);
    const float* const values = logits.data<float>() + static_cast<std::int64_t>(row) * classes;
    return sample_token(values, classes, {.temperature = 0}, 0);
  }

  std::unique_ptr<Model> model_;
  Recorder recorder_;
  std::int64_t context_;
  std::vector<std::int32_t> ids_;
  State state_;
  bool reads_all_ = true;
  std::int64_t tokens_read_ = 0;  // tokens read into state_, where reads_all_
};

// Returns the bytes of all parameters, as products read them, except tables of which a token reads one row.
std::int64_t weights_read(const Model& model) {
  const std::int64_t elements = model.params().count() - model.table_elements();
  const ParamStore& params = model.params();
  const Dtype read = rounds_to_bf16(params.matmul_precision()) ? Dtype::bf16 : params.activations();
  return elements * static_cast<std::int64_t>(dtype_bytes(read));
}

// Tokens of small models take microseconds: shows three digits of them too.
Cell milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return {ms, ms < 0.1 ? fmt::format("{:.3g}", ms) : table_number(ms)};
}

// Returns the points of one configuration, by increasing length.
MeasuredSeries measure_config(const std::string& name, const GenerateBenchOptions& options,
                              const std::vector<std::int64_t>& lengths, double seconds,
                              const DevicePrecision& placement, const Ceilings& ceilings) {
  ModelConfig config = paper_config(name, "bench generate");
  if (config.vocab == 0) config.vocab = 65;
  // A cache of all keys or a table of positions has one row for each token.
  const std::unique_ptr<Model> asked = make_unallocated_model(config);
  if (asked->remaining_context({}) >= 0)
    config.context = lengths.back() + 2 * std::max(kTokensOfFullCache, asked->stream_period());
  LongStream stream(config, options, lengths.back(), placement);

  const std::int64_t weight_bytes = weights_read(stream.model());
  MeasuredSeries series{name, {}, {}};
  std::vector<double> medians;
  for (const std::int64_t length : lengths) {
    std::int64_t state_bytes = 0;
    static_cast<void>(stream.time_token(length));
    std::vector<double> times;
    const Clock::time_point start = Clock::now();
    while (std::ssize(times) < kLeastTokens ||
           (seconds_between(start) < seconds && stream.may_time_another(length))) {
      const auto [time, bytes] = stream.time_token(length);
      times.push_back(time);
      state_bytes = std::max(state_bytes, bytes);
    }
    const Timing token = timing_of(std::move(times));
    const double floor = ceilings.least_seconds(0, static_cast<double>(weight_bytes + state_bytes));
    medians.push_back(token.median);
    series.rows.push_back({length, milliseconds(token.median), milliseconds(token.best), milliseconds(floor),
                           static_cast<double>(options.batch) / token.median, bytes_cell(state_bytes),
                           token.runs});
  }
  series.facts = {
      {"config", name},
      {"model", config.model},
      {"layers", config.layers},
      // Without the position table, which grows with the length.
      {"parameters", stream.model().params().count() - (config.positions ? config.context * config.dim : 0)},
      {"weight_bytes", weight_bytes},  // read for every token
      {"captured", stream.captured()},
      {"message", stream.message()},  // why tokens were not captured although this was asked for
      {"growth", medians.back() / medians.front()}};
  return series;
}

// "shakespeare_regular_6: regular, 6 layers, 10 646 784 parameters …".
std::string describe(const MeasuredSeries& series) {
  const nlohmann::json& about = series.facts;
  const std::int64_t layers = about["layers"];
  const std::string message = about["message"];
  return fmt::format(
      "{}: {}, {} {}, {} parameters without positions{}; the last token takes {:.2f} times the first",
      series.name, about["model"].get<std::string>(), layers, plural(layers, "layer"),
      grouped(about["parameters"]),
      about["captured"] ? ", replayed from a graph"
      : message.empty() ? ""
                        : "; " + message,
      about["growth"].get<double>());
}

}  // namespace

Measurement bench_generate(const GenerateBenchOptions& given) {
  GenerateBenchOptions options = given;
  const bool on_gpu = value_is(options.device, DeviceChoice::cuda);
  if (options.min_length == 0) options.min_length = on_gpu ? 1000 : 256;
  if (options.max_length == 0) options.max_length = on_gpu ? 100'000 : 65'536;
  if (options.min_length < 1 || options.max_length < options.min_length ||
      options.max_length > kMostBenchTokens)
    fail<ValueError>("bench generate: lengths from {} to {} (1 <= shortest <= longest <= {})",
                     options.min_length, options.max_length, kMostBenchTokens);
  if (options.batch < 1) fail<ValueError>("bench generate: {} sequences (at least 1)", options.batch);
  if (!(options.seconds >= 0) || !std::isfinite(options.seconds))
    fail<ValueError>("bench generate: {} seconds (at least 0)", options.seconds);
  if (options.configs.empty()) fail<ConfigError>("bench generate: no configurations (at least one)");
  for (const std::string& name : options.configs) static_cast<void>(paper_config(name, "bench generate"));

  const DevicePrecision placement = choose_device_precision({"bench generate", "--device", "--precision"},
                                                            options.device, options.precision);
  const std::vector<std::int64_t> lengths = lengths_of(options);
  const Ceilings ceilings =
      measure_ceilings(kShortCeilings, options.ceilings, placement.device, placement.matmul);
  const double seconds_each = options.seconds / static_cast<double>(lengths.size() * options.configs.size());
  Measurement m;
  m.bench = "generate";
  m.title = "The cost of the next token";
  m.conditions = fmt::format("generation, {}, {}, random weights, {}{} {}",
                             options.batch == 1 ? "one sequence" : fmt::format("{} sequences", options.batch),
                             options.precision, on_gpu ? "cuda, " : "", thread_count(),
                             plural(thread_count(), "thread"));
  m.about =
      "A recurrent model carries a state of one size, so its next token costs the same after any length. The "
      "regular transformer reads the keys and values of all tokens before. Long pasts were not computed: the "
      "cache was filled with zeros and the tokens after it were timed.";
  MeasuredTable& table = m.tables.emplace_back();
  table.key = "series";
  table.names = "milliseconds per token of each sequence";
  table.columns = {{"length", "tokens before"},
                   {"token_ms.median", "ms, median"},
                   {"token_ms.best", "ms, best"},
                   {"floor_ms", "floor, ms"},
                   {"tokens_per_second", "tokens per second"},
                   {"state_bytes", "state"},
                   {"tokens_timed", "tokens timed"}};
  table.plots = {{"Time of a token", "milliseconds", 1},
                 {"Tokens per second", "tokens per second", 4},
                 {"Floor: weights and state read once at the rate of memory", "milliseconds", 3},
                 {"State", "bytes", 5}};
  std::vector<std::string> left_out;
  if (options.memory_bytes == 0) options.memory_bytes = on_gpu ? MemoryLimit::kNone : free_memory();
  const MemoryLimit limit(allocator(placement.device), options.memory_bytes);
  for (const std::string& name : options.configs) {
    try {
      table.series.push_back(measure_config(name, options, lengths, seconds_each, placement, ceilings));
      table.notes.push_back(describe(table.series.back()));
    } catch (const OutOfMemoryError&) {
      // The allocator's own error text gives advice about training.
      left_out.push_back(
          fmt::format("bench generate: {} at length {}, batch {} does not fit in the memory of {} (lower "
                      "--max-length or --batch, or leave it out of --configs)",
                      name, lengths.back(), options.batch, to_string(placement.device)));
      allocator(placement.device).trim();
    }
  }
  if (table.series.empty()) throw OutOfMemoryError(left_out.at(0));
  table.notes.insert(table.notes.end(), left_out.begin(), left_out.end());
  m.facts = {{"device", options.device},
             {"precision", options.precision},
             {"threads", thread_count()},
             {"batch", options.batch},
             {"left_out", left_out}};
  return m;
}

}  // namespace eddy::app
