// Fused products on the emulated GPU: what they launch, where their bits lie, and what happens where cuBLASLt
// has no algorithm for them.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "cuda/runtime/context.h"
#include "cuda/runtime/gemm.h"
#include "ops/core/warnings.h"
#include "ops/product/gemm.h"
#include "ops/product/matmul.h"
#include "ops/product/relu_mlp.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/include/cublasLt.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::gpu_test;

namespace {

// Turns fused products on; products with `epilogue` have no algorithm.
struct Fused {
  explicit Fused(std::uint32_t refused = 0) {
    set_gpu_kernels("products=fused");
    set_refused(refused);
  }
  ~Fused() {
    set_gpu_kernels("plain");
    set_refused(0);
  }
  static void set_refused(std::uint32_t epilogue) {
    cuda::forget_product_plans();  // they were made with the former answer
    emulation::refuse_epilogue(epilogue);
  }
};

struct Counts {
  std::int64_t products = 0, others = 0;
};

template <class Work>
Counts counted(Work&& work) {
  cuda::synchronize();
  std::map<std::string, std::int64_t> counts = emulation::launches();
  for (auto& [name, count] : counts) count = -count;
  work();
  cuda::synchronize();
  for (const auto& [name, count] : emulation::launches()) counts[name] += count;
  Counts result;
  for (const auto& [name, count] : counts) (name == "product" ? result.products : result.others) += count;
  return result;
}

Tensor leaf(const Shape& shape, const char* stream) {
  return require_grad(to_gpu(raw::cast(sample_normal(shape, stream), Dtype::f32)));
}

struct Mlp {
  Tensor x = leaf({6, 8}, "x"), up = leaf({20, 8}, "up"), up_bias = leaf({20}, "ub"),
         down = leaf({12, 20}, "down"), down_bias = leaf({12}, "db");
  Tensor run() const { return relu_mlp(x, up, up_bias, down, down_bias); }
  Tensors gradients() const {
    Tensors all;
    for (const Tensor& t : {x, up, up_bias, down, down_bias}) all.push_back(to_cpu(grad(t)));
    return all;
  }
};

const Tensor& cotangent() {
  static const Tensor dy = raw::cast(sample_normal({6, 12}, "dy"), Dtype::f32);
  return dy;
}

spec_check::Outcome outcome() {
  const Mlp mlp;
  const Tensor y = mlp.run();
  backward(y, to_gpu(cotangent()));
  return {{to_cpu(detach(y))}, mlp.gradients()};
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("fused products leave no kernels beside them") {
    const Fused fused;
    const Tensor x = leaf({6, 8}, "x"), weight = leaf({12, 8}, "w"), bias = leaf({12}, "b");
    const Tensor dy = to_gpu(cotangent());
    const Tensor y = linear(x, weight, bias);
    Counts counts = counted([&] { backward(y, dy); });
    CHECK(counts.products == 2);
    CHECK(counts.others == 0);
    // Gradients accumulate: the weight's in the product, the bias' in a separate sum.
    const Tensor second = linear(x, weight, bias);
    counts = counted([&] { backward(second, dy); });
    CHECK(counts.products == 2);
    CHECK(counts.others == 1);

    const Mlp mlp;
    Tensor z;
    counts = counted([&] { z = mlp.run(); });
    CHECK(counts.products == 2);
    CHECK(counts.others == 0);
    counts = counted([&] { backward(z, dy); });
    CHECK(counts.products == 4);
    CHECK(counts.others == 0);
  }

  TEST_CASE("a row of a mask has a bit for each element and nothing is written behind them") {
    const Tensor x = to_gpu(Tensor::from(std::vector<float>{1, -1}, {2, 1})), weight = leaf({131, 1}, "w");
    const Tensor y = Tensor::empty({2, 131}, Dtype::f32, gpu()),
                 bits = Tensor::full({2, 32}, 255, Dtype::u8, gpu());
    GemmArgs g{};
    g.dtype = Dtype::f32;
    g.transpose_b = g.relu = true;
    g.m = 2;
    g.n = g.ldc = 131;
    g.k = g.lda = g.ldb = 1;
    g.a = x.raw_data();
    g.b = weight.raw_data();
    g.c = y.raw_data();
    g.mask = bits.raw_data();
    g.mask_stride = 256;
    gemm_slot(gpu(), g);
    const Tensor mask = to_cpu(bits);
    const std::vector<float> values = to_cpu(y).to_vector<float>();
    for (std::int64_t row = 0; row < 2; ++row)
      for (std::int64_t column = 0; column < 256; ++column) {
        const bool bit = (mask.data<std::uint8_t>()[row * 32 + column / 8] >> (column % 8) & 1) != 0;
        const bool want = column >= 131 || values[static_cast<std::size_t>(row * 131 + column)] > 0;
        CHECK(bit == want);
      }
  }

  TEST_CASE("where cuBLASLt has no algorithm the plain kernels compute and one warning says so") {
    set_gpu_kernels("plain");
    const spec_check::Outcome plain = outcome();
    struct Refusal {
      std::uint32_t epilogue;
      const char* warning;
    };
    const Refusal refusals[] = {{CUBLASLT_EPILOGUE_RELU_AUX_BIAS, "keep the mask of ReLU"},
                                {CUBLASLT_EPILOGUE_DRELU, "mask the gradient of ReLU"},
                                {CUBLASLT_EPILOGUE_BGRADB, "sum the gradient of a bias"}};
    for (const Refusal& refusal : refusals) {
      CAPTURE(refusal.warning);
      const Fused fused(refusal.epilogue);
      for (int i = 0; i < 2; ++i) {
        const spec_check::Outcome got = outcome();
        std::string text = spec_check::difference("result", got.results[0], plain.results[0], 8,
                                                  spec_check::epsilon(Dtype::f32));
        CHECK_MESSAGE(text.empty(), text);
        text = spec_check::gradient_difference("gradients", got.gradients, plain.gradients, 8,
                                               spec_check::epsilon(Dtype::f32));
        CHECK_MESSAGE(text.empty(), text);
      }
      const std::vector<std::string> warnings = take_warnings();
      REQUIRE(warnings.size() == 1);
      CHECK(warnings[0].find(refusal.warning) != std::string::npos);
      reset_warnings();  // as each benchmark does, so that warnings are given anew
      static_cast<void>(outcome());
      CHECK(take_warnings() == warnings);
    }
    {  // with nothing refused: the same results, and no warning
      const Fused fused;
      static_cast<void>(outcome());
      CHECK(take_warnings().empty());
    }
    // Products that are not fused have no fallback.
    const Fused fused(CUBLASLT_EPILOGUE_BIAS);
    const Mlp mlp;
    CHECK_THROWS_WITH_AS(linear(mlp.x, mlp.up, mlp.up_bias),
                         doctest::Contains("gemm: cuBLASLt has no algorithm for [6, 8] by [8, 20] of f32"),
                         DeviceError);
  }

  TEST_CASE("with plain products relu_mlp is two linear layers") {
    set_gpu_kernels("plain");
    const Mlp mlp;
    Tensor y;
    Counts counts = counted([&] { y = mlp.run(); });
    CHECK(counts.products == 2);
    counts = counted([&] { backward(y, to_gpu(cotangent())); });
    CHECK(counts.products == 4);
    CHECK(counts.others >= 3);  // ReLU's and two sums
  }
}
