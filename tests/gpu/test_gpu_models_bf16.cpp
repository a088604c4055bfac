// Training in bf16 on the GPU follows training in f32 there: 200 steps of a model of every name on the same
// batches, without captures. Prints one table.
#include <doctest/doctest.h>

#include <cstdio>

#include "ops/product/gemm.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/models/bf16_models.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::detail;
using namespace eddy::gpu_test;

namespace {

int products = 0, finer = 0;  // of f32, and those of them that may not round to TF32
void (*uncounted)(const GemmArgs&) = nullptr;
void counted(const GemmArgs& args) {
  if (args.dtype == Dtype::f32) {
    ++products;
    if (args.precision == MatmulPrecision::f32) ++finer;
  }
  uncounted(args);
}

}  // namespace

TEST_SUITE("device") {
  // Means of 20 steps, since the loss of one batch says little; TF32 as in train.precision = "bf16".
  TEST_CASE("the loss of every model in bf16 stays within 1 percent of that in f32 for 200 steps") {
    const int steps = kEmulated ? 2 : 200;
    const std::size_t window = kEmulated ? 1 : 20;
    std::printf("\n%-24s %8s %8s %16s\n", "bf16 against f32", "first", "last", "difference, %");
    for (const ModelConfig& config : test::bf16_configs()) {
      CAPTURE(config.model);
      CAPTURE(config.gate);
      const std::vector<double> want = test::train_in(config, Dtype::f32, steps, gpu());
      const std::vector<double> got =
          test::train_in(config, Dtype::bf16, steps, gpu(), MatmulPrecision::tf32);
      const double worst = test::loss_difference(got, want, window);
      std::printf("%-24s %8.4f %8.4f %16.3f\n", config.model.c_str(), want.front(), want.back(), 100 * worst);
      CHECK(worst <= 0.01);
      CHECK(!std::isnan(worst));
      if (!kEmulated) CHECK(want.back() < want.front());
    }
  }

  TEST_CASE("every product of f32 in a model takes the precision of the parameters") {
    auto& function = gemm_slot.function[static_cast<int>(DeviceType::cuda)];
    uncounted = function;
    function = counted;
    for (const ModelConfig& config : test::bf16_configs())
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        CAPTURE(config.model);
        CAPTURE(config.gate);
        CAPTURE(dtype_name(dtype));
        products = finer = 0;
        static_cast<void>(test::train_in(config, dtype, 2, gpu(), MatmulPrecision::tf32));
        CHECK((dtype == Dtype::bf16 || products > 0));
        CHECK(finer == 0);
      }
    function = uncounted;
  }
}
