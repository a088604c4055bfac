// Products with a small factor or result on every instruction set of this machine, against a triple loop in
// double precision. Tolerance: as for the packed product, (2 inner + 2) eps sum |a b|, and one rounding more
// where C is added to (N. Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
#include "ops/product/gemm_small.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "ops/cpu/isa.h"
#include "tensor/threads/thread_pool.h"
#include "tests/support/isa_levels.h"
#include "tests/support/threads.h"

namespace {

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::test;

// Runs `body` on every instruction set that has the kernel.
template <class Body>
void on_every_level(Body body) {
  on_every_isa_level([&] {
    if (small_gemm_kernel().lanes > 0) body();
  });
}

std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<double>(seed >> 40) / static_cast<double>(1 << 23) - 1.0);
  }
  return values;
}

// C [m, n] = op(A) op(B) + beta C with `gap` elements between rows; C begins as `fill`, or as numbers with
// beta 1.
struct Product {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  double beta;
  std::int64_t gap = 3;
  std::int64_t lda = (transpose_a ? m : k) + gap, ldb = (transpose_b ? k : n) + gap, ldc = n + gap;
  std::vector<float> a = numbers((transpose_a ? k : m) * lda, 1), b = numbers((transpose_b ? n : k) * ldb, 2);
  std::vector<float> before = beta == 0 ? std::vector<float>(static_cast<std::size_t>(m * ldc),
                                                             std::numeric_limits<float>::quiet_NaN())
                                        : numbers(m * ldc, 3);
  std::vector<float> c = before;
  bool relu = false;

  GemmArgs args() {
    GemmArgs g{};
    g.dtype = Dtype::f32;
    g.transpose_a = transpose_a;
    g.transpose_b = transpose_b;
    g.m = m;
    g.n = n;
    g.k = k;
    g.a = a.data();
    g.lda = lda;
    g.b = b.data();
    g.ldb = ldb;
    g.c = c.data();
    g.ldc = ldc;
    g.beta = beta;
    g.relu = relu;
    return g;
  }
  float left(std::int64_t i, std::int64_t t) const {
    return a[static_cast<std::size_t>(transpose_a ? t * lda + i : i * lda + t)];
  }
  float right(std::int64_t t, std::int64_t j) const {
    return b[static_cast<std::size_t>(transpose_b ? j * ldb + t : t * ldb + j)];
  }
  // The largest error in units of its bound; huge when something beside the columns was written.
  double error() const {
    double worst = 0;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < ldc; ++j) {
        const auto at = static_cast<std::size_t>(i * ldc + j);
        if (j >= n) {
          if (std::memcmp(&c[at], &before[at], sizeof(float)) != 0) return 1e30;
          continue;
        }
        double sum = beta == 0 ? 0 : before[at], size = std::abs(sum);  // ReLU makes no error larger
        for (std::int64_t t = 0; t < k; ++t) {
          const double term = static_cast<double>(left(i, t)) * static_cast<double>(right(t, j));
          sum += term;
          size += std::abs(term);
        }
        const double bound = static_cast<double>(2 * k + 3) * std::numeric_limits<float>::epsilon() * size;
        const double want = relu ? std::max(sum, 0.0) : sum;
        const double ratio = std::abs(static_cast<double>(c[at]) - want) / bound;
        if (!std::isnan(worst) && !(ratio <= worst)) worst = ratio;
      }
    return worst;
  }
};

}  // namespace

TEST_CASE("small products: every layout and ragged size agrees with a triple loop") {
  struct Sizes {
    std::int64_t m, n, k;
  };
  on_every_level([] {
    for (const double beta : {0.0, 1.0}) {
      for (const Sizes s : {Sizes{64, 16, 1}, {65, 32, 7}, {131, 48, 33}, {200, 80, 96}, {300, 128, 260}})
        for (const bool transpose_b : {false, true}) {
          Product p{s.m < 128 && transpose_b ? s.m + 64 : s.m, s.n, s.k, false, transpose_b, beta};
          CAPTURE(p.m);
          CAPTURE(transpose_b);
          REQUIRE(try_small_gemm(p.args()));
          CHECK(p.error() <= 1);
          p.c = p.before;
          p.relu = true;  // also behind a bias, which is added to
          REQUIRE(try_small_gemm(p.args()));
          CHECK(p.error() <= 1);
        }
      for (const Sizes s : {Sizes{1, 16, 64}, {7, 32, 65}, {33, 48, 300}, {96, 80, 517}, {128, 96, 100}}) {
        Product p{s.m, s.n, s.k, true, false, beta};
        CAPTURE(p.m);
        REQUIRE(try_small_gemm(p.args()));
        CHECK(p.error() <= 1);
      }
    }
  });
}

TEST_CASE("small products: the bits depend neither on the threads nor on the other rows") {
  const Threads keep(thread_count());
  on_every_level([] {
    for (const bool transpose_a : {false, true}) {
      const std::int64_t rows = transpose_a ? 48 : 700;
      Product one{rows, 64, 2048, transpose_a, false, 0}, several = one;
      set_thread_count(1);
      REQUIRE(try_small_gemm(one.args()));
      set_thread_count(3);
      REQUIRE(try_small_gemm(several.args()));
      CHECK(std::memcmp(one.c.data(), several.c.data(), one.c.size() * sizeof(float)) == 0);
    }
    Product many{301, 64, 40, false, true, 0}, few = many;
    GemmArgs g = few.args();
    g.m = 150;
    REQUIRE(try_small_gemm(many.args()));
    REQUIRE(try_small_gemm(g));
    CHECK(std::memcmp(many.c.data(), few.c.data(),
                      static_cast<std::size_t>(149 * many.ldc + 64) * sizeof(float)) == 0);
  });
}

TEST_CASE("small products: what the kernel does not compute is left to the general product untouched") {
  on_every_level([] {
    const auto refused = [](Product p, auto&& change) {
      GemmArgs g = p.args();
      change(g);
      return !try_small_gemm(g) && std::memcmp(p.c.data(), p.before.data(), p.c.size() * sizeof(float)) == 0;
    };
    const auto as_is = [](GemmArgs&) {};
    const Product plain{200, 32, 32, false, false, 0};
    CHECK(refused(plain, [](GemmArgs& g) { g.alpha = 2; }));
    CHECK(refused(plain, [](GemmArgs& g) { g.beta = 0.5; }));
    CHECK(refused(plain, [](GemmArgs& g) { g.dtype = Dtype::f64; }));
    CHECK(refused(plain, [](GemmArgs& g) { g.n = 31; }));
    CHECK(refused({8, 32, 32, false, false, 0}, as_is));
    CHECK(refused({64, 1024, 512, false, false, 0}, as_is));
    CHECK(refused({256, 64, 100, true, false, 0}, as_is));
    CHECK(refused({32, 32, 100, true, true, 0}, as_is));
  });
}
