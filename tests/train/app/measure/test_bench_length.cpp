// The benchmark by length: lengths double, every family comes along, memory that does not suffice ends one
// series and not the others, and text, JSON and page hold the numbers.
#include "train/app/measure/length.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tensor/tensor.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using nlohmann::json;

namespace {

LengthBenchOptions quick_lengths() {
  LengthBenchOptions options;
  options.shortest = 32;
  options.longest = 128;
  options.dim = 32;
  options.seconds = 0;
  options.product_size = 32;
  return options;
}

const auto kIgnore = [](const Measurement&) {};

std::int64_t peak_of(const json& series, std::size_t point) {
  return series["points"][point]["peak_bytes"];
}

}  // namespace

TEST_CASE("bench length doubles the segment for a model of each family and shows what it measured") {
  std::size_t kept = 0;
  const Measurement bench = bench_length(quick_lengths(), [&kept](const Measurement&) { ++kept; });
  const json series = to_json(bench)["series"];
  REQUIRE(series.size() == 6);
  CHECK(kept == 6 * 3);
  for (const json& one : series) {
    CAPTURE(one["model"]);
    CHECK(one["stopped"] == "");
    REQUIRE(one["points"].size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(one["points"][i]["length"] == 32 << i);
      CHECK(one["points"][i]["step_ms"]["median"] > 0);
      CHECK(one["points"][i]["floor_ms"] > 0);
      CHECK(peak_of(one, i) > 0);
    }
    // A quarter of the positions keeps less for the backward pass.
    CHECK(peak_of(one, 0) < peak_of(one, 2));
  }
  CHECK(series[5]["model"] == "regular");
  const std::string text = to_text(bench), page = to_html(bench);
  for (const char* part : {"memory_llama (blockwise_recurrent", "peak memory", "times the memory"})
    CHECK(text.find(part) != std::string::npos);
  for (const char* part : {"<svg", "block_recurrent", "Peak memory"})
    CHECK(page.find(part) != std::string::npos);
}

TEST_CASE("bench length ends a model that does not fit and goes on with the next") {
  LengthBenchOptions options = quick_lengths();
  options.models = {"regular", "unit_forget"};
  const json free = to_json(bench_length(options, kIgnore))["series"];
  // Room for the regular model's shorter segments, and for all of the recurrent one's.
  options.memory_bytes = (peak_of(free[0], 1) + peak_of(free[0], 2)) / 2;
  REQUIRE(peak_of(free[1], 1) < options.memory_bytes);
  const Measurement bench = bench_length(options, kIgnore);
  const json series = to_json(bench)["series"];
  CHECK(series[0]["points"].size() == 2);
  CHECK(series[0]["stopped"].get<std::string>().find("128 tokens do not fit") != std::string::npos);
  CHECK(series[1]["points"].size() >= 2);
  CHECK(to_text(bench).find("--memory-mib") != std::string::npos);
  // The limit is gone.
  CHECK(Tensor::zeros({options.memory_bytes / 4}).elements() == options.memory_bytes / 4);
}

TEST_CASE("bench length says when there are too few lengths to tell growth") {
  LengthBenchOptions options = quick_lengths();
  options.models = {"regular"};
  options.longest = 64;
  const std::string text = to_text(bench_length(options, kIgnore));
  CHECK_MESSAGE(
      text.find("fewer than three lengths tell no growth (a larger --longest)") != std::string::npos, text);
  CHECK_MESSAGE(text.find("linear growth") == std::string::npos, text);
}

TEST_CASE("bench length refuses unknown models and lengths that a model does not take") {
  LengthBenchOptions options = quick_lengths();
  options.models = {"unit_forgot"};
  CHECK_THROWS_WITH_AS(bench_length(options, kIgnore), doctest::Contains("nearest: unit_forget"),
                       ConfigError);
  options = quick_lengths();
  options.shortest = 40;  // no whole number of windows
  CHECK_THROWS_AS(bench_length(options, kIgnore), ConfigError);
  options = quick_lengths();
  options.longest = 31;
  CHECK_THROWS_WITH_AS(bench_length(options, kIgnore), doctest::Contains("from 32 to 31"), ValueError);
  options = quick_lengths();
  options.models.clear();
  CHECK_THROWS_AS(bench_length(options, kIgnore), ConfigError);
}
