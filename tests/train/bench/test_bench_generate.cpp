// The benchmark of generation: which lengths are measured, that states are constant or grow as they should,
// and that tables, JSON and page hold the numbers.
#include "train/bench/generate.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"

using namespace eddy;

namespace {

GenerateBenchOptions quick() {
  GenerateBenchOptions options;
  options.configs = {"cifar_block", "copy", "cifar_regular"};
  options.min_length = 8;
  options.max_length = 50;
  options.seconds = 0;
  options.ceilings.product = 32;
  options.ceilings.bytes_per_thread = {1 << 12};
  options.ceilings.bytes = {1 << 16};
  return options;
}

}  // namespace

TEST_CASE("bench generate doubles the length and ends with the longest") {
  const GenerateBench bench = bench_generate(quick());
  REQUIRE(bench.series.size() == 3);
  for (const GenerateSeries& series : bench.series) {
    CAPTURE(series.config);
    std::vector<std::int64_t> lengths;
    for (const GeneratePoint& point : series.points) {
      lengths.push_back(point.length);
      CHECK(point.token.median > 0);
      CHECK(point.token.best <= point.token.median);
      CHECK(point.token.runs >= 3);
      CHECK(point.floor > 0);
    }
    CHECK(lengths == std::vector<std::int64_t>{8, 16, 32, 50});
  }
}

TEST_CASE(
    "bench generate counts a constant state for recurrent models and a growing cache for the regular one") {
  const GenerateBench bench = bench_generate(quick());
  constexpr std::int64_t kPosition = 8, kNumber = 4;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& regular = bench.series[2].points[i];
    // Keys and values of 4 layers of width 32, of the past and the token itself.
    CHECK(regular.state_bytes == kPosition + kNumber * 2 * 4 * 32 * (regular.length + 1));
    for (std::size_t model : {0, 1})
      CHECK(bench.series[model].points[i].state_bytes == bench.series[model].points[0].state_bytes);
  }
  CHECK(bench.series[0].points[0].state_bytes <= kPosition + kNumber * 6 * 32 * 32);
  CHECK(bench.series[0].parameters == 53'664 - 1024 * 32);
  // What a token reads of the weights: of the token table with its 256 colours one row.
  CHECK(bench.series[0].weight_bytes == kNumber * (53'664 - 1024 * 32 - 256 * 32));
  CHECK(!bench.series[0].captured);
  CHECK(bench.series[0].message == "");
}

TEST_CASE("bench generate takes several sequences side by side") {
  GenerateBenchOptions options = quick();
  options.configs = {"cifar_block", "cifar_regular"};
  options.batch = 3;
  const GenerateBench one = bench_generate([] {
    GenerateBenchOptions single = quick();
    single.configs = {"cifar_block", "cifar_regular"};
    return single;
  }());
  const GenerateBench three = bench_generate(options);
  constexpr std::int64_t kPosition = 8;
  for (std::size_t series : {0, 1}) {
    const GeneratePoint &single = one.series[series].points[1], &triple = three.series[series].points[1];
    CHECK(triple.state_bytes - kPosition == 3 * (single.state_bytes - kPosition));
  }
  CHECK(to_text(measurement_of(three)).find("3 sequences") != std::string::npos);
  CHECK(to_json(measurement_of(three))["batch"] == 3);
  options.batch = 0;
  CHECK_THROWS_WITH_AS(bench_generate(options), doctest::Contains("0 sequences"), ValueError);
}

TEST_CASE("bench generate takes configurations of several families through all tokens") {
  GenerateBenchOptions options = quick();
  options.configs = {"blockwise_memory_shared_zero", "random_walk_staircase", "algorithm_lstm",
                     "blockwise_llama"};
  options.min_length = 20;
  options.max_length = 40;
  const GenerateBench bench = bench_generate(options);
  REQUIRE(bench.series.size() == 4);
  for (const GenerateSeries& series : bench.series) {
    CAPTURE(series.config);
    REQUIRE(series.points.size() == 2);
    CHECK(series.points[0].length == 20);
    CHECK(series.points[1].length == 40);
    CHECK(series.points[1].state_bytes > 0);
  }
  // A state of one size, beside a cache of all keys, of which the filled rows count.
  CHECK(bench.series[2].points[0].state_bytes == bench.series[2].points[1].state_bytes);
  CHECK(bench.series[3].points[0].state_bytes < bench.series[3].points[1].state_bytes);
  // All weights but the table of 26 tokens of width 256.
  CHECK(bench.series[2].weight_bytes == 4 * (bench.series[2].parameters - 26 * 256));
}

TEST_CASE("bench generate shows its numbers as text and JSON and a page") {
  GenerateBenchOptions options = quick();
  options.configs = {"cifar_block"};
  const GenerateBench bench = bench_generate(options);
  const std::string text = to_text(measurement_of(bench));
  for (const char* part : {"cifar_block: block_forget, 1 layer", "milliseconds per token", "floor", "state"})
    CHECK(text.find(part) != std::string::npos);
  const nlohmann::json json = to_json(measurement_of(bench));
  CHECK(json["series"][0]["points"].size() == 4);
  CHECK(json["series"][0]["points"][3]["length"] == 50);
  const std::string page = to_html(measurement_of(bench));
  for (const char* part : {"<svg", "cifar_block", "tokens before", "Time of a token", "milliseconds",
                           "Tokens per second", ">State<", "Machine"})
    CHECK(page.find(part) != std::string::npos);
}

TEST_CASE("bench generate refuses unknown configurations and lengths that make no sense") {
  GenerateBenchOptions options = quick();
  options.configs = {"no_such"};
  CHECK_THROWS_WITH_AS(bench_generate(options), doctest::Contains("no_such"), ConfigError);
  options.configs.clear();
  CHECK_THROWS_AS(bench_generate(options), ConfigError);
  options = quick();
  options.max_length = 7;
  CHECK_THROWS_WITH_AS(bench_generate(options), doctest::Contains("from 8 to 7"), ValueError);
  options = quick();
  options.min_length = 0;
  CHECK_THROWS_AS(bench_generate(options), ValueError);
  options = quick();
  options.seconds = -1;
  CHECK_THROWS_AS(bench_generate(options), ValueError);
}

TEST_CASE("bench generate says which of its options to lower where a model does not fit") {
  struct Unlimited {
    ~Unlimited() { allocator(kCpu).set_limit(0); }
  } const guard;
  allocator(kCpu).set_limit(allocator(kCpu).stats().live_bytes + (std::int64_t{32} << 20));
  GenerateBenchOptions options = quick();
  options.configs = {"cifar_regular"};
  options.min_length = options.max_length = 1 << 20;
  CHECK_THROWS_WITH_AS(bench_generate(options), doctest::Contains("lower --max-length or --batch"),
                       OutOfMemoryError);
  // What was measured is kept.
  options.configs = {"shakespeare_unit", "cifar_regular"};
  const GenerateBench bench = bench_generate(options);
  REQUIRE(bench.series.size() == 1);
  CHECK(bench.series[0].config == "shakespeare_unit");
  REQUIRE(bench.left_out.size() == 1);
  CHECK(to_text(measurement_of(bench)).find("cifar_regular at length") != std::string::npos);
}
