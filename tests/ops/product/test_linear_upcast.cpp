// linear with `upcast` beside what it stands for, upcast(linear): the same gradients, and values that were never
// rounded to bf16.
#include <doctest/doctest.h>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/op_spec.h"
#include "ops/product/linear.h"
#include "tests/support/errors.h"
#include "tests/support/spec_check.h"

namespace {

using namespace eddy;
using namespace eddy::test;
using spec_check::bit_difference;
using spec_check::expect_none;

// The result and the gradients of x, weight and bias, for one cotangent in f32.
Tensors results_in_f32(const Tensors& inputs, bool in_one) {
  Tensors leaves;
  for (const Tensor& input : inputs) leaves.push_back(require_grad(raw::copy(input)));
  const Tensor bias = leaves.size() > 2 ? leaves[2] : Tensor();
  const Tensor y = in_one ? linear(leaves[0], leaves[1], bias, {.upcast = true})
                          : upcast(linear(leaves[0], leaves[1], bias));
  backward(y, raw::cast(sample_normal(y.shape(), "dy"), y.dtype()));
  Tensors all{detach(y)};
  for (const Tensor& leaf : leaves) all.push_back(grad(leaf));
  return all;
}

}  // namespace

TEST_CASE("linear that upcasts has the gradients of upcast of linear and the values of f32 products") {
  for (const Dtype parameters : {Dtype::bf16, Dtype::f32})
    for (const bool biased : {false, true}) {
      CAPTURE(dtype_name(parameters));
      CAPTURE(biased);
      Tensors inputs{raw::cast(sample_normal({2, 9, 24}, "x"), Dtype::bf16),
                     raw::cast(sample_normal({17, 24}, "w"), parameters)};
      if (biased) inputs.push_back(raw::cast(sample_normal({17}, "b"), parameters));
      const Tensors got = results_in_f32(inputs, true), want = results_in_f32(inputs, false);
      REQUIRE(got[0].dtype() == Dtype::f32);
      for (std::size_t i = 1; i < want.size(); ++i) expect_none(bit_difference("gradient", got[i], want[i]));
      const auto in_f32 = [](const Tensor& x) { return raw::cast(x, Dtype::f32); };
      const Tensor exact = linear(in_f32(inputs[0]), in_f32(raw::cast(inputs[1], Dtype::bf16)),
                                  biased ? in_f32(inputs[2]) : Tensor());
      expect_none(bit_difference("values", got[0], exact));
    }
}

TEST_CASE("linear that upcasts leaves other dtypes as they are, and does nothing else besides") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const Tensor x = raw::cast(sample_normal({3, 8}, "x"), dtype),
                 w = raw::cast(sample_normal({5, 8}, "w"), dtype);
    expect_none(bit_difference("values", linear(x, w, {}, {.upcast = true}), linear(x, w)));
  }
  const Tensor x = Tensor::zeros({3, 8}), w = Tensor::zeros({5, 8});
  CHECK(error_of<ValueError>([&] { linear(x, w, {}, {.relu = true, .upcast = true}); }) ==
        "linear: upcast beside an activation or a residual (upcast what linear returns)");
  CHECK(error_of<ValueError>([&] {
          linear(x, w, {}, {.residual = Tensor::zeros({3, 5}), .upcast = true});
        }).find("upcast beside") != std::string::npos);
}
