// What the generic tests of the specs do not see: errors, and the gates' meaning.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/tape.h"
#include "ops/recurrence/gates.h"
#include "tensor/base/error.h"

using namespace eddy;

TEST_CASE("a gate wants operands of one shape and biases as wide as the last axis") {
  const Tensor c = Tensor::zeros({2, 3}), bias = Tensor::zeros({3});
  CHECK_THROWS_WITH_AS(fixed_gate(c, Tensor::zeros({3, 2}), bias, false),
                       "fixed_gate: c [2, 3] and z [3, 2] (one shape for both)", ShapeError);
  CHECK_THROWS_WITH_AS(fixed_gate(c, c, Tensor::zeros({2}), false),
                       "fixed_gate: bias [2] for c [2, 3] (it has the size of the last axis: [3])",
                       ShapeError);
  CHECK_THROWS_AS(lstm_gate(c, c, c, Tensor::zeros({2}), bias, bias, false), ShapeError);
  CHECK_THROWS_AS(lstm_gate(c, c, c, c, bias, Tensor::zeros({4}), false), ShapeError);
  CHECK_THROWS_AS(fixed_gate(Tensor::zeros({}), Tensor::zeros({}), bias, false), ShapeError);
  CHECK_THROWS_AS(fixed_gate(c, Tensor::zeros({2, 3}, Dtype::f64), bias, false), DtypeError);
  CHECK_THROWS_AS(lstm_gate(c, c, Tensor(), c, bias, bias, false), ValueError);
}

TEST_CASE("a gate that is wide open keeps the old state and one that is shut takes the candidate") {
  const Tensor c = Tensor::full({2, 3}, 0.25, Dtype::f64), z = Tensor::full({2, 3}, -2.0, Dtype::f64);
  const auto first = [](const Tensor& y) { return y.to_vector<double>()[0]; };
  CHECK(first(fixed_gate(c, z, Tensor::full({3}, 1000.0, Dtype::f64), false)) == 0.25);
  CHECK(first(fixed_gate(c, z, Tensor::full({3}, -1000.0, Dtype::f64), false)) == -2.0);
  CHECK(std::abs(first(fixed_gate(c, z, Tensor::full({3}, -1000.0, Dtype::f64), true)) - std::tanh(-2.0)) <=
        1e-15);
  // All logits 0: F = sigmoid(1) and I = sigmoid(-1).
  const Tensor zero = Tensor::zeros({2, 3}, Dtype::f64), no_bias = Tensor::zeros({3}, Dtype::f64);
  const double f = 1 / (1 + std::exp(-1.0));
  CHECK(std::abs(first(lstm_gate(c, z, zero, zero, no_bias, no_bias, false)) - (0.25 * f - 2 * (1 - f))) <=
        1e-15);
}

TEST_CASE("a gate whose state and candidate are one tensor sums both gradients") {
  const Tensor x = Tensor::full({4, 3}, 0.5, Dtype::f64), bias = Tensor::full({3}, 0.3, Dtype::f64);
  require_grad(x);
  backward(fixed_gate(x, x, bias, false), Tensor::full({4, 3}, 1.0, Dtype::f64));
  // The two shares add up to one.
  for (const double g : grad(x).to_vector<double>()) CHECK(std::abs(g - 1) <= 1e-15);
}
