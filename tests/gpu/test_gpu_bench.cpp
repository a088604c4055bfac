// Measurements of a GPU: its clock, and the profile of a step. What they say on the emulated one means
// nothing; that they say it, and that nothing is lost, does.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cuda/runtime/device.h"
#include "ops/core/device_clock.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/error.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/tiny_bench.h"
#include "train/app/measure/generate.h"
#include "train/app/measure/ops.h"
#include "train/app/measure/speed.h"
#include "train/app/measure/step.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::gpu_test;

namespace {

StepBenchOptions tiny_step() {
  StepBenchOptions options = test::tiny_step();
  options.steps = 2;
  options.product_size = 16;
  options.memory_bytes = 1 << 12;
  options.device = "cuda";
  return options;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("the GPU's clock tells the time between marks and begins anew when cleared") {
    const auto clock = device_clock(gpu());
    REQUIRE(clock != nullptr);
    const Tensor x = to_gpu(Tensor::full({1000}, 0.5));
    CHECK(clock->stamp() == 0);
    static_cast<void>(exp(x));
    CHECK(clock->stamp() == 1);
    const double seconds = clock->seconds(0, 1);
    CHECK(seconds > 0);
    CHECK(std::isfinite(seconds));
    clock->clear();
    CHECK(clock->stamp() == 0);
    CHECK(device_clock(kCpu) == nullptr);
  }

  TEST_CASE("a step on a GPU is measured as it is replayed and profiled kernel by kernel") {
    for (const char* precision : {"f32", "bf16"}) {
      CAPTURE(precision);
      StepBenchOptions options = tiny_step();
      options.precision = precision;
      options.profile = true;
      const StepBench bench = bench_step(options);
      CHECK(bench.captured);
      CHECK(bench.message == "");
      CHECK(std::isfinite(bench.loss));
      double flops = 0, by_op = 0, by_module = 0;
      for (const ProfileRow& row : bench.by_op) {
        flops += row.flops;
        by_op += row.total();
        CHECK(row.kernels <= row.total() * (1 + 1e-9));
      }
      for (const ProfileRow& row : bench.by_module) by_module += row.total();
      CHECK(by_op > 0);
      CHECK(by_op == doctest::Approx(by_module));
      CHECK(flops == doctest::Approx(2 * bench.flops_per_token * bench.tokens()));
      CHECK(to_text(measurement_of(bench)).find("cuda (graph)") != std::string::npos);
      CHECK(bench.alone.problem == "");
      CHECK(bench.alone.products.flops + bench.alone.attention.flops ==
            doctest::Approx(bench.flops_per_token * bench.tokens()));
      CHECK(bench.alone.products.time.median > 0);
      CHECK(bench.alone.attention.time.median > 0);

      options.profile = options.capture = false;
      const StepBench plain = bench_step(options);
      CHECK(!plain.captured);
      CHECK(plain.by_op.empty());
    }
  }

  TEST_CASE("ops on a GPU are measured with what a copy and a product reach in the same run") {
    OpsBenchOptions options;
    options.device = gpu();
    options.filter = "cast";
    options.seconds = 0;
    options.host_ops = 8;
    options.optimizer_parameters = 10'000;
    options.ceilings.bytes = {1 << 12};
    options.gpu.product_size = 16;
    options.gpu.runs = 2;
    const Measurement bench = bench_ops(options);
    const nlohmann::json json = to_json(bench);
    REQUIRE(json["ops"].size() == 1);
    CHECK(json["ops"][0]["refused"] == "");
    CHECK(json["ops"][0]["gbs"] > 0);
    CHECK(json["ops"][0]["backward_ms"] >= 0);
    CHECK(json["optimizer"]["adamw_ms"] > 0);
    CHECK(json["gpu"]["products"].size() == 15);
    for (const nlohmann::json& row : json["gpu"]["products"]) {
      CAPTURE(row["layer"]);
      for (const char* rate : {"product_tflops", "linear_tflops", "linear_backward_tflops"})
        CHECK(row[rate] > 0);
    }
    CHECK(to_text(bench).find("over 10000 parameters: AdamW") != std::string::npos);
  }

  TEST_CASE("generation on a GPU is measured as it is replayed and says where it is not") {
    GenerateBenchOptions options;
    options.configs = {"shakespeare_unit", "cifar_regular"};
    options.min_length = 3;
    options.max_length = 4;
    options.batch = 2;
    options.device = "cuda";
    options.seconds = 0;
    options.ceilings.product = 16;
    options.ceilings.bytes = {1 << 12};
    const nlohmann::json series = to_json(bench_generate(options))["series"];
    REQUIRE(series.size() == 2);
    CHECK(series[0]["captured"] == true);
    CHECK(series[0]["message"] == "");
    CHECK(series[1]["captured"] == false);
    CHECK(series[1]["message"].get<std::string>().find("uncaptured") != std::string::npos);
    for (const nlohmann::json& one : series) CHECK(one["points"].back()["token_ms"]["median"] > 0);
  }

  TEST_CASE("the products of a step of the unit recurrence are seen within its chain") {
    StepBenchOptions options = tiny_step();
    options.model.model = "unit_forget";
    options.model.positions = false;
    options.precision = "bf16";
    StepTrial trial(options, choose_device_precision({"", "", ""}, "cuda", "bf16"));
    const StepCalls calls = record_calls(trial, gpu());
    CHECK(calls.products.size() > 8 * static_cast<std::size_t>(trial.sequence() - 1));
    CHECK(calls.attention.empty());
    const StepAlone alone = time_alone(calls, gpu(), 0);
    CHECK(alone.problem == "");
    CHECK(alone.products.time.median > 0);
    CHECK(alone.products.flops == doctest::Approx(calls.flops).epsilon(0.1));
  }

  TEST_CASE("a GPU says how many clusters of blocks it holds at once") {
    synchronize(gpu());
    std::string why_none;
    const std::vector<cuda::DeviceInfo> found = cuda::devices(&why_none);
    REQUIRE(!found.empty());
    const std::string line = cuda::clusters(found.front());
    CAPTURE(line);
    CHECK(line.starts_with("gpu clusters: "));
    CHECK(line.find("unknown") == std::string::npos);
    if (kEmulated) {
      CHECK(
          line ==
          "gpu clusters: 0 of 2 blocks, 0 of 4 blocks, 0 of 8 blocks, 0 of 16 blocks at once (a block has 99 "
          "KiB of shared memory)");
      cuda::DeviceInfo older = found.front();
      older.major = 8;
      CHECK(cuda::clusters(older).find("none (compute capability 9.0") != std::string::npos);
    }
  }

  TEST_CASE("every row of the speed table is replayed from a graph on a GPU in bf16") {
    namespace fs = std::filesystem;
    SpeedOptions options;
    options.scale = "small";
    options.device = "cuda";
    options.runs = (fs::temp_directory_path() / "eddy_gpu_speed").string();
    options.product_size = 16;
    // One of each recurrence where all of them take half a minute.
    if (kEmulated)
      options.rows = {"rec_fixed_skip", "unit_256", "staircase_algorithm", "memory_llama", "copy_4128"};
    const std::vector<SpeedResult> results = bench_speed(options, [](std::string_view) {});
    CHECK(results.size() == (kEmulated ? options.rows.size() : speed_rows(true).size()));
    for (const SpeedResult& result : results) {
      CAPTURE(result.row.name);
      CHECK(result.failure == "");
      REQUIRE(result.bench.has_value());
      CHECK(result.bench->captured);
      CHECK(result.bench->message == "");
      CHECK(result.bench->precision == "bf16");
    }
    fs::remove_all(options.runs);
  }
}
