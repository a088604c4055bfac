// Products with weights that come again: their numbers and gradients are those of the same products made one
// by one, and nothing is kept of a weight that has changed.
#include "ops/product/packed_weights.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/reduce/reduce.h"
#include "tensor/random/philox.h"
#include "tensor/threads/thread_pool.h"
#include "tests/support/threads.h"

using namespace eddy;
using namespace eddy::test;

namespace {

Tensor drawn(const Shape& shape, const char* stream, Dtype dtype = Dtype::f64) {
  const RandomKey key = random_key(5, stream, 0);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 2 * uniform01(key.word(i)) - 1;
  return raw::cast(Tensor::from(values, shape), dtype);
}

// What a chain of `steps` products gives, and its gradients.
struct Chain {
  Tensor h, dx, dw, dup, dbias;
};

Chain run_chain(std::int64_t rows, std::int64_t width, std::int64_t steps, bool repeated, Dtype dtype) {
  const double small = 1 / std::sqrt(static_cast<double>(width));  // so that no rounding grows
  const auto matrix = [&](const char* stream) {
    return raw::cast(drawn({width, width}, stream) * small, dtype);
  };
  const Tensor x = drawn({rows, width}, "x", dtype), w = matrix("w"), up = matrix("up"),
               bias = drawn({width}, "bias", dtype);
  for (const Tensor& leaf : {x, w, up, bias}) require_grad(leaf);
  Tensor h = x;
  {
    const PackedWeightScope panels(repeated ? steps : 0);
    for (std::int64_t t = 0; t < steps; ++t)
      h = tanh(linear(linear(h, up, bias, {.relu = true}) * 0.3, w) + x * 0.1);
  }
  backward(sum(h * h));
  return {h, grad(x), grad(w), grad(up), grad(bias)};
}

double distance(const Tensor& a, const Tensor& b) {
  const std::vector<double> want = raw::cast(a, Dtype::f64).to_vector<double>(),
                            got = raw::cast(b, Dtype::f64).to_vector<double>();
  double most = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    most = std::fmax(most, std::fabs(want[i] - got[i]));
    size = std::fmax(size, std::fabs(want[i]));
  }
  return most / std::fmax(size, 1e-30);
}

}  // namespace

TEST_CASE("a loop with packed weights gives the numbers and gradients of one without") {
  for (const std::int64_t rows : {1, 3, 16, 70})
    for (const std::int64_t width : {1, 5, 33, 96}) {
      CAPTURE(rows);
      CAPTURE(width);
      for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
        const Chain want = run_chain(rows, width, 6, false, dtype),
                    got = run_chain(rows, width, 6, true, dtype);
        const double allowed = dtype == Dtype::f64 ? 1e-13 : 2e-4;
        CHECK(distance(want.h, got.h) <= allowed);
        CHECK(distance(want.dx, got.dx) <= allowed);
        CHECK(distance(want.dw, got.dw) <= allowed);
        CHECK(distance(want.dup, got.dup) <= allowed);
        CHECK(distance(want.dbias, got.dbias) <= allowed);
      }
    }
}

TEST_CASE("the bits of a loop with packed weights depend on no number of threads") {
  constexpr std::int64_t kRows = 70, kWidth = 250;  // several pieces for threads, the last one cut
  const Threads keep(thread_count());
  set_thread_count(1);
  const Chain one = run_chain(kRows, kWidth, 5, true, Dtype::f32),
              plain = run_chain(kRows, kWidth, 5, false, Dtype::f32);
  set_thread_count(3);
  const Chain three = run_chain(kRows, kWidth, 5, true, Dtype::f32);
  const auto check = [](const Tensor& x, const Tensor& y, const Tensor& want) {
    CHECK(x.to_vector<float>() == y.to_vector<float>());
    CHECK(distance(want, x) <= 2e-4);
  };
  check(one.h, three.h, plain.h);
  check(one.dx, three.dx, plain.dx);
  check(one.dw, three.dw, plain.dw);
  check(one.dup, three.dup, plain.dup);
  check(one.dbias, three.dbias, plain.dbias);
}

TEST_CASE("a weight that changes within a loop is packed anew") {
  const NoGrad no_grad;
  const Tensor x = drawn({4, 8}, "x"), w = drawn({8, 8}, "w");
  const PackedWeightScope panels(100);
  const Tensor before = linear(x, w);
  raw::fill(w, 0.5);
  w.buffer()->bump_version("test");
  const Tensor after = linear(x, w);
  CHECK(distance(before, after) > 0.01);
  CHECK(distance(sum(x, 1) * 0.5, raw::select(after, 1, 0)) < 1e-14);
}

TEST_CASE("nothing is packed outside of a loop nor for a few steps") {
  CHECK(PackedWeightScope::current() == nullptr);
  {
    const PackedWeightScope few(2);
    CHECK(PackedWeightScope::current() == nullptr);
    const PackedWeightScope many(50);
    const auto outer = PackedWeightScope::current();
    CHECK(outer != nullptr);
    {
      const PackedWeightScope inner(50);
      CHECK(PackedWeightScope::current() == outer);
    }
    CHECK(PackedWeightScope::current() == outer);
  }
  CHECK(PackedWeightScope::current() == nullptr);
}
