// Timing the next token at many lengths, and the tables and plots of it.
#include "train/bench_generate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/model.h"
#include "ops/backends.h"
#include "tensor/format.h"
#include "tensor/philox.h"
#include "tensor/thread_pool.h"
#include "train/html_page.h"
#include "train/human_text.h"
#include "train/placement.h"
#include "train/run_config.h"

namespace eddy {
namespace {

constexpr std::uint64_t kSeed = 1337;
constexpr std::int64_t kLeastTokens = 3;
constexpr std::int64_t kMostLength = std::int64_t{1} << 24;

NamedConfig find_config(const std::string& name) {
  std::string known;
  for (const NamedConfig& named : paper_configs()) {
    if (named.name == name) return named;
    known += (known.empty() ? "" : ", ") + named.name;
  }
  fail<ConfigError>("bench generate: there is no configuration '{}' (one of {})", name, known);
}

std::vector<std::int64_t> lengths_of(const GenerateBenchOptions& options) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = options.min_length; length < options.max_length; length *= 2)
    lengths.push_back(length);
  lengths.push_back(options.max_length);
  return lengths;
}

// Values in [-1, 1): one row of them, copied to all others, so that a gigabyte is filled at the speed of
// memory.
void fill_random(const Tensor& cache, const char* stream) {
  constexpr std::int64_t kPattern = 1 << 16;
  const RandomKey key = random_key(kSeed, stream, 0);
  const std::int64_t first = std::min(cache.elements(), kPattern);
  const bool on_cpu = cache.device() == kCpu;
  const Tensor host = on_cpu ? cache : Tensor::empty(cache.shape());
  float* const values = host.data<float>();
  for (std::int64_t i = 0; i < first; ++i)
    values[i] = 2 * uniform01(key.word(static_cast<std::uint64_t>(i))) - 1;
  for (std::int64_t i = first; i < cache.elements(); i += first)
    std::copy_n(values, std::min(first, cache.elements() - i), values + i);
  if (!on_cpu) raw::copy_into(cache, raw::to_device(host, cache.device()));
}

// A model and what it carries: a cache filled to the end, or the state after some blocks.
class LongStream {
 public:
  LongStream(const ModelConfig& config, std::int64_t max_length, Device device)
      : model_(make_model(config, Dtype::f32, device)),
        room_(config.context),
        token_(Tensor::zeros({1, 1}, Dtype::i32, device)) {
    model_->params().initialize(kSeed);
    static_cast<void>(model_->stream(token_, state_));
    for (const auto& [name, tensor] : state_) {
      if (!is_cache(tensor)) continue;
      fill_random(tensor, name.c_str());
      cached_ = true;
    }
    for (std::int64_t i = 1; !cached_ && i < 3 * block() && i < max_length; ++i)
      static_cast<void>(model_->stream(token_, state_));
  }

  const Model& model() const { return *model_; }

  // Seconds of one token after `length` others, and the most bytes of state; a model with blocks is timed
  // over one whole block.
  std::pair<double, std::int64_t> time_token(std::int64_t length) {
    State state = at(length);
    const std::int64_t tokens = cached_ ? 1 : block();
    std::int64_t bytes = 0;
    double seconds = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
      synchronize(token_.device());
      const BenchClock::time_point start = BenchClock::now();
      static_cast<void>(model_->stream(token_, state));
      synchronize(token_.device());
      seconds += elapsed_seconds(start);
      bytes = std::max(bytes, state.bytes());
    }
    return {seconds / static_cast<double>(tokens), bytes};
  }

 private:
  std::int64_t block() const { return model_->config().block; }

  // The state with some `length` tokens behind it and room for one more in its caches; the place inside a
  // block stays what it is.
  State at(std::int64_t length) const {
    State state;
    for (const auto& [name, tensor] : state_)
      state.set(name, is_cache(tensor) ? raw::narrow(tensor, 1, 0, length + 1) : tensor);
    const std::int64_t place = state_.get("position").item_int() % block();
    const std::int64_t position = cached_ ? length : length - length % block() + place;
    state.set("position", raw::to_device(Tensor::from(std::vector<std::int64_t>{position}, {1}),
                                         state_.get("position").device()));
    return state;
  }

  // Of one row for each position: [batch, context, width].
  bool is_cache(const Tensor& tensor) const { return tensor.rank() == 3 && tensor.dim(1) == room_; }

  std::unique_ptr<Model> model_;
  std::int64_t room_;
  Tensor token_;
  State state_;
  bool cached_ = false;
};

GenerateSeries measure_config(const std::string& name, const std::vector<std::int64_t>& lengths,
                              double seconds, Device device) {
  const NamedConfig named = find_config(name);
  ModelConfig config = named.config;
  if (config.family != "recurrent_transformer")
    fail<ConfigError>("bench generate: {} is of the family {} (a configuration of recurrent_transformer)",
                      name, config.family);
  if (config.vocab == 0) config.vocab = 65;
  config.context = lengths.back() + 2 * config.block;
  LongStream stream(config, lengths.back(), device);

  GenerateSeries series;
  series.config = name;
  series.model = config.model;
  series.layers = config.layers;
  series.parameters = stream.model().params().count() - (config.positions ? config.context * config.dim : 0);
  for (const std::int64_t length : lengths) {
    GeneratePoint point;
    point.length = length;
    static_cast<void>(stream.time_token(length));
    std::vector<double> times;
    const BenchClock::time_point start = BenchClock::now();
    while (static_cast<std::int64_t>(times.size()) < kLeastTokens || elapsed_seconds(start) < seconds) {
      const auto [time, bytes] = stream.time_token(length);
      times.push_back(time);
      point.state_bytes = std::max(point.state_bytes, bytes);
    }
    point.token = timing_of(std::move(times));
    series.points.push_back(point);
  }
  return series;
}

// One row for each length: what `cell` says of every series.
template <class Cell>
std::vector<std::vector<std::string>> rows_of(const GenerateBench& bench, Cell&& cell) {
  std::vector<std::vector<std::string>> rows;
  const std::size_t count = bench.series.empty() ? 0 : bench.series[0].points.size();
  for (std::size_t i = 0; i < count; ++i) {
    rows.push_back({grouped(bench.series[0].points[i].length)});
    for (const GenerateSeries& series : bench.series) rows.back().push_back(cell(series.points[i]));
  }
  return rows;
}

std::vector<std::string> head_of(const GenerateBench& bench, const std::string& first) {
  std::vector<std::string> head{first};
  for (const GenerateSeries& series : bench.series) head.push_back(series.config);
  return head;
}

template <class Value>
Chart chart_of(const GenerateBench& bench, std::string title, std::string y_title, Value&& value) {
  Chart chart;
  chart.title = std::move(title);
  chart.x_title = "tokens before";
  chart.y_title = std::move(y_title);
  chart.log_x = chart.log_y = true;
  for (const GenerateSeries& series : bench.series) {
    Series line;
    line.name = series.config;
    line.style = SeriesStyle::line_points;
    for (const GeneratePoint& point : series.points) {
      line.x.push_back(static_cast<double>(point.length));
      line.y.push_back(value(point));
    }
    chart.series.push_back(std::move(line));
  }
  return chart;
}

std::string milliseconds(const GeneratePoint& point) {
  return table_number(point.token.median * 1e3);
}
std::string rate(const GeneratePoint& point) {
  return table_number(1 / point.token.median);
}
std::string bytes(const GeneratePoint& point) {
  return human_bytes(point.state_bytes);
}

// "one sequence, f32, random weights, 2 threads".
std::string conditions(const GenerateBench& bench) {
  return fmt::format("one sequence, f32, random weights, {}{} thread{}",
                     bench.device == "cuda" ? "cuda, " : "", bench.threads, bench.threads == 1 ? "" : "s");
}

// "shakespeare_regular_6: regular, 6 layers, 10 646 784 parameters …".
std::string describe(const GenerateSeries& series) {
  return fmt::format("{}: {}, {} layer{}, {} parameters without positions", series.config, series.model,
                     series.layers, series.layers == 1 ? "" : "s", grouped(series.parameters));
}

}  // namespace

GenerateBench bench_generate(const GenerateBenchOptions& options) {
  if (options.min_length < 1 || options.max_length < options.min_length || options.max_length > kMostLength)
    fail<ValueError>("bench generate: lengths from {} to {} (1 <= shortest <= longest <= {})",
                     options.min_length, options.max_length, kMostLength);
  if (!(options.seconds >= 0) || !std::isfinite(options.seconds))
    fail<ValueError>("bench generate: {} seconds (at least 0)", options.seconds);
  if (options.configs.empty()) fail<ConfigError>("bench generate: no configurations (at least one)");
  for (const std::string& name : options.configs) static_cast<void>(find_config(name));

  const Device device =
      choose_placement({"bench generate", "--device", "--precision"}, options.device, "f32").device;
  const std::vector<std::int64_t> lengths = lengths_of(options);
  GenerateBench bench;
  bench.device = options.device;
  bench.threads = thread_count();
  const double each = options.seconds / static_cast<double>(lengths.size() * options.configs.size());
  for (const std::string& name : options.configs)
    bench.series.push_back(measure_config(name, lengths, each, device));
  return bench;
}

std::string to_text(const GenerateBench& bench) {
  std::string text = "generation, " + conditions(bench) + '\n';
  for (const GenerateSeries& series : bench.series) text += describe(series) + '\n';
  const auto table = [&](const char* title, const std::string& first, auto&& cell) {
    std::vector<std::vector<std::string>> rows = rows_of(bench, cell);
    rows.insert(rows.begin(), head_of(bench, first));
    text += fmt::format("\n{}\n{}", title, text_table(rows));
  };
  table("milliseconds per token (median)", "tokens before", milliseconds);
  table("tokens per second", "tokens before", rate);
  table("state", "tokens before", bytes);
  return text;
}

nlohmann::json to_json(const GenerateBench& bench) {
  nlohmann::json list = nlohmann::json::array();
  for (const GenerateSeries& series : bench.series) {
    nlohmann::json points = nlohmann::json::array();
    for (const GeneratePoint& point : series.points)
      points.push_back(
          {{"length", point.length},
           {"token_ms", {{"median", point.token.median * 1e3}, {"best", point.token.best * 1e3}}},
           {"tokens_per_second", 1 / point.token.median},
           {"tokens_timed", point.token.runs},
           {"state_bytes", point.state_bytes}});
    list.push_back({{"config", series.config},
                    {"model", series.model},
                    {"layers", series.layers},
                    {"parameters", series.parameters},
                    {"points", points}});
  }
  return {{"device", bench.device}, {"threads", bench.threads}, {"series", list}};
}

std::string to_html(const GenerateBench& bench, const std::vector<std::string>& notes) {
  HtmlPage page("The cost of the next token", conditions(bench));
  std::vector<Tile> tiles;
  for (const GenerateSeries& series : bench.series) {
    const GeneratePoint &first = series.points.front(), &last = series.points.back();
    tiles.push_back({series.config, milliseconds(last) + " ms",
                     fmt::format("a token after {}; {} ms after {}", grouped(last.length),
                                 milliseconds(first), grouped(first.length))});
  }
  page.tiles(tiles);
  page.paragraph(
      "A recurrent model carries a state of one size, so its next token costs the same after any length. The "
      "regular transformer reads the keys and values of all tokens before. Long pasts were not computed: the "
      "cache was filled with random numbers and the tokens after it were timed.");
  page.chart(chart_of(bench, "Time of a token", "ms",
                      [](const GeneratePoint& point) { return point.token.median * 1e3; }));
  page.charts({chart_of(bench, "Tokens per second", "tokens/s",
                        [](const GeneratePoint& point) { return 1 / point.token.median; }),
               chart_of(bench, "State", "bytes",
                        [](const GeneratePoint& point) { return static_cast<double>(point.state_bytes); })});
  for (const GenerateSeries& series : bench.series) {
    page.heading(describe(series));
    std::vector<std::vector<std::string>> rows;
    for (const GeneratePoint& point : series.points)
      rows.push_back({grouped(point.length), milliseconds(point), table_number(point.token.best * 1e3),
                      rate(point), bytes(point), grouped(point.token.runs)});
    page.table({"tokens before", "ms, median", "ms, best", "tokens/s", "state", "tokens timed"}, rows);
  }
  std::string lines;
  for (const std::string& note : notes) lines += note + '\n';
  page.heading("Machine");
  page.preformatted(lines);
  return page.html();
}

}  // namespace eddy
