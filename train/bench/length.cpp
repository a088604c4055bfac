// Times steps at doubled lengths, and makes the table and the plots.
#include "train/bench/length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/threads/thread_pool.h"
#include "train/bench/step.h"
#include "train/config/config.h"
#include "train/config/device_precision.h"
#include "train/page/html_page.h"
#include "train/page/human_text.h"

namespace eddy {
namespace {

using Cells = std::vector<std::string>;

constexpr std::int64_t kBlock = 32, kVocab = 256, kHeadWidth = 32;
constexpr std::int64_t kProduct = 512;  // its operands stay in a cache
constexpr std::int64_t kCpuMemory = std::int64_t{4} << 30;
constexpr std::int64_t kMostLength = std::int64_t{1} << 24;

// Limits the live bytes of a device while it exists.
class MemoryLimit {
 public:
  MemoryLimit(Device device, std::int64_t bytes) : allocator_(allocator(device)) {
    allocator_.set_limit(bytes);
  }
  ~MemoryLimit() { allocator_.set_limit(0); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  Allocator& allocator_;
};

std::string family_of(const std::string& model) {
  for (const ModelName& name : model_names())
    if (model == name.model) return name.family;
  fail<ConfigError>("bench length: there is no model \"{}\" (nearest: {}; all: {})", model,
                    nearest_match(model, model_list()), fmt::join(model_list(), ", "));
}

void check_options(const LengthBenchOptions& options) {
  if (options.shortest < 1 || options.longest < options.shortest || options.longest > kMostLength)
    fail<ValueError>("bench length: lengths from {} to {} (1 <= shortest <= longest <= {})", options.shortest,
                     options.longest, kMostLength);
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

LengthPoint measure(const LengthBenchOptions& options, const std::string& model, std::int64_t length,
                    LengthSeries& series) {
  StepBenchOptions step;
  step.model = length_model(options, model, length);
  step.batch = options.batch;
  step.sequence = length;
  step.seconds = options.seconds;
  if (options.device == "cpu") step.product_size = kProduct;
  if (options.product_size > 0) step.product_size = options.product_size;
  step.device = options.device;
  step.precision = options.precision;
  const StepBench bench = bench_step(step);
  series.parameters = bench.parameters;
  return {length, bench.step, bench.peak_bytes, bench.floor_median()};
}

// "2 layers of width 64, batch 1, f32, 2 threads".
std::string conditions(const LengthBench& bench) {
  return fmt::format("{} layers of width {}, batch {}, {}, {}{} thread{}", bench.layers, bench.dim,
                     bench.batch, bench.precision, bench.device == "cuda" ? "cuda, " : "", bench.threads,
                     bench.threads == 1 ? "" : "s");
}

// Returns what the last doubling of the length added, divided by what the doubling before added: 2 is linear
// growth, 4 quadratic. Constant parts cancel. It uses the best times, since the ratio would magnify other
// load on the machine.
double last_growth(const std::vector<LengthPoint>& points, double (*value)(const LengthPoint&)) {
  const std::size_t n = points.size();
  return (value(points[n - 1]) - value(points[n - 2])) / (value(points[n - 2]) - value(points[n - 3]));
}

double seconds_of(const LengthPoint& point) {
  return point.step.best;
}
double bytes_of(const LengthPoint& point) {
  return static_cast<double>(point.peak_bytes);
}

// Describes how a series grew, and why it ended.
std::string growth(const LengthSeries& series) {
  std::string text;
  if (series.points.size() > 2)
    text = fmt::format(
        "the doubling to {} tokens added {:.2f} times the time and {:.2f} times the memory of the "
        "one before",
        grouped(series.points.back().length), last_growth(series.points, seconds_of),
        last_growth(series.points, bytes_of));
  if (!series.stopped.empty()) text += (text.empty() ? "" : "; ") + series.stopped;
  return text;
}

// Returns one row for each length, with one cell for each series that reached it.
template <class Cell>
std::vector<Cells> rows_of(const LengthBench& bench, Cell&& cell) {
  std::vector<Cells> rows{{"tokens"}};
  std::size_t longest = 0;
  for (std::size_t i = 0; i < bench.series.size(); ++i) {
    rows[0].push_back(bench.series[i].model);
    if (bench.series[i].points.size() > bench.series[longest].points.size()) longest = i;
  }
  for (std::size_t at = 0; !bench.series.empty() && at < bench.series[longest].points.size(); ++at) {
    rows.push_back({grouped(bench.series[longest].points[at].length)});
    for (const LengthSeries& series : bench.series)
      rows.back().push_back(at < series.points.size() ? cell(series.points[at]) : "-");
  }
  return rows;
}

template <class Value>
Chart chart_of(const LengthBench& bench, std::string title, std::string y_title, Value&& value) {
  Chart chart{std::move(title), "tokens of the segment", std::move(y_title), true, true, {}};
  for (const LengthSeries& series : bench.series) {
    Series line;
    line.name = series.model;
    line.style = SeriesStyle::line_points;
    for (const LengthPoint& point : series.points) {
      line.x.push_back(static_cast<double>(point.length));
      line.y.push_back(value(point));
    }
    chart.series.push_back(std::move(line));
  }
  return chart;
}

std::string step_ms(const LengthPoint& point) {
  return table_number(point.step.median * 1e3);
}
double token_us(const LengthPoint& point) {
  return point.step.median * 1e6 / static_cast<double>(point.length);
}
std::string peak(const LengthPoint& point) {
  return human_bytes(point.peak_bytes);
}

}  // namespace

ModelConfig length_model(const LengthBenchOptions& options, const std::string& model, std::int64_t length) {
  ModelConfig config;
  config.family = family_of(model);
  config.model = model;
  config.vocab = kVocab;
  config.dim = options.dim;
  config.layers = model == "universal" ? 1 : options.layers;
  config.heads = std::max<std::int64_t>(1, options.dim / kHeadWidth);
  config.context = config.segment = length;
  config.block = config.chunk = config.states = kBlock;
  config.window = model == "xl" || model == "vanilla" ? length : kBlock;
  if (model == "block_recurrent") config.recurrent_layers = {config.layers - 1};
  if (model == "memorizing") {
    config.memory_layers = {config.layers - 1};
    config.memory_size = 2 * length;
    config.memory_topk = kBlock;
  }
  return config;
}

LengthBench bench_length(const LengthBenchOptions& options,
                         const std::function<void(const LengthBench&)>& keep) {
  check_options(options);
  const DevicePrecision placement =
      choose_device_precision({"bench length", "--device", "--precision"}, options.device, options.precision);
  const bool on_cpu = placement.device == kCpu;
  const MemoryLimit limit(placement.device, options.memory_bytes > 0 ? options.memory_bytes
                                            : on_cpu                 ? kCpuMemory
                                                                     : 0);
  LengthBench bench;
  bench.device = options.device;
  bench.precision = options.precision;
  bench.threads = thread_count();
  bench.dim = options.dim;
  bench.layers = options.layers;
  bench.batch = options.batch;
  for (const std::string& model : options.models) {
    bench.series.push_back({model, family_of(model), 0, {}, {}});
    LengthSeries& series = bench.series.back();
    for (std::int64_t length = options.shortest; length <= options.longest; length *= 2) {
      try {
        series.points.push_back(measure(options, model, length, series));
      } catch (const OutOfMemoryError&) {
        series.stopped = fmt::format("{} tokens do not fit in the memory there is{}", grouped(length),
                                     on_cpu ? " (--memory-mib sets how much)" : "");
      }
      allocator(placement.device).trim();  // the next length needs other sizes
      keep(bench);
      if (!series.stopped.empty()) break;
    }
  }
  return bench;
}

std::string to_text(const LengthBench& bench) {
  std::string text = "steps by length of the segment, " + conditions(bench) + '\n';
  const auto table = [&](const char* title, auto&& cell) {
    text += fmt::format("\n{}\n{}", title, text_table(rows_of(bench, cell)));
  };
  table("milliseconds of a step (median)", step_ms);
  table("microseconds for each token",
        [](const LengthPoint& point) { return table_number(token_us(point)); });
  table("peak memory", peak);
  text += "\n2 times is linear growth, 4 times quadratic:\n";
  for (const LengthSeries& series : bench.series)
    text += fmt::format("{} ({}, {} parameters): {}\n", series.model, series.family,
                        grouped(series.parameters), growth(series));
  return text;
}

nlohmann::json to_json(const LengthBench& bench) {
  nlohmann::json list = nlohmann::json::array();
  for (const LengthSeries& series : bench.series) {
    nlohmann::json points = nlohmann::json::array();
    for (const LengthPoint& point : series.points)
      points.push_back({{"length", point.length},
                        {"step_ms", {{"median", point.step.median * 1e3}, {"best", point.step.best * 1e3}}},
                        {"floor_ms", point.floor * 1e3},
                        {"peak_bytes", point.peak_bytes}});
    list.push_back({{"model", series.model},
                    {"family", series.family},
                    {"parameters", series.parameters},
                    {"stopped", series.stopped},
                    {"points", points}});
  }
  return {{"device", bench.device}, {"precision", bench.precision}, {"threads", bench.threads},
          {"dim", bench.dim},       {"layers", bench.layers},       {"batch", bench.batch},
          {"series", list}};
}

std::string to_html(const LengthBench& bench, const std::vector<std::string>& notes) {
  HtmlPage page("Steps by length of the segment", conditions(bench));
  page.paragraph(
      "Whole training steps, gradients through all of the segment. The time and the memory of a recurrent "
      "model grow with the length; the regular transformer's attention grows with its square. Both axes are "
      "logarithmic, so that linear growth is a straight line of one slope.");
  page.chart(chart_of(bench, "Time of a step", "ms",
                      [](const LengthPoint& point) { return point.step.median * 1e3; }));
  page.charts({chart_of(bench, "Time for each token", "microseconds", token_us),
               chart_of(bench, "Peak memory", "MiB", [](const LengthPoint& point) {
                 return static_cast<double>(point.peak_bytes) / (1 << 20);
               })});
  for (const auto& [title, rows] : {std::pair{"Milliseconds of a step", rows_of(bench, step_ms)},
                                    std::pair{"Peak memory", rows_of(bench, peak)}}) {
    page.heading(title);
    page.table(rows[0], {rows.begin() + 1, rows.end()});
  }
  for (const LengthSeries& series : bench.series) page.paragraph(series.model + ": " + growth(series));
  std::string lines;
  for (const std::string& note : notes) lines += note + '\n';
  page.heading("Machine");
  page.preformatted(lines);
  return page.html();
}

}  // namespace eddy
