// Errors, and gradients where only one of the two results is used.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/recurrence/lstm_cell.h"
#include "tensor/base/error.h"

using namespace eddy;
using namespace eddy::detail;

TEST_CASE("lstm_cell wants four gates for each entry of the state") {
  CHECK_THROWS_WITH_AS(lstm_cell(Tensor::zeros({2, 9}), Tensor::zeros({2, 3})),
                       "lstm_cell: gates [2, 9] for c [2, 3] ([batch, 4 hidden]: [2, 12])", ShapeError);
  CHECK_THROWS_AS(lstm_cell(Tensor::zeros({2, 1, 12}), Tensor::zeros({2, 1, 3})), ShapeError);
  CHECK_THROWS_AS(lstm_cell(Tensor::zeros({2, 12}), Tensor::zeros({2, 3}, Dtype::f64)), DtypeError);
  CHECK_THROWS_AS(lstm_cell(Tensor::zeros({2, 12}), Tensor()), ValueError);
}

TEST_CASE("the gradients of an LSTM cell through h and through c add up to those through both") {
  const Tensor gates = sample_normal({3, 20}, "gates"), c = sample_normal({3, 5}, "c");
  const Tensor dh = sample_normal({3, 5}, "dh"), dc = sample_normal({3, 5}, "dc");
  const auto gradient = [&](bool through_h, bool through_c) {
    const Tensor leaf = raw::copy(gates), state = raw::copy(c);
    require_grad(leaf);
    require_grad(state);
    const LstmCell next = lstm_cell(leaf, state);
    std::vector<Tensor> ys, dys;
    if (through_h) {
      ys.push_back(next.h);
      dys.push_back(dh);
    }
    if (through_c) {
      ys.push_back(next.c);
      dys.push_back(dc);
    }
    backward(ys, dys);
    std::vector<double> all = grad(leaf).to_vector<double>();
    for (const double value : grad(state).to_vector<double>()) all.push_back(value);
    return all;
  };
  const std::vector<double> h = gradient(true, false), s = gradient(false, true), both = gradient(true, true);
  for (std::size_t i = 0; i < both.size(); ++i) CHECK(std::abs(h[i] + s[i] - both[i]) <= 1e-14);
}
