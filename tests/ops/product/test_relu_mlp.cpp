// relu_mlp beside what it stands for on the CPU, linear(linear_relu): the same bits, and the same kept
// tensors.
#include <doctest/doctest.h>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/product/matmul.h"
#include "ops/product/relu_mlp.h"
#include "tests/support/spec_check.h"

namespace {

using namespace eddy;
using namespace eddy::spec_check;

Tensor composed(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                const Tensor& down_bias) {
  return linear(linear_relu(x, up, up_bias), down, down_bias);
}

using Mlp = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&);

Outcome outcome_of(Mlp mlp, const Tensors& inputs) {
  OpSpec spec;
  spec.run = [mlp](const Tensors& x) { return Tensors{mlp(x[0], x[1], x[3], x[2], x[4])}; };
  return evaluate(spec, inputs);
}

Tensors inputs_of(bool up_biased, bool down_biased, Dtype dtype) {
  return inputs_as({sample_normal({3, 5, 7}, "x"), sample_normal({9, 7}, "up"), sample_normal({4, 9}, "down"),
                    up_biased ? sample_normal({9}, "up bias") : Tensor(),
                    down_biased ? sample_normal({4}, "down bias") : Tensor()},
                   dtype);
}

}  // namespace

TEST_CASE("relu_mlp has the bits of two linear layers with ReLU between on the CPU") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
    for (const bool up_biased : {false, true})
      for (const bool down_biased : {false, true}) {
        const Tensors inputs = inputs_of(up_biased, down_biased, dtype);
        expect_none(
            bit_difference(dtype_name(dtype), outcome_of(relu_mlp, inputs), outcome_of(composed, inputs)));
      }
}

TEST_CASE("relu_mlp keeps on the CPU what the two linear layers keep") {
  const auto kept = [](Mlp mlp) {
    const Tensors x = inputs_of(true, true, Dtype::f32);
    const Tensor leaf = require_grad(raw::copy(x[0]));
    const std::int64_t before = graph_stats().saved_bytes;
    const Tensor y = mlp(leaf, x[1], x[3], x[2], x[4]);
    return graph_stats().saved_bytes - before;
  };
  CHECK(kept(relu_mlp) == kept(composed));
}

TEST_CASE("relu_mlp says its own name in errors") {
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape); };
  CHECK_THROWS_WITH_AS(relu_mlp(zeros({2, 3}), zeros({4, 5}), {}, zeros({3, 4})),
                       doctest::Contains("relu_mlp: x [2, 3] and weight [4, 5]"), ShapeError);
  CHECK_THROWS_WITH_AS(
      relu_mlp(zeros({2, 3}), zeros({4, 3}), {}, zeros({3, 5})),
      doctest::Contains("relu_mlp: up [4, 3] and down [3, 5] (up [mlp, in], down [out, mlp])"), ShapeError);
  CHECK_THROWS_WITH_AS(relu_mlp(zeros({2, 3}), zeros({4, 3}), zeros({3}), zeros({5, 4})),
                       doctest::Contains("relu_mlp: bias [3] for weight [4, 3]"), ShapeError);
  CHECK_THROWS_WITH_AS(relu_mlp(zeros({2, 3}), zeros({4, 3}), {}, zeros({5, 4}), zeros({4})),
                       doctest::Contains("relu_mlp: bias [4] for weight [5, 4]"), ShapeError);
}
