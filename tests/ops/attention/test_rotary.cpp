// Errors and exact properties of the rotary embedding.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/rotary.h"
#include "ops/core/op_spec.h"
#include "tensor/base/error.h"

using namespace eddy;

namespace {

double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

TEST_CASE("rotary refuses odd heads, other ranks, and positions and bases out of range") {
  const Tensor x = Tensor::zeros({2, 3, 4, 6});
  CHECK_THROWS_WITH_AS(rotary_bthd(Tensor::zeros({1, 2, 3, 5}), 0),
                       "rotary_bthd: head_size 5 of input [1, 2, 3, 5] is odd (entries turn in pairs)",
                       ShapeError);
  CHECK_THROWS_AS(rotary_bthd(Tensor::zeros({2, 3, 4}), 0), ShapeError);
  CHECK_THROWS_AS(rotary_bthd(x, -1), ValueError);
  CHECK_THROWS_AS(rotary_bthd(x, std::int64_t{1} << 53), ValueError);
  CHECK_THROWS_AS(rotary_bthd(x, 0, 0.0), ValueError);
  CHECK_THROWS_AS(rotary_bthd(x, 0, std::nan("")), ValueError);
  CHECK_THROWS_AS(rotary_bthd(Tensor::zeros({2, 3, 4, 6}, Dtype::i64), 0), DtypeError);
}

TEST_CASE("rotary leaves position 0 alone and turns the first pair by the position itself") {
  const Tensor x = Tensor::from(std::vector<double>{1, 0, 0, 2, 1, 0, 0, 2}, {1, 2, 1, 4});
  const std::vector<double> y = rotary_bthd(x, 0, 100.0).to_vector<double>();
  for (std::size_t i = 0; i < 4; ++i) CHECK(y[i] == x.to_vector<double>()[i]);
  CHECK(std::abs(y[4] - std::cos(1.0)) <= 1e-15);
  CHECK(std::abs(y[5] - std::sin(1.0)) <= 1e-15);
  CHECK(std::abs(y[6] + 2 * std::sin(0.1)) <= 1e-15);  // the second pair: 100^(-2/4)
  CHECK(std::abs(y[7] - 2 * std::cos(0.1)) <= 1e-15);
}

TEST_CASE("products of turned rows depend on the distance alone") {
  const Tensor q = sample_normal({1, 1, 1, 48}, "q"), k = sample_normal({1, 1, 1, 48}, "k");
  const double near = dot(rotary_bthd(q, 9), rotary_bthd(k, 4));
  // Angles at position 10^6 are rounded to 1e-10.
  CHECK(std::abs(dot(rotary_bthd(q, 1005), rotary_bthd(k, 1000)) - near) <= 1e-10);
  CHECK(std::abs(dot(rotary_bthd(q, 1000005), rotary_bthd(k, 1000000)) - near) <= 1e-7);
}

TEST_CASE("rotary gives the same bits whatever was computed before") {
  const Tensor x = sample_normal({1, 5, 2, 6}, "x");
  const std::vector<double> fresh = rotary_bthd(x, 3, 12345.0).to_vector<double>();
  rotary_bthd(sample_normal({1, 500, 1, 6}, "x"), 0, 12345.0);
  CHECK(rotary_bthd(x, 3, 12345.0).to_vector<double>() == fresh);
  for (int other = 0; other < 20; ++other) rotary_bthd(x, 0, 100.0 + other);
  CHECK(rotary_bthd(x, 3, 12345.0).to_vector<double>() == fresh);
}
