// Every product by Eddy's own kernels (multiply_packing), which a build without OpenBLAS takes for all that no other
// way is chosen for: both types, all four transpositions, alpha and beta, batches, bias and ReLU, on every instruction
// set of this machine, against a triple loop in extended precision. Tolerance as in test_packed_gemm.cpp, with two more
// roundings for alpha and beta: (2 inner + 4) eps sum |a b|.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/product/packed_gemm.h"
#include "tensor/random/random_tensors.h"
#include "tests/support/isa_levels.h"
#include "tests/support/threads.h"

namespace {

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::test;

struct Case {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  double alpha, beta;
  bool bias;
};

// The worst error of a product of two times two matrices, in units of its tolerance; elements beside C must stay.
template <class T>
double worst_error(const Case& c) {
  constexpr std::int64_t kGap = 3, kMatrices = 4;
  constexpr Dtype dtype = std::is_same_v<T, float> ? Dtype::f32 : Dtype::f64;
  const std::int64_t a_rows = c.transpose_a ? c.k : c.m, a_columns = c.transpose_a ? c.m : c.k,
                     b_rows = c.transpose_b ? c.n : c.k, b_columns = c.transpose_b ? c.k : c.n;
  GemmArgs g{};
  g.dtype = dtype;
  g.m = c.m;
  g.n = c.n;
  g.k = c.k;
  g.transpose_a = c.transpose_a;
  g.transpose_b = c.transpose_b;
  g.alpha = c.alpha;
  g.beta = c.beta;
  g.lda = a_columns + kGap;
  g.ldb = b_columns + kGap;
  g.ldc = c.n + kGap;
  g.batch = g.outer = 2;
  g.stride_a = a_rows * g.lda;
  g.stride_b = b_rows * g.ldb;
  g.stride_c = c.m * g.ldc;
  g.outer_a = 2 * g.stride_a;
  g.outer_b = 2 * g.stride_b;
  g.outer_c = 2 * g.stride_c;
  const auto normal = [](std::int64_t count, std::uint64_t seed) {
    return randn({count}, random_key(seed, "product", 0), dtype).to_vector<T>();
  };
  const std::vector<T> a = normal(kMatrices * g.stride_a, 1), b = normal(kMatrices * g.stride_b, 2),
                       bias = normal(c.n, 3);
  std::vector<T> result = normal(kMatrices * g.stride_c, 4);
  if (c.beta == 0)  // is not read
    for (std::int64_t i = 0; i < std::ssize(result); ++i)
      if (i % g.ldc < c.n) result[static_cast<std::size_t>(i)] = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> before = result;
  g.a = a.data();
  g.b = b.data();
  g.c = result.data();
  if (c.bias) {
    g.bias = bias.data();
    g.relu = true;
  }
  multiply_packing(g);
  double worst = 0;
  for (std::int64_t i = 0; i < std::ssize(result); ++i) {
    const std::int64_t matrix = i / g.stride_c, row = i % g.stride_c / g.ldc, column = i % g.ldc;
    const T got = result[static_cast<std::size_t>(i)], was = before[static_cast<std::size_t>(i)];
    if (column >= c.n) {
      CHECK(got == was);
      continue;
    }
    long double sum = c.beta == 0 ? 0 : static_cast<long double>(c.beta) * was, size = std::abs(sum);
    for (std::int64_t k = 0; k < c.k; ++k) {
      const std::int64_t left = matrix * g.stride_a + (c.transpose_a ? k * g.lda + row : row * g.lda + k),
                         right =
                             matrix * g.stride_b + (c.transpose_b ? column * g.ldb + k : k * g.ldb + column);
      const long double term = static_cast<long double>(c.alpha) * a[static_cast<std::size_t>(left)] *
                               b[static_cast<std::size_t>(right)];
      sum += term;
      size += std::abs(term);
    }
    if (c.bias) {
      size += std::abs(bias[static_cast<std::size_t>(column)]);
      sum = std::max<long double>(sum + bias[static_cast<std::size_t>(column)], 0);
    }
    const auto tolerance =
        static_cast<double>(static_cast<long double>(2 * c.k + 4) * std::numeric_limits<T>::epsilon() * size);
    const double error = std::abs(static_cast<double>(got - sum)) / tolerance;
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

void check(const Case& c) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  CAPTURE(c.transpose_a);
  CAPTURE(c.transpose_b);
  CAPTURE(c.alpha);
  CAPTURE(c.beta);
  CAPTURE(c.bias);
  CHECK(worst_error<float>(c) <= 1);
  CHECK(worst_error<double>(c) <= 1);
}

}  // namespace

TEST_CASE("own products: every product equals a sum in extended precision") {
  on_every_isa_level([] {
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {3, 17, 5}, {50, 70, 33}})
          for (const double alpha : {1.0, -0.5})
            for (const double beta : {0.0, 1.0, 0.25})
              check({m, n, k, transpose_a, transpose_b, alpha, beta, false});
        check({20, 37, 1000, transpose_a, transpose_b, 1, 1, false});  // several turns of inner indices
        check({20, 37, 19, transpose_a, transpose_b, 2, 0, true});
      }
  });
}

TEST_CASE("own products: the bits of a row depend neither on other rows nor on threads") {
  on_every_isa_level([] {
    constexpr std::int64_t kRows = 300, kColumns = 80, kInner = 70;
    const Tensor a = randn({kRows, kInner}, random_key(5, "a", 0), Dtype::f64),
                 b = randn({kColumns, kInner}, random_key(6, "b", 0), Dtype::f64);
    const auto product = [&](std::int64_t rows) {
      const Tensor c = Tensor::zeros({rows, kColumns}, Dtype::f64);
      GemmArgs g{};
      g.dtype = Dtype::f64;
      g.transpose_b = true;
      g.m = rows;
      g.n = kColumns;
      g.k = kInner;
      g.a = a.raw_data();
      g.b = b.raw_data();
      g.c = c.raw_data();
      g.lda = g.ldb = kInner;
      g.ldc = kColumns;
      multiply_packing(g);
      return c.to_vector<double>();
    };
    const std::vector<double> all = product(kRows), few = product(7);
    CHECK(std::equal(few.begin(), few.end(), all.begin()));
    const Threads two(2);
    CHECK(product(kRows) == all);
  });
}
