// Products of one input with several weights: where their gradients go. That they are one product on a GPU is
// tested by tests/gpu/test_products.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/product/linear.h"
#include "tensor/base/error.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using spec_check::bit_difference;
using spec_check::expect_none;

namespace {

// Parts of one value and one gradient arena, as parameters are. Their gradients are NaN until written.
struct Arena {
  Tensor values, gradients;
  std::vector<Tensor> parts;

  explicit Arena(const std::vector<std::int64_t>& rows) {
    std::int64_t all = 0;
    for (const std::int64_t count : rows) all += count;
    values = raw::cast(sample_normal({all, 7}, "arena"), Dtype::f32);
    gradients = Tensor::full({all, 7}, std::numeric_limits<double>::quiet_NaN());
    std::int64_t first = 0;
    for (const std::int64_t count : rows) {
      parts.push_back(raw::narrow(values, 0, first, count));
      require_grad(parts.back());
      set_grad_storage(parts.back(), raw::narrow(gradients, 0, first, count));
      first += count;
    }
  }
};

Tensor input() {
  return raw::cast(sample_normal({2, 5, 7}, "x"), Dtype::f32);
}
void expect_equal(const char* what, const Tensor& got, const Tensor& want) {
  expect_none(bit_difference(what, got, want));
}

}  // namespace

TEST_CASE("linear side by side has the bits of linear with each weight, and so have their gradients") {
  const Arena joint({3, 4, 2}), apart({3, 4, 2});
  const Tensor x = input();
  // Twice, so that the second adds to what the first wrote.
  for (int i = 0; i < 2; ++i) {
    const Tensor y = linear(x, joint.parts), dy = raw::cast(sample_normal(y.shape(), "dy"), Dtype::f32);
    backward(y, dy);
    std::int64_t first = 0;
    for (const Tensor& part : apart.parts) {
      const Tensor want = linear(x, part);
      expect_equal("result", raw::copy(raw::narrow(y, 2, first, part.dim(0))), want);
      backward(want, raw::contiguous(raw::narrow(dy, 2, first, part.dim(0))));
      first += part.dim(0);
    }
  }
  expect_equal("dweights", joint.gradients, apart.gradients);
  for (const Tensor& part : joint.parts) CHECK(grad(part).defined());
}

TEST_CASE("linear side by side adds to gradients that exist and writes those that do not") {
  const Arena arena({3, 4, 2}), apart({3, 4, 2});
  const Tensor x = input(), dy = raw::cast(sample_normal({2, 5, 9}, "dy"), Dtype::f32);
  const Tensor first_dy = raw::contiguous(raw::narrow(dy, 2, 0, 4));
  backward(linear(x, arena.parts[1]), first_dy);
  backward(linear(x, arena.parts), dy);
  backward(linear(x, apart.parts[1]), first_dy);
  std::int64_t first = 0;
  for (const Tensor& part : apart.parts) {
    backward(linear(x, part), raw::contiguous(raw::narrow(dy, 2, first, part.dim(0))));
    first += part.dim(0);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<float> got = grad(arena.parts[i]).to_vector<float>(),
                             want = grad(apart.parts[i]).to_vector<float>();
    // Sums over ten rows of products below 16.
    for (std::size_t k = 0; k < got.size(); ++k)
      CHECK(std::abs(got[k] - want[k]) <= 160 * std::numeric_limits<float>::epsilon());
  }
}

TEST_CASE("linear side by side gives gradients to some of its weights alone") {
  const Arena arena({3, 4, 2});
  const Tensor x = input(), frozen = raw::copy(arena.parts[1]);
  backward(linear(x, Tensors{arena.parts[0], frozen, arena.parts[2]}), Tensor::full({2, 5, 9}, 1));
  CHECK(grad(arena.parts[0]).defined());
  CHECK_FALSE(grad(arena.parts[1]).defined());
  CHECK(grad(arena.parts[2]).defined());
}

TEST_CASE("linear_parts gives no gradient to the weight of a part that got none") {
  const Arena arena({3, 4, 2}), apart({3, 4, 2});
  const Tensor x = input();
  const std::vector<Tensor> parts = linear_parts(x, arena.parts);
  for (const std::size_t i : {0, 2}) {
    const Tensor dy = raw::cast(sample_normal(parts[i].shape(), "dy"), Dtype::f32);
    backward(linear(x, apart.parts[i]), dy);
    if (i == 2)
      backward({parts[0], parts[2]}, {raw::cast(sample_normal(parts[0].shape(), "dy"), Dtype::f32), dy});
  }
  for (const std::size_t i : {0, 2}) expect_equal("dweight", grad(arena.parts[i]), grad(apart.parts[i]));
  CHECK_FALSE(grad(arena.parts[1]).defined());
}

TEST_CASE("linear side by side names what is wrong with its inputs") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(linear(x, Tensors{}), doctest::Contains("linear: no weights"), ValueError);
  CHECK_THROWS_WITH_AS(linear(x, Tensors{Tensor::zeros({4, 3}), Tensor::zeros({4, 2})}),
                       doctest::Contains("linear: x [2, 3] and weight [4, 2]"), ShapeError);
  CHECK_THROWS_AS(linear(x, Tensors{Tensor::zeros({4, 3}, Dtype::f64)}), DtypeError);
}
