// linear with ReLU beside what it stands for: relu(linear). The same products and the same clipping, so the same
// bits, on the CPU.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/reduce/reduce.h"
#include "tensor/threads/thread_pool.h"
#include "tests/support/spec_check.h"
#include "tests/support/threads.h"

namespace {

using namespace eddy;
using namespace eddy::test;
using spec_check::bit_difference;
using spec_check::expect_none;

// The result and the gradients of x, weight and bias.
Tensors results(const Tensors& inputs, bool fused, bool given_away) {
  Tensors leaves;
  for (const Tensor& input : inputs) leaves.push_back(require_grad(raw::copy(input)));
  const Tensor bias = leaves.size() > 2 ? leaves[2] : Tensor();
  const Tensor y =
      fused ? linear(leaves[0], leaves[1], bias, {.relu = true}) : relu(linear(leaves[0], leaves[1], bias));
  const Tensor dy = raw::cast(sample_normal(y.shape(), "dy"), y.dtype());
  if (given_away)
    backward(sum(y * dy));  // the cotangent of y is nobody else's
  else
    backward(y, dy);
  Tensors all{detach(y), dy};
  for (const Tensor& leaf : leaves) all.push_back(grad(leaf));
  return all;
}

}  // namespace

TEST_CASE("linear with ReLU has the bits of relu of linear and so do its gradients") {
  struct Sizes {
    std::int64_t rows, out, in;
  };
  // Rows, then columns cut into pieces; the kernel for small products; odd ones; nothing to sum; no rows.
  for (const Sizes s : {Sizes{1300, 130, 70},
                        {130, 1300, 70},
                        {300, 64, 32},
                        {300, 48, 520},
                        {5, 7, 3},
                        {4, 3, 0},
                        {0, 4, 3}})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
      for (const bool biased : {false, true})
        for (const bool given_away : {false, true}) {
          CAPTURE(s.rows);
          CAPTURE(dtype_name(dtype));
          CAPTURE(biased);
          CAPTURE(given_away);
          Tensors inputs{sample_normal({s.rows, s.in}, "x"), sample_normal({s.out, s.in}, "w")};
          if (biased) inputs.push_back(sample_normal({s.out}, "b"));
          inputs = spec_check::inputs_as(inputs, dtype);
          const Tensors want = results(inputs, false, given_away);
          for (const int count : {1, 2}) {
            const Threads threads(count);
            const Tensors got = results(inputs, true, given_away);
            for (std::size_t i = 0; i < want.size(); ++i)
              expect_none(bit_difference("result", got[i], want[i]));
          }
        }
}

TEST_CASE("linear with ReLU passes a NaN on, and no gradient where its result is NaN or zero") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // One row by OpenBLAS; many by the kernel for small products, where this machine has it.
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{256}}) {
    std::vector<double> values(static_cast<std::size_t>(16 * 2), 1.0);
    values[0] = nan;                                                 // of weight row 0
    for (const std::size_t i : {2, 3}) values[i] = i == 2 ? 1 : -1;  // row 1: 0
    for (const std::size_t i : {4, 5}) values[i] = -1;               // row 2: below 0
    const Tensor weight = require_grad(raw::cast(Tensor::from(values, {16, 2}), Dtype::f32));
    const Tensor bias = require_grad(Tensor::zeros({16}));
    const Tensor y = linear(Tensor::full({rows, 2}, 1), weight, bias, {.relu = true});
    const std::vector<float> got = y.to_vector<float>();
    CHECK(std::isnan(got[0]));
    CHECK(got[1] == 0);
    CHECK(!std::signbit(got[1]));
    CHECK(got[2] == 0);
    CHECK(got[3] == 2);
    backward(sum(y));
    const std::vector<float> dbias = grad(bias).to_vector<float>();
    for (const std::size_t i : {0, 1, 2}) CHECK(dbias[i] == 0);
    CHECK(dbias[3] == static_cast<float>(rows));
  }
}

TEST_CASE("linear with ReLU leaves a cotangent that others see as it is") {
  const Tensor x = require_grad(sample_normal({6, 5}, "x")), weight = sample_normal({4, 5}, "w");
  const Tensor dy = sample_normal({6, 4}, "dy"), before = raw::copy(dy);
  backward(linear(x, weight, {}, {.relu = true}), dy);
  CHECK(bit_difference("dy", dy, before).empty());
  // The sum of two is the cotangent of both.
  const Tensor other = require_grad(sample_normal({6, 4}, "other"));
  const Tensor together = linear(x, weight, {}, {.relu = true}) + other;
  backward(together * before, Tensor::full({6, 4}, 1, Dtype::f64));
  CHECK(bit_difference("gradient of the other", grad(other), before).empty());
}

TEST_CASE("linear names a residual of another shape or dtype") {
  const Tensor x = Tensor::zeros({2, 3}), weight = Tensor::zeros({4, 3});
  for (const bool relu : {false, true}) {
    CHECK_THROWS_WITH_AS(linear(x, weight, {}, {.relu = relu, .residual = Tensor::zeros({2, 3})}),
                         doctest::Contains("linear: a residual [2, 3] for a result [2, 4]"), ShapeError);
    CHECK_THROWS_AS(linear(x, weight, {}, {.relu = relu, .residual = Tensor::zeros({2, 4}, Dtype::f64)}),
                    DtypeError);
  }
  CHECK_THROWS_WITH_AS(linear(x, weight, Tensor::zeros({3}), {.relu = true}),
                       doctest::Contains("linear: bias [3] for weight [4, 3]"), ShapeError);
}
