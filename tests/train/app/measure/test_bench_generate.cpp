// The benchmark of generation: which lengths are measured, that states are constant or grow as they should,
// and that tables, JSON and page hold the numbers.
#include "train/app/measure/generate.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/base/error.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using nlohmann::json;

namespace {

GenerateBenchOptions quick_generation() {
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

json series_of(const GenerateBenchOptions& options) {
  return to_json(bench_generate(options))["series"];
}
std::int64_t bytes_of(const json& series, std::size_t point) {
  return series["points"][point]["state_bytes"];
}

}  // namespace

TEST_CASE("bench generate doubles the length and ends with the longest") {
  const json series = series_of(quick_generation());
  REQUIRE(series.size() == 3);
  for (const json& one : series) {
    CAPTURE(one["config"]);
    std::vector<std::int64_t> lengths;
    for (const json& point : one["points"]) {
      lengths.push_back(point["length"]);
      CHECK(point["token_ms"]["median"] > 0);
      CHECK(point["token_ms"]["best"] <= point["token_ms"]["median"]);
      CHECK(point["tokens_timed"] >= 3);
      CHECK(point["floor_ms"] > 0);
    }
    CHECK(lengths == std::vector<std::int64_t>{8, 16, 32, 50});
  }
}

TEST_CASE(
    "bench generate counts a constant state for recurrent models and a growing cache for the regular one") {
  const json series = series_of(quick_generation());
  constexpr std::int64_t kPosition = 8, kNumber = 4;
  for (std::size_t i = 0; i < 4; ++i) {
    // Keys and values of 4 layers of width 32, of the past and the token itself.
    CHECK(bytes_of(series[2], i) ==
          kPosition + kNumber * 2 * 4 * 32 * (series[2]["points"][i]["length"].get<std::int64_t>() + 1));
    for (std::size_t model : {0, 1}) CHECK(bytes_of(series[model], i) == bytes_of(series[model], 0));
  }
  CHECK(bytes_of(series[0], 0) <= kPosition + kNumber * 6 * 32 * 32);
  CHECK(series[0]["parameters"] == 53'664 - 1024 * 32);
  // What a token reads of the weights: of the token table with its 256 colours one row.
  CHECK(series[0]["weight_bytes"] == kNumber * (53'664 - 1024 * 32 - 256 * 32));
  CHECK(series[0]["captured"] == false);
  CHECK(series[0]["message"] == "");
}

TEST_CASE("bench generate takes several sequences side by side") {
  GenerateBenchOptions options = quick_generation();
  options.configs = {"cifar_block", "cifar_regular"};
  const json one = series_of(options);
  options.batch = 3;
  const Measurement three = bench_generate(options);
  const json several = to_json(three);
  constexpr std::int64_t kPosition = 8;
  for (std::size_t series : {0, 1})
    CHECK(bytes_of(several["series"][series], 1) - kPosition == 3 * (bytes_of(one[series], 1) - kPosition));
  CHECK(to_text(three).find("3 sequences") != std::string::npos);
  CHECK(several["batch"] == 3);
  options.batch = 0;
  CHECK_THROWS_WITH_AS(bench_generate(options), doctest::Contains("0 sequences"), ValueError);
}

TEST_CASE("bench generate takes configurations of several families through all tokens") {
  GenerateBenchOptions options = quick_generation();
  options.configs = {"blockwise_memory_shared_zero", "random_walk_staircase", "algorithm_lstm",
                     "blockwise_llama"};
  options.min_length = 20;
  options.max_length = 40;
  const json series = series_of(options);
  REQUIRE(series.size() == 4);
  for (const json& one : series) {
    CAPTURE(one["config"]);
    REQUIRE(one["points"].size() == 2);
    CHECK(one["points"][0]["length"] == 20);
    CHECK(one["points"][1]["length"] == 40);
    CHECK(bytes_of(one, 1) > 0);
  }
  // A state of one size, beside a cache of all keys, of which the filled rows count.
  CHECK(bytes_of(series[2], 0) == bytes_of(series[2], 1));
  CHECK(bytes_of(series[3], 0) < bytes_of(series[3], 1));
  // All weights but the table of 26 tokens of width 256.
  CHECK(series[2]["weight_bytes"] == 4 * (series[2]["parameters"].get<std::int64_t>() - 26 * 256));
}

TEST_CASE("bench generate shows its numbers as text and a page") {
  GenerateBenchOptions options = quick_generation();
  options.configs = {"cifar_block"};
  const Measurement bench = bench_generate(options);
  const std::string text = to_text(bench), page = to_html(bench);
  for (const char* part : {"cifar_block: block_forget, 1 layer", "milliseconds per token", "floor", "state"})
    CHECK(text.find(part) != std::string::npos);
  for (const char* part : {"<svg", "tokens before", "Time of a token", "Tokens per second", ">State<"})
    CHECK(page.find(part) != std::string::npos);
}

TEST_CASE("bench generate refuses unknown configurations and lengths that make no sense") {
  GenerateBenchOptions options = quick_generation();
  options.configs = {"no_such"};
  CHECK_THROWS_WITH_AS(bench_generate(options), doctest::Contains("no_such"), ConfigError);
  options.configs.clear();
  CHECK_THROWS_AS(bench_generate(options), ConfigError);
  options = quick_generation();
  options.max_length = 7;
  CHECK_THROWS_WITH_AS(bench_generate(options), doctest::Contains("from 8 to 7"), ValueError);
  options = quick_generation();
  options.min_length = 0;
  CHECK_THROWS_AS(bench_generate(options), ValueError);
  options = quick_generation();
  options.seconds = -1;
  CHECK_THROWS_AS(bench_generate(options), ValueError);
}

TEST_CASE("bench generate says which of its options to lower where a model does not fit") {
  GenerateBenchOptions options = quick_generation();
  options.memory_bytes = std::int64_t{32} << 20;
  options.configs = {"cifar_regular"};
  options.min_length = options.max_length = 1 << 20;
  CHECK_THROWS_WITH_AS(bench_generate(options), doctest::Contains("lower --max-length or --batch"),
                       OutOfMemoryError);
  // What was measured is kept.
  options.configs = {"shakespeare_unit", "cifar_regular"};
  const Measurement bench = bench_generate(options);
  const json kept = to_json(bench);
  REQUIRE(kept["series"].size() == 1);
  CHECK(kept["series"][0]["config"] == "shakespeare_unit");
  CHECK(kept["left_out"].size() == 1);
  CHECK(to_text(bench).find("cifar_regular at length") != std::string::npos);
}
