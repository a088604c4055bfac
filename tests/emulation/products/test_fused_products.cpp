// Products that add the residual stream on the emulated GPU: what they launch, and what happens where cuBLASLt has no
// algorithm for them.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "cuda/runtime/context.h"
#include "cuda/runtime/gemm.h"
#include "ops/core/warnings.h"
#include "ops/product/gemm.h"
#include "ops/product/linear.h"
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

struct Layer {
  Tensor residual = leaf({6, 12}, "r"), x = leaf({6, 8}, "x"), weight = leaf({12, 8}, "w"),
         bias = leaf({12}, "b");
  Tensor run() const { return linear(x, weight, bias, {.residual = residual}); }
  Tensors gradients() const {
    Tensors all;
    for (const Tensor& t : {residual, x, weight, bias}) all.push_back(to_cpu(grad(t)));
    return all;
  }
};

const Tensor& cotangent() {
  static const Tensor dy = raw::cast(sample_normal({6, 12}, "dy"), Dtype::f32);
  return dy;
}

spec_check::Outcome outcome() {
  const Layer layer;
  const Tensor y = layer.run();
  backward(y, to_gpu(cotangent()));
  return {{to_cpu(detach(y))}, layer.gradients()};
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("a product that adds the residual stream leaves no kernel beside it") {
    const Layer layer;
    for (const bool fused : {true, false}) {
      set_gpu_kernels(fused ? "products=fused" : "plain");
      Tensor y;
      const Counts counts = counted([&] { y = layer.run(); });
      CHECK(counts.products == 1);
      CHECK(counts.others == (fused ? 0 : 1));
    }
    set_gpu_kernels("plain");
  }

  TEST_CASE("bias and ReLU that cuBLASLt has no algorithm for come beside the product") {
    const Layer layer;
    const Tensor narrow = leaf({1, 8}, "narrow"), one = leaf({1}, "one"), column = leaf({6, 1}, "column"),
                 of_column = leaf({12, 1}, "of column");
    const auto results = [&](bool relu) {
      const LinearOptions options{.relu = relu};
      return Tensors{to_cpu(linear(layer.x, layer.weight, layer.bias, options)),
                     to_cpu(linear(layer.x, layer.weight, {}, options)),
                     to_cpu(linear(layer.x, narrow, one, options)),
                     to_cpu(linear(column, of_column, layer.bias, options))};
    };
    for (const bool relu : {false, true}) {
      const Tensors want = results(relu);
      const Fused refused(relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
      const Tensors got = results(relu);
      for (std::size_t i = 0; i < want.size(); ++i)
        spec_check::expect_none(
            spec_check::difference("y", got[i], want[i], 8, spec_check::epsilon(Dtype::f32)));
    }
  }

  TEST_CASE("a residual is added beside a product of vectors") {
    const Fused fused;
    const Tensor x = leaf({6, 1}, "x"), weight = leaf({12, 1}, "w"), residual = leaf({6, 12}, "r");
    const Counts counts = counted([&] { static_cast<void>(linear(x, weight, {}, {.residual = residual})); });
    CHECK(counts.products == 1);
    CHECK(counts.others == 1);
    CHECK(take_warnings().empty());
  }

  TEST_CASE("a product that cuBLASLt has no algorithm for says which one") {
    const Layer layer;
    {
      const Fused refused(CUBLASLT_EPILOGUE_DEFAULT);
      CHECK_THROWS_WITH_AS(linear(layer.x, layer.weight, {}),
                           doctest::Contains("gemm: cuBLASLt has no algorithm for [6, 8] by [8, 12] of f32"),
                           DeviceError);
    }
    const Fused fused;
    static_cast<void>(outcome());
    CHECK(take_warnings().empty());
  }

  TEST_CASE("a residual gets the same result and gradients in a product and beside it") {
    set_gpu_kernels("plain");
    const spec_check::Outcome plain = outcome();
    const Fused fused;
    const spec_check::Outcome got = outcome();
    spec_check::expect_none(spec_check::difference("result", got.results[0], plain.results[0], 8,
                                                   spec_check::epsilon(Dtype::f32)));
    spec_check::expect_none(spec_check::gradient_difference("gradients", got.gradients, plain.gradients, 8,
                                                            spec_check::epsilon(Dtype::f32)));
  }
}
