// Times steps at doubled lengths, and makes the table and the plots.
#include "train/app/measure/length.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/memory/memory_limit.h"
#include "tensor/threads/thread_pool.h"
#include "train/app/measure/step.h"
#include "train/config/config.h"
#include "train/config/run_config.h"
#include "train/words/human_text.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::int64_t kBlock = 32, kVocab = 256, kHeadWidth = 32;
constexpr std::int64_t kProduct = 512;  // its operands stay in a cache
constexpr std::int64_t kCpuMemory = std::int64_t{4} << 30;

std::string family_of(const std::string& model) {
  for (const ModelName& name : model_registry())
    if (model == name.model) return name.family;
  fail<ConfigError>("bench length: there is no model \"{}\" ({}all: {})", model,
                    suggest_value(model, model_list()), fmt::join(model_list(), ", "));
}

// Times one length and adds it to the series.
void measure_into(MeasuredSeries& series, const LengthBenchOptions& options, std::int64_t length) {
  StepBenchOptions step;
  step.model = length_model(options, series.name, length);
  step.batch = options.batch;
  step.sequence = length;
  step.seconds = options.seconds;
  step.checks_memory = options.memory_bytes > 0;  // else the limit is far below a machine's memory
  if (value_is(options.device, DeviceChoice::cpu)) step.product_size = kProduct;
  if (options.product_size > 0) step.product_size = options.product_size;
  step.device = options.device;
  step.precision = options.precision;
  const StepBench bench = bench_step(step);
  series.facts["parameters"] = bench.parameters;
  series.rows.push_back({length, bench.step.median * 1e3, bench.step.best * 1e3, bench.floor_median() * 1e3,
                         bench.step.median * 1e6 / static_cast<double>(length),
                         bytes_cell(bench.peak_bytes)});
}

// Returns what the last doubling of the length added to a column, divided by what the doubling before added: 2
// is linear growth, 4 quadratic. Constant parts cancel. NaN where the doubling before added too little to divide by.
double last_growth(const MeasuredSeries& series, std::size_t column) {
  constexpr double kLeast = 0.01;  // of the whole
  const auto value = [&](std::size_t back) {
    return series.rows[series.rows.size() - back][column].value.get<double>();
  };
  const double before = value(2) - value(3);
  return before > kLeast * value(3) ? (value(1) - value(2)) / before
                                    : std::numeric_limits<double>::quiet_NaN();
}

// Whether two doublings were measured, which tell growth from constant parts.
bool tells_growth(const MeasuredSeries& series) {
  return series.rows.size() > 2;
}

// Describes how a series grew, and why it ended. It uses the best times, since the ratio would magnify other
// load on the machine.
std::string growth(const MeasuredSeries& series) {
  constexpr std::size_t kBest = 2, kPeak = 5;
  const std::string stopped = series.facts["stopped"];
  std::vector<std::string> texts;
  if (!tells_growth(series)) {
    texts.emplace_back("fewer than three lengths tell no growth");
    if (stopped.empty()) texts.back() += " (a larger --longest)";
  } else {
    std::vector<std::string> grown, flat;
    for (const auto& [column, name] : {std::pair{kBest, "time"}, {kPeak, "memory"}}) {
      const double ratio = last_growth(series, column);
      if (std::isnan(ratio))
        flat.emplace_back(name);
      else
        grown.push_back(fmt::format("{:.2f} times the {}", ratio, name));
    }
    if (!grown.empty())
      texts.push_back(fmt::format("the doubling to {} tokens added {} of the one before",
                                  series.rows.back()[0].text, fmt::join(grown, " and ")));
    if (!flat.empty())
      texts.push_back(fmt::format("{} grew too little to compare", fmt::join(flat, " and ")));
  }
  if (!stopped.empty()) texts.push_back(stopped);
  return fmt::format("{} ({}, {} parameters): {}", series.name, family_of(series.name),
                     grouped(series.facts.value("parameters", std::int64_t{0})), fmt::join(texts, "; "));
}

}  // namespace

void validate(const LengthBenchOptions& options) {
  if (options.shortest < 1 || options.longest < options.shortest || options.longest > kMostBenchTokens)
    fail<ValueError>("bench length: lengths from {} to {} (1 <= shortest <= longest <= {})", options.shortest,
                     options.longest, kMostBenchTokens);
  if (options.dim < 1 || options.layers < 1 || options.batch < 1 || options.memory_bytes < 0 ||
      !(options.seconds >= 0) || !std::isfinite(options.seconds))
    fail<ValueError>(
        "bench length: dim {}, layers {}, batch {}, memory {} bytes, {} seconds (sizes at least 1, the "
        "others not negative)",
        options.dim, options.layers, options.batch, options.memory_bytes, options.seconds);
  if (options.models.empty()) fail<ConfigError>("bench length: no models (at least one)");
  // Refuse an invalid model before any is measured.
  for (const std::string& model : options.models) validate(length_model(options, model, options.shortest));
}

ModelConfig length_model(const LengthBenchOptions& options, const std::string& model, std::int64_t length) {
  ModelConfig config;
  config.family = family_of(model);
  config.model = model;
  config.vocab = kVocab;
  config.dim = options.dim;
  config.layers = options.layers;
  config.heads = std::max<std::int64_t>(1, options.dim / kHeadWidth);
  config.context = config.segment = length;
  config.block = config.chunk = config.states = kBlock;
  config.window = kBlock;
  model_entry(config).fit_to_sizes(config);
  return config;
}

Measurement bench_length(const LengthBenchOptions& options,
                         const std::function<void(const Measurement&)>& keep) {
  validate(options);
  const DevicePrecision placement =
      choose_device_precision({"bench length", "--device", "--precision"}, options.device, options.precision);
  const bool on_cpu = placement.device == kCpu;
  const std::int64_t most = on_cpu ? kCpuMemory : MemoryLimit::kNone;
  const MemoryLimit limit(allocator(placement.device),
                          options.memory_bytes > 0 ? options.memory_bytes : most);
  Measurement m;
  m.bench = "length";
  m.title = "Steps by length of the segment";
  m.conditions =
      fmt::format("steps by length of the segment, {} {} of width {}, batch {}, {}, {}{} {}", options.layers,
                  plural(options.layers, "layer"), options.dim, options.batch, options.precision,
                  on_cpu ? "" : "cuda, ", thread_count(), plural(thread_count(), "thread"));
  m.about =
      "Whole training steps, gradients through all of the segment. The time and the memory of a recurrent "
      "model grow with the length; the regular transformer's attention grows with its square. Both axes are "
      "logarithmic, so that linear growth is a straight line of one slope.";
  m.facts = {{"device", options.device}, {"precision", options.precision}, {"threads", thread_count()},
             {"dim", options.dim},       {"layers", options.layers},       {"batch", options.batch}};
  MeasuredTable& table = m.tables.emplace_back();
  table.key = "series";
  table.names = "model";
  table.columns = {{"length", "tokens"},         {"step_ms.median", "ms, median"},
                   {"step_ms.best", "ms, best"}, {"floor_ms", "floor, ms"},
                   {"", "us for each token"},    {"peak_bytes", "peak memory"}};
  table.plots = {
      {"Time of a step", "ms", 1}, {"Time for each token", "microseconds", 4}, {"Peak memory", "bytes", 5}};
  for (const std::string& model : options.models) {
    table.series.push_back({model, {{"model", model}, {"family", family_of(model)}, {"stopped", ""}}, {}});
    MeasuredSeries& series = table.series.back();
    bool fits = true;
    for (std::int64_t length = options.shortest; length <= options.longest && fits; length *= 2) {
      try {
        measure_into(series, options, length);
      } catch (const OutOfMemoryError&) {
        series.facts["stopped"] = fmt::format("{} tokens do not fit in the memory there is{}",
                                              grouped(length), on_cpu ? " (--memory-mib sets how much)" : "");
        fits = false;
      }
      allocator(placement.device).trim();  // the next length needs other sizes
      keep(m);
    }
    table.notes.push_back(growth(series));
  }
  if (std::any_of(table.series.begin(), table.series.end(), tells_growth))
    table.notes.insert(table.notes.begin(), "2 times is linear growth, 4 times quadratic:");
  return m;
}

}  // namespace eddy::app
