// Reductions that are composed: softmax over any axis, products of nothing.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "autograd/tape.h"
#include "ops/composed/reductions.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "tensor/base/error.h"
#include "tensor/create.h"

using namespace eddy;

TEST_CASE("softmax over another axis than the last is that of its columns") {
  const Tensor x = tensor({{1.0f, 2.0f, 3.0f}, {5.0f, 4.0f, 0.0f}});
  CHECK(softmax(x, -1).to_vector<float>() == softmax(x).to_vector<float>());
  CHECK(softmax(x, std::int64_t{1}).to_vector<float>() == softmax(x).to_vector<float>());
  for (const int axis : {0, -2}) {
    const std::vector<float> y = softmax(x, axis).to_vector<float>();
    const std::vector<float> log = log_softmax(x, axis).to_vector<float>();
    for (std::size_t j = 0; j < 3; ++j) {
      CHECK(std::abs(y[j] + y[j + 3] - 1) <= 2 * std::numeric_limits<float>::epsilon());
      CHECK(std::abs(std::exp(log[j]) - y[j]) <= 4 * std::numeric_limits<float>::epsilon());
    }
  }
  CHECK_THROWS_AS(softmax(x, 2), ShapeError);
  CHECK_THROWS_AS(log_softmax(x, -3), ShapeError);
  CHECK(softmax(x, {.causal = true}).to_vector<float>()[2] == 0.0f);
}

TEST_CASE("a product of no elements is 1, with a gradient of none") {
  const Tensor x = zeros({2, 0});
  require_grad(x);
  for (const bool keep : {false, true}) {
    const Tensor y = prod(x, 1, keep);
    CHECK(y.to_vector<float>() == std::vector<float>{1, 1});
    CHECK(y.shape() == (keep ? Shape{2, 1} : Shape{2}));
    backward(sum(y));
    CHECK(grad(x).shape() == Shape{2, 0});
  }
}
