// Which devices and precisions go together, and the errors for the others. Needs no GPU: a contradiction is
// refused before one is opened.
#include <doctest/doctest.h>

#include <string>

#include "ops/backends.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/isa_levels.h"
#include "train/app/exchange/dump.h"
#include "train/app/measure/generate.h"
#include "train/app/measure/step.h"
#include "train/config/run_config.h"
#include "train/run/checkpoint.h"
#include "train/run/trainer.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

namespace {

const DevicePrecisionNames kNames{"eval", "--device", "--precision"};

// Whether a CUDA build finds a GPU here; then a choice of cuda is no error.
bool has_gpu() {
  try {
    cuda_device();
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

RunConfig run_on(const std::string& device, const std::string& precision) {
  RunConfig config;
  config.train.device = device;
  config.train.precision = precision;
  return config;
}

}  // namespace

TEST_CASE("the CPU computes in f32 and bf16 and f64") {
  CHECK(choose_device_precision(kNames, "cpu", "f32").dtype == Dtype::f32);
  CHECK(choose_device_precision(kNames, "cpu", "f64").dtype == Dtype::f64);
  CHECK(choose_device_precision(kNames, "cpu", "f64").device == kCpu);
}

TEST_CASE(
    "bf16 on the CPU rounds the factors of f32 products, or at levels without them computes in tensors of bf16") {
  const KeepIsaLevel keep;
  const bool rounds = rounds_factors(best_isa_level());
  const DevicePrecision here = choose_device_precision(kNames, "cpu", "bf16");
  CHECK(here.dtype == (rounds ? Dtype::f32 : Dtype::bf16));
  CHECK(here.matmul == (rounds ? MatmulPrecision::bf16 : MatmulPrecision::f32));
  CHECK(choose_device_precision(kNames, "cpu", "f32").matmul == MatmulPrecision::f32);
  set_isa_level(best_exact_isa_level());
  const DevicePrecision below = choose_device_precision(kNames, "cpu", "bf16");
  CHECK(below.dtype == Dtype::bf16);
  CHECK(below.matmul == MatmulPrecision::f32);
}

TEST_CASE("tf32 on the CPU is refused with the precisions that it has") {
  CHECK(error_of<ConfigError>([] { choose_device_precision(kNames, "cpu", "tf32"); }) ==
        "eval: --precision is tf32 and --device cpu (tf32 is for a GPU; choose f32, bf16 or f64)");
  TrainRequest request;
  request.config = run_on("cpu", "tf32");
  request.run_dir = "unused";
  CHECK(error_of<ConfigError>([&] { train(request); }) ==
        "train: train.precision is tf32 and train.device cpu (tf32 is for a GPU; choose f32, bf16 or f64)");
}

TEST_CASE("f64 on a GPU is refused with the precisions that it has") {
  CHECK(error_of<ConfigError>([] { choose_device_precision(kNames, "cuda", "f64"); }) ==
        "eval: --precision is f64 and --device cuda (f64 is for the CPU; choose f32, tf32 or bf16)");
  TrainRequest request;
  request.config = run_on("cuda", "f64");
  request.run_dir = "unused";
  CHECK(error_of<ConfigError>([&] { train(request); }) ==
        "train: train.precision is f64 and train.device cuda (f64 is for the CPU; choose f32, tf32 or bf16)");
}

TEST_CASE("a device or precision that does not exist is refused by its name") {
  CHECK(error_of<ConfigError>([] { choose_device_precision(kNames, "tpu", "f32"); }) ==
        "eval: --device is \"tpu\" (cpu or cuda)");
  CHECK_THROWS_AS(choose_device_precision(kNames, "cpu", "f16"), ConfigError);
}

TEST_CASE("a GPU that cannot be used is refused with what to do") {
  if (has_gpu()) return;
  const std::string text = error_of<DeviceError>([] { choose_device_precision(kNames, "cuda", "f32"); });
  CAPTURE(text);
  CHECK(text.find("cuda: ") == 0);
  CHECK((text.find("-DEDDY_CUDA=ON") != std::string::npos || text.find("driver") != std::string::npos));
  StepBenchOptions step;
  step.device = "cuda";
  CHECK_THROWS_AS(bench_step(step), DeviceError);
  GenerateBenchOptions generate;
  generate.device = "cuda";
  CHECK_THROWS_AS(bench_generate(generate), DeviceError);
  DumpOptions dumped;
  dumped.case_dir = EDDY_SOURCE_DIR "/tests/golden/none";
  dumped.out = "unused";
  dumped.device = "cuda";
  dumped.precision = "f32";
  CHECK_THROWS_AS(dump(dumped), DeviceError);
  dumped.precision = "f64";
  CHECK_THROWS_AS(dump(dumped), ConfigError);
}

TEST_CASE("the values of precision, device and recomputation have one list of names each") {
  CHECK(value_choice<Precision>() == "f32, bf16, tf32 or f64");
  CHECK(value_choice<DeviceChoice>() == "cpu or cuda");
  CHECK(value_named<Precision>("tf32") == Precision::tf32);
  CHECK_FALSE(value_named<Precision>("f16"));
  CHECK(value_name(Recompute::block) == std::string("block"));
  TrainConfig train;
  KeyList keys;
  describe(keys, train);
  CHECK(keys.find("train", "precision")->allowed == value_names<Precision>());
  CHECK(keys.find("train", "device")->allowed == value_names<DeviceChoice>());
  CHECK(keys.find("train", "recompute")->allowed == value_names<Recompute>());
  CHECK(error_of<ConfigError>([] { precision_dtype("f16"); }) ==
        "config: train.precision is \"f16\" (f32, bf16, tf32 or f64)");
}
