// The benchmark by length: lengths double, every family comes along, memory that does not suffice ends one
// series and not the others, and text, JSON and page hold the numbers.
#include "train/bench/length.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tensor/tensor.h"

using namespace eddy;

namespace {

LengthBenchOptions quick() {
  LengthBenchOptions options;
  options.shortest = 32;
  options.longest = 128;
  options.dim = 32;
  options.seconds = 0;
  options.product_size = 32;
  return options;
}

const auto kIgnore = [](const LengthBench&) {};

}  // namespace

TEST_CASE("bench length doubles the segment for a model of each family and shows what it measured") {
  std::size_t kept = 0;
  const LengthBench bench = bench_length(quick(), [&kept](const LengthBench&) { ++kept; });
  REQUIRE(bench.series.size() == 6);
  CHECK(kept == 6 * 3);
  for (const LengthSeries& series : bench.series) {
    CAPTURE(series.model);
    CHECK(series.stopped == "");
    REQUIRE(series.points.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      const LengthPoint& point = series.points[i];
      CHECK(point.length == 32 << i);
      CHECK(point.step.median > 0);
      CHECK(point.floor > 0);
      CHECK(point.peak_bytes > 0);
    }
    // A quarter of the positions keeps less for the backward pass.
    CHECK(series.points[0].peak_bytes < series.points[2].peak_bytes);
  }
  const std::string text = to_text(measurement_of(bench));
  for (const char* part : {"memory_llama (blockwise_recurrent", "peak memory", "times the memory"})
    CHECK(text.find(part) != std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(to_json(measurement_of(bench)).dump());
  CHECK(json["series"][5]["model"] == "regular");
  CHECK(json["series"][5]["points"][2]["length"] == 128);
  const std::string page = to_html(measurement_of(bench));
  for (const char* part : {"<svg", "block_recurrent", "Peak memory"})
    CHECK(page.find(part) != std::string::npos);
}

TEST_CASE("bench length ends a model that does not fit and goes on with the next") {
  LengthBenchOptions options = quick();
  options.models = {"regular", "unit_forget"};
  const LengthBench free = bench_length(options, kIgnore);
  // Room for the regular model's shorter segments, and for all of the recurrent one's.
  options.memory_bytes = (free.series[0].points[1].peak_bytes + free.series[0].points[2].peak_bytes) / 2;
  REQUIRE(free.series[1].points[1].peak_bytes < options.memory_bytes);
  const LengthBench bench = bench_length(options, kIgnore);
  CHECK(bench.series[0].points.size() == 2);
  CHECK(bench.series[0].stopped.find("128 tokens do not fit") != std::string::npos);
  CHECK(bench.series[1].points.size() >= 2);
  CHECK(to_text(measurement_of(bench)).find("--memory-mib") != std::string::npos);
  // The limit is gone.
  CHECK(Tensor::zeros({options.memory_bytes / 4}).elements() == options.memory_bytes / 4);
}

TEST_CASE("bench length refuses unknown models and lengths that a model does not take") {
  LengthBenchOptions options = quick();
  options.models = {"unit_forgot"};
  CHECK_THROWS_WITH_AS(bench_length(options, kIgnore), doctest::Contains("nearest: unit_forget"),
                       ConfigError);
  options = quick();
  options.shortest = 40;  // no whole number of windows
  CHECK_THROWS_AS(bench_length(options, kIgnore), ConfigError);
  options = quick();
  options.longest = 31;
  CHECK_THROWS_WITH_AS(bench_length(options, kIgnore), doctest::Contains("from 32 to 31"), ValueError);
  options = quick();
  options.models.clear();
  CHECK_THROWS_AS(bench_length(options, kIgnore), ConfigError);
}
