// Root-mean-square normalisation beyond what every op is tested for: its statistics and error texts.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/norm/rms_norm.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"

using namespace eddy;

TEST_CASE("rms_norm gives rows of mean square 1") {
  const std::vector<double> y =
      rms_norm(sample_normal({4, 100}, "rms_norm", 5), Tensor(), 0).to_vector<double>();
  for (std::size_t row = 0; row < 4; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < 100; ++i) squares += y[row * 100 + i] * y[row * 100 + i];
    CHECK(std::abs(squares / 100 - 1) <= 16 * std::numeric_limits<double>::epsilon());
  }
}

TEST_CASE("rms_norm of a zero row is zero with a finite gradient") {
  const Tensor x = Tensor::zeros({1, 3}, Dtype::f64);
  require_grad(x);
  const Tensor y = rms_norm(x);
  CHECK(y.to_vector<double>() == std::vector<double>{0, 0, 0});
  backward(y, Tensor::full({1, 3}, 1, Dtype::f64));
  // 1 / sqrt(eps)
  for (const double dx : grad(x).to_vector<double>()) CHECK(std::abs(dx - std::sqrt(1e5)) <= 1e-3);
}

TEST_CASE("rms_norm gives a gradient to its weight alone") {
  const Tensor x = sample_normal({5, 3}, "x"), weight = sample_normal({3}, "weight");
  require_grad(weight);
  backward(sum(rms_norm(x, weight)));
  const std::vector<double> want = sum_to(rms_norm(x), {3}).to_vector<double>();
  const std::vector<double> got = grad(weight).to_vector<double>();
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(std::abs(got[i] - want[i]) <= 32 * std::numeric_limits<double>::epsilon());
}

TEST_CASE("rms_norm names what is wrong with its inputs") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(rms_norm(Tensor::zeros({})), doctest::Contains("rms_norm: a scalar"), ShapeError);
  CHECK_THROWS_WITH_AS(rms_norm(x, Tensor::zeros({2})),
                       doctest::Contains("rms_norm: a weight [2] for x [2, 3]"), ShapeError);
  CHECK_THROWS_WITH_AS(rms_norm(x, Tensor::zeros({3}, Dtype::f64)),
                       doctest::Contains("rms_norm: f32 and f64"), DtypeError);
  CHECK_THROWS_WITH_AS(rms_norm(x, Tensor(), -1), doctest::Contains("rms_norm: eps is -1"), ValueError);
}

TEST_CASE("rms_norm_add names what is wrong with its table") {
  const Tensor x = Tensor::zeros({2, 4, 3}), weight = Tensor::zeros({3});
  CHECK_THROWS_WITH_AS(rms_norm_add(x, weight, Tensor::zeros({5, 3})),
                       doctest::Contains("rms_norm_add: a table [5, 3] for x [2, 4, 3]"), ShapeError);
  CHECK_THROWS_AS(rms_norm_add(x, weight, Tensor::zeros({1, 2, 4, 3})), ShapeError);
  CHECK_THROWS_AS(rms_norm_add(x, weight, Tensor::zeros({})), ShapeError);
  CHECK_THROWS_AS(rms_norm_add(x, weight, Tensor::zeros({4, 3}, Dtype::f64)), DtypeError);
}
