// Reductions beyond what every op is tested for: axes, kept axes, ties, NaN, sums into given storage and
// error texts.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::test;

TEST_CASE("sum and mean take any axis and count negative ones from the end") {
  const Tensor x = counted({2, 3});
  CHECK(sum(x, 0).to_vector<double>() == std::vector<double>{3, 5, 7});
  CHECK(sum(x, -1).to_vector<double>() == std::vector<double>{3, 12});
  CHECK(mean(x, 1).to_vector<double>() == std::vector<double>{1, 4});
  CHECK(sum(x).item() == 15);
  CHECK(mean(x).item() == 2.5);
}

TEST_CASE("a kept axis has size 1 in the result and its gradient repeats") {
  const Tensor x = counted({2, 3});
  require_grad(x);
  const Tensor y = mean(x, 1, true);
  CHECK(y.shape() == Shape{2, 1});
  backward(y, Tensor::from(std::vector<double>{3, 6}, {2, 1}));
  CHECK(grad(x).to_vector<double>() == std::vector<double>{1, 1, 1, 2, 2, 2});
  CHECK(max(x, 0, true).shape() == Shape{1, 3});
}

TEST_CASE("sums of nothing are zero") {
  const Tensor x = Tensor::empty({0, 3}, Dtype::f64);
  CHECK(sum(x).item() == 0);
  CHECK(sum(x, 0).to_vector<double>() == std::vector<double>{0, 0, 0});
  CHECK(sum(x, 1).shape() == Shape{0});
  CHECK(sum_to(x, {1, 1}).item() == 0);
}

TEST_CASE("the gradient of max goes to the first of equal elements") {
  const Tensor x = Tensor::from(std::vector<double>{1, 5, 5, 2, 2, 2}, {2, 3});
  for (const int axis : {1, 0}) {
    const Tensor leaf = raw::alias(x);
    require_grad(leaf);
    const Tensor y = max(leaf, axis);
    backward(y, Tensor::full(y.shape(), 1, Dtype::f64));
    const std::vector<double> want =
        axis == 1 ? std::vector<double>{0, 1, 0, 1, 0, 0} : std::vector<double>{0, 1, 1, 1, 0, 0};
    CHECK(grad(leaf).to_vector<double>() == want);
  }
}

TEST_CASE("max is NaN when one element is wherever it stands") {
  for (const std::int64_t count : {3, 32, 77})
    for (const std::int64_t place : {std::int64_t{0}, count / 2, count - 1}) {
      std::vector<float> values(static_cast<std::size_t>(count), 1.0f);
      values[static_cast<std::size_t>(place)] = std::numeric_limits<float>::quiet_NaN();
      const Tensor row = Tensor::from(values, {1, count});
      require_grad(row);
      const Tensor y = max(row, 1);
      CHECK(std::isnan(y.item()));
      CHECK(std::isnan(max(raw::transpose(row, 0, 1), 0).item()));
      backward(y);
      CHECK(grad(row).to_vector<float>()[static_cast<std::size_t>(place)] == 1.0f);
    }
}

TEST_CASE("max finds a negative largest element and negative infinity") {
  const float low = -std::numeric_limits<float>::infinity();
  CHECK(max(Tensor::from(std::vector<float>{low, -3, -2, low}, {4}), 0).item() == -2);
  CHECK(max(Tensor::full({40}, low), 0).item() == low);
}

TEST_CASE("sum_into adds to what is there with beta 1 and overwrites with beta 0") {
  const Tensor x = counted({3, 2});
  const Tensor dst = Tensor::from(std::vector<double>{10, 20}, {2});
  sum_into(dst, x, 1);
  CHECK(dst.to_vector<double>() == std::vector<double>{16, 29});
  const Tensor stale = Tensor::full({2}, std::numeric_limits<double>::quiet_NaN(), Dtype::f64);
  sum_into(stale, x, 0);
  CHECK(stale.to_vector<double>() == std::vector<double>{6, 9});
}

TEST_CASE("sum_into writes through a strided destination") {
  const Tensor wide = Tensor::full({2, 3}, 1, Dtype::f64);
  sum_into(raw::select(wide, 1, 1), counted({3, 2}), 1);
  CHECK(wide.to_vector<double>() == std::vector<double>{1, 7, 1, 1, 10, 1});
}

TEST_CASE("a long f32 sum is close to the exact one") {
  // 2^20 terms in 32 blocks of 32 lanes: 1024 additions in a lane, 5 folds and 32 blocks, each at most eps
  // / 2.
  const std::int64_t count = 1 << 20;
  const double exact = 0.1f * static_cast<double>(count);
  const double got = sum(Tensor::full({count}, 0.1f)).item();
  CHECK(std::abs(got - exact) <= 1061 * 0.5 * std::numeric_limits<float>::epsilon() * exact);
}

TEST_CASE("reductions name a wrong axis, an empty axis and a wrong dtype") {
  const Tensor x = counted({2, 3});
  CHECK_THROWS_WITH_AS(sum(x, 2), doctest::Contains("sum: there is no axis 2 in [2, 3] (from -2 to 1)"),
                       ShapeError);
  CHECK_THROWS_AS(mean(x, -3), ShapeError);
  CHECK_THROWS_AS(sum(sum(x), 0), ShapeError);
  const Tensor none = Tensor::empty({2, 0}, Dtype::f64);
  CHECK_THROWS_WITH_AS(max(none, 1), doctest::Contains("max: no elements along axis 1 of [2, 0]"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(mean(none, 1), doctest::Contains("mean: an average of no elements"), ShapeError);
  CHECK_THROWS_AS(mean(none), ShapeError);
  CHECK(max(none, 0).shape() == Shape{0});
  CHECK_THROWS_WITH_AS(sum(Tensor::zeros({2}, Dtype::i64)), doctest::Contains("sum: input is i64"),
                       DtypeError);
  CHECK_THROWS_AS(max(Tensor(), 0), ValueError);
}

TEST_CASE("sum_to names shapes that do not broadcast") {
  CHECK_THROWS_WITH_AS(sum_to(counted({2, 3}), {2}),
                       doctest::Contains("sum_to: [2] does not repeat to [2, 3]"), ShapeError);
  CHECK_THROWS_AS(sum_to(counted({3}), {2, 3}), ShapeError);
  CHECK_THROWS_AS(sum_into(Tensor::zeros({3}), counted({2, 3}), 0), DtypeError);
}

TEST_CASE("max and min and argmin of a whole tensor are scalars, and there are none of nothing") {
  const Tensor x = Tensor::from({4.0, 1.0, 9.0, 1.0}, {2, 2});
  CHECK(max(x).item() == 9);
  CHECK(min(x).item() == 1);
  CHECK(max(x).rank() == 0);
  CHECK(argmin(x).item_int() == 1);
  CHECK(argmin(x, 0).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0});
  CHECK(min(x, -1, true).shape() == Shape{2, 1});
  CHECK_THROWS_AS(max(Tensor::zeros({0})), ShapeError);
  CHECK_THROWS_AS(min(Tensor::zeros({0})), ShapeError);
  CHECK_THROWS_AS(argmin(Tensor()), ValueError);
}
