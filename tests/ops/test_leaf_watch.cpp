// When the gradient of a leaf is final.
#include "autograd/leaf_watch.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"

namespace {

using namespace eddy;
using namespace eddy::test;

Tensor leaf(double value) {
  return require_grad(Tensor::full({2}, value, Dtype::f64));
}

std::vector<double> gradient_of(const Tensor& x) {
  const Tensor gradient = grad(x);
  return gradient.defined() ? gradient.to_vector<double>() : std::vector<double>{};
}

}  // namespace

TEST_CASE(
    "leaf watch: each gradient is reported once, when nothing is added to it any more, the last readers first") {
  const Tensor early = leaf(2), late = leaf(3), twice = leaf(5), unread = leaf(7);
  const std::vector<Tensor> leaves{early, late, twice, unread};
  std::vector<std::size_t> order;
  std::vector<std::vector<double>> seen(4);
  std::size_t between = 0;
  const LeafWatch watch(
      leaves,
      [&](std::size_t i) {
        order.push_back(i);
        seen[i] = gradient_of(leaves[i]);
      },
      [&] { ++between; });
  const Tensor x = early * twice;
  const Tensor y = x * late;
  backward(sum(y * twice));
  CHECK(order.front() == 3);  // nothing reads it
  CHECK(order[1] == 1);
  CHECK(order.size() == 4);
  for (std::size_t i = 0; i < leaves.size(); ++i) CHECK(seen[i] == gradient_of(leaves[i]));
  CHECK(seen[2] == std::vector<double>{2 * 2.0 * 3 * 5, 2 * 2.0 * 3 * 5});
  CHECK(between > 3);
}

TEST_CASE("leaf watch: what one checkpoint reads is final when it has run, before those that ran before it") {
  const Tensor first = leaf(2), second = leaf(3), both = leaf(5), input = leaf(7);
  const std::vector<Tensor> leaves{first, second, both, input};
  std::vector<std::size_t> order;
  std::vector<std::vector<double>> seen(4);
  std::vector<std::size_t> nodes_before;  // of each report
  std::size_t nodes = 0;
  const LeafWatch watch(
      leaves,
      [&](std::size_t i) {
        order.push_back(i);
        seen[i] = gradient_of(leaves[i]);
        nodes_before.push_back(nodes);
      },
      [&] { ++nodes; });
  const auto layer = [&](const Tensor& weight) {
    return [&](const std::vector<Tensor>& x) {
      // A checkpoint within one.
      return checkpoint([&](const std::vector<Tensor>& z) { return z[0] * weight * both; }, x);
    };
  };
  const Tensor x = checkpoint(layer(first), {input});
  const Tensor y = checkpoint(layer(second), {x});
  backward(sum(y));
  REQUIRE(order.size() == 4);
  CHECK(order[0] == 1);
  CHECK(nodes_before[0] == 2);  // the sum and the second checkpoint
  CHECK(nodes_before[1] == 3);
  for (std::size_t i = 0; i < leaves.size(); ++i) CHECK(seen[i] == gradient_of(leaves[i]));
  CHECK(seen[1] == std::vector<double>{7 * 2 * 5 * 5, 7 * 2 * 5 * 5});
}

TEST_CASE("leaf watch: what several checkpoints read is final after the first of them") {
  const Tensor inside = leaf(2), outside = leaf(3);
  std::vector<std::size_t> order;
  std::vector<double> at_end;
  const LeafWatch watch(
      {inside, outside},
      [&](std::size_t i) {
        order.push_back(i);
        if (i == 0) at_end = gradient_of(inside);
      },
      [] {});
  const Tensor first = checkpoint([&](const std::vector<Tensor>& x) { return x[0] * inside; }, {outside});
  const Tensor second = checkpoint([&](const std::vector<Tensor>& x) { return x[0] * inside; }, {first});
  backward(sum(second * inside));
  CHECK(order.size() == 2);
  CHECK(at_end == gradient_of(inside));
  CHECK(at_end == std::vector<double>{3 * 3.0 * 2 * 2, 3 * 3.0 * 2 * 2});
}

TEST_CASE("leaf watch: a leaf that checkpoint's function returns as it is is read there") {
  const Tensor kept = leaf(2), input = leaf(3);
  std::vector<double> at_end;
  const LeafWatch watch(
      {kept}, [&](std::size_t) { at_end = gradient_of(kept); }, [] {});
  const Tensor same = checkpoint([&](const std::vector<Tensor>&) { return kept; }, {input});
  backward(sum(same * input));
  CHECK(at_end == std::vector<double>{3, 3});
}

TEST_CASE("leaf watch: deferred gradients are computed before they are reported") {
  const Tensor weight = require_grad(Tensor::full({3, 2}, 0.5, Dtype::f32));
  std::vector<float> seen;
  const LeafWatch watch(
      {weight}, [&](std::size_t) { seen = grad(weight).to_vector<float>(); }, [] {});
  const Tensor x = Tensor::full({1, 2}, 1, Dtype::f32);
  Tensor total = sum(linear(x, weight));
  for (int i = 0; i < 3; ++i) total = total + sum(linear(x * (i + 1.0), weight));
  backward(total);
  CHECK(seen == grad(weight).to_vector<float>());
}

TEST_CASE("leaf watch: a reader that it did not see is an error, and no wrong gradient") {
  const Tensor x = leaf(2);
  const Tensor y = sum(x * x);
  const LeafWatch watch(
      {x}, [](std::size_t) {}, [] {});
  CHECK(contains(error_of<GraphError>([&] { backward(y); }), "watched leaf that was final"));
  CHECK(contains(error_of<GraphError>([&] {
                   const LeafWatch second(
                       {x}, [](std::size_t) {}, [] {});
                 }),
                 "another one is alive"));
}

TEST_CASE("leaf watch: only leaves are watched") {
  const Tensor x = leaf(2);
  CHECK(contains(error_of<GraphError>([&] {
                   const LeafWatch watch(
                       {x * x}, [](std::size_t) {}, [] {});
                 }),
                 "not a leaf"));
}
