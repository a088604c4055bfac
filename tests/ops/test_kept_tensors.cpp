// What ops keep for the backward pass beyond what their neighbours keep anyway: memory is the larger part of
// what a training step costs.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "autograd/tape.h"
#include "ops/norm/unit_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/reduce/reduce.h"

namespace {

using namespace eddy;

Tensor leaf(const std::vector<double>& values, const Shape& shape) {
  return require_grad(Tensor::from(values, shape));
}

std::int64_t kept_bytes() {
  return graph_stats().saved_bytes;
}

}  // namespace

TEST_CASE("relu keeps its result and not what it came from") {
  const Tensor x = leaf({-1, 2, -3, 4, 5, -6}, {2, 3});
  const std::int64_t before = kept_bytes();
  const Tensor y = relu(neg(x));
  const Tensor z = y * y;  // keeps y
  CHECK(kept_bytes() - before == x.bytes());
  backward(sum(z));
  CHECK(grad(x).to_vector<double>() == std::vector<double>{-2, 0, -6, 0, 0, -12});
}

TEST_CASE("linear with ReLU keeps its factors and its result, which the next product keeps anyway") {
  const Tensor x = leaf({-1, 2, -3, 4, 5, -6}, {2, 3}), up = leaf({1, 2, 3, 4, 5, 6}, {2, 3}),
               down = leaf({1, 2, 3, 4}, {2, 2});
  const std::int64_t before = kept_bytes();
  const Tensor y = linear(x, up, {}, {.relu = true});
  const Tensor z = linear(y, down);
  CHECK(kept_bytes() - before == x.bytes() + up.bytes() + y.bytes() + down.bytes());
}

TEST_CASE("unit_norm keeps its result and not what it came from") {
  const Tensor x = leaf({-1, 2, -3, 4, 5, -6}, {2, 3});
  const std::int64_t before = kept_bytes();
  const Tensor y = unit_norm(neg(x));
  const Tensor z = y * y;
  CHECK(kept_bytes() - before == x.bytes() + 2 * 8);  // and one scale per row
}

TEST_CASE("a product keeps a factor only when the other one has a gradient") {
  const Tensor constant = Tensor::from(std::vector<double>{2, 3, 4}, {3});
  const Tensor x = leaf({-1, 2, -3, 4, 5, -6}, {2, 3});
  for (const bool left : {true, false}) {
    zero_grad(x);
    const std::int64_t before = kept_bytes();
    const Tensor z = left ? constant * x : x * constant;
    CHECK(kept_bytes() - before == constant.bytes());
    backward(sum(z));
    CHECK(grad(x).to_vector<double>() == std::vector<double>{2, 3, 4, 2, 3, 4});
  }
}
