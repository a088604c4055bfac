// The packed matrix product on every instruction set of this machine, against a triple loop in double
// precision. Tolerance: an accumulation over `inner` steps errs by at most (inner + 1) eps sum |a b|, with
// the products of the build without fused multiply-add rounded too, so (2 inner + 2) eps sum |a b| bounds all
// levels (N. Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
#include "ops/product/packed_gemm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/cpu/isa.h"
#include "tests/support/isa_levels.h"
#include "tests/support/threads.h"

namespace {

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::test;

template <class T>
const PackedGemm<T>& kernels() {
  if constexpr (std::is_same_v<T, float>) {
    return packed_gemm_kernels().f32;
  } else {
    return packed_gemm_kernels().f64;
  }
}

// Numbers in [-1, 1) from a linear congruential generator.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 40) / static_cast<double>(1 << 23) - 1.0;
  }
  template <class T>
  std::vector<T> many(std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) value = static_cast<T>(next());
    return values;
  }

 private:
  std::uint64_t state_;
};

// 64-byte aligned memory filled with a value.
template <class T>
class Aligned {
 public:
  Aligned(std::int64_t count, T value)
      : data_(static_cast<T*>(
            ::operator new (static_cast<std::size_t>(count) * sizeof(T) + 64, std::align_val_t{64}))) {
    for (std::int64_t i = 0; i < count; ++i) data_[i] = value;
  }
  ~Aligned() { ::operator delete (data_, std::align_val_t{64}); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  T* data() { return data_; }

 private:
  T* data_;
};

// One product: sizes, strides with a gap of `gap` elements, and its operands.
template <class T>
struct Product {
  std::int64_t rows, columns, inner, gap;
  PackLayout layout;
  std::int64_t a_stride = inner + gap, c_stride = columns + gap;
  std::int64_t w_rows = layout == PackLayout::inner_by_columns ? inner : columns;
  std::int64_t w_stride = (layout == PackLayout::inner_by_columns ? columns : inner) + 2 * gap;
  Numbers numbers{static_cast<std::uint64_t>(rows * 1000003 + columns * 1009 + inner)};
  std::vector<T> a = numbers.many<T>(rows * a_stride + 1);
  std::vector<T> w = numbers.many<T>(w_rows * w_stride + 1);
  // NaN in the packed buffer beforehand: padding that is not written would show.
  Aligned<T> packed{kernels<T>().packed_elements(inner, columns) + 1, std::numeric_limits<T>::quiet_NaN()};

  void pack() {
    kernels<T>().pack(w.data(), w_stride, layout, inner, columns, 0, kernels<T>().panels(columns),
                      packed.data());
  }
  void multiply(std::int64_t begin, std::int64_t end, T* c, bool accumulate, const T* bias = nullptr,
                bool relu = false) {
    kernels<T>().multiply({rows, inner, columns, begin, end, a.data(), a_stride, packed.data(), c, c_stride,
                           accumulate, bias, relu});
  }
  double left(std::int64_t row, std::int64_t k) const {
    return a[static_cast<std::size_t>(row * a_stride + k)];
  }
  double right(std::int64_t k, std::int64_t column) const {
    return w[static_cast<std::size_t>(layout == PackLayout::inner_by_columns ? k * w_stride + column
                                                                             : column * w_stride + k)];
  }
};

// Checks C = A B and C += A B of one product, and that nothing but C is written.
template <class T>
void check_product(std::int64_t rows, std::int64_t columns, std::int64_t inner, std::int64_t gap,
                   PackLayout layout) {
  Product<T> product{rows, columns, inner, gap, layout};
  product.pack();
  constexpr std::int64_t kGuard = 16;
  const T guard = T(-777.25);
  const double eps = std::numeric_limits<T>::epsilon();
  for (const bool accumulate : {false, true}) {
    std::vector<T> memory(static_cast<std::size_t>(rows * product.c_stride + 2 * kGuard), guard);
    T* c = memory.data() + kGuard;
    std::vector<T> before(memory.size());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < columns; ++j)
        c[r * product.c_stride + j] =
            accumulate ? static_cast<T>(product.numbers.next()) : std::numeric_limits<T>::quiet_NaN();
    before = memory;
    product.multiply(0, kernels<T>().panels(columns), c, accumulate);
    double worst = 0;
    bool guards_hold = true;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i) - kGuard;
      const std::int64_t r = at >= 0 ? at / product.c_stride : -1, j = at - r * product.c_stride;
      if (r < 0 || r >= rows || j >= columns) {
        guards_hold = guards_hold && memory[i] == guard;
        continue;
      }
      double sum = accumulate ? static_cast<double>(before[i]) : 0.0, size = std::abs(sum);
      for (std::int64_t k = 0; k < inner; ++k) {
        const double term = product.left(r, k) * product.right(k, j);
        sum += term;
        size += std::abs(term);
      }
      const double error =
          std::abs(static_cast<double>(memory[i]) - sum) /
          (static_cast<double>(2 * inner + 2) * eps * size + std::numeric_limits<double>::min());
      if (!std::isnan(worst) && !(error <= worst)) worst = error;
    }
    CAPTURE(rows);
    CAPTURE(columns);
    CAPTURE(inner);
    CAPTURE(gap);
    CAPTURE(accumulate);
    CHECK(guards_hold);
    CHECK(worst <= 1.0);
  }
}

template <class T>
void check_sizes() {
  for (const PackLayout layout : {PackLayout::inner_by_columns, PackLayout::columns_by_inner}) {
    for (std::int64_t rows = 1; rows <= 19; ++rows)
      for (const std::int64_t columns : {1, 7, 48, 49, 100})
        for (const std::int64_t inner : {1, 3, 64}) check_product<T>(rows, columns, inner, rows % 3, layout);
    for (const std::int64_t rows : {1, 8, 17}) check_product<T>(rows, 100, 129, 5, layout);
  }
}

TEST_CASE_TEMPLATE("a packed product equals the triple loop at odd sizes and strides", T, float, double) {
  on_every_isa_level([] { check_sizes<T>(); });
}

TEST_CASE_TEMPLATE("a packed product is right beyond one block of rows and of inner indices", T, float,
                   double) {
  on_every_isa_level([] {
    check_product<T>(300, 9, 5, 1, PackLayout::inner_by_columns);
    check_product<T>(205, 70, 400, 2, PackLayout::columns_by_inner);
    check_product<T>(3, 50, 4100, 0, PackLayout::columns_by_inner);
    check_product<T>(17, 33, 2049, 0, PackLayout::columns_by_inner);
  });
}

TEST_CASE_TEMPLATE("a bias is what sums begin with, and ReLU comes last", T, float, double) {
  on_every_isa_level([] {
    for (const auto& [rows, columns] : {std::pair{13, 1}, std::pair{13, 100}, std::pair{61, 50}}) {
      Product<T> product{rows, columns, 2100, 0, PackLayout::columns_by_inner};
      product.pack();
      const std::vector<T> bias = Numbers(columns).many<T>(columns);
      std::vector<T> expected, c(static_cast<std::size_t>(rows * columns));
      for (int row = 0; row < rows; ++row) expected.insert(expected.end(), bias.begin(), bias.end());
      const std::int64_t panels = kernels<T>().panels(columns);
      product.multiply(0, panels, expected.data(), true);
      for (T& x : expected) x = std::max(x, T(0));
      product.multiply(0, panels, c.data(), false, bias.data(), true);
      CHECK(c == expected);
    }
  });
}

TEST_CASE_TEMPLATE("an inner size of 0 gives zeros or leaves C as it was", T, float, double) {
  on_every_isa_level([] {
    Product<T> product{5, 20, 0, 0, PackLayout::inner_by_columns};
    product.pack();
    std::vector<T> c(100, T(3));
    product.multiply(0, kernels<T>().panels(20), c.data(), true);
    CHECK(c == std::vector<T>(100, T(3)));
    product.multiply(0, kernels<T>().panels(20), c.data(), false);
    CHECK(c == std::vector<T>(100, T(0)));
  });
}

TEST_CASE_TEMPLATE("no rows or no columns write nothing", T, float, double) {
  on_every_isa_level([] {
    T c[4] = {T(1), T(2), T(3), T(4)};
    for (const bool rows_missing : {true, false}) {
      Product<T> product{rows_missing ? 0 : 2, rows_missing ? 2 : 0, 3, 0, PackLayout::columns_by_inner};
      product.pack();
      product.multiply(0, kernels<T>().panels(product.columns), c, false);
    }
    CHECK(c[0] == T(1));
    CHECK(c[3] == T(4));
  });
}

TEST_CASE_TEMPLATE("packing and multiplying by parts gives the bits of the whole", T, float, double) {
  on_every_isa_level([] {
    const std::int64_t rows = 19, columns = 151, inner = 70, panels = kernels<T>().panels(columns);
    for (const bool accumulate : {false, true}) {
      Product<T> whole{rows, columns, inner, 3, PackLayout::columns_by_inner};
      Product<T> parts{rows, columns, inner, 3, PackLayout::columns_by_inner};
      whole.pack();
      std::vector<T> c_whole = Numbers(5).many<T>(rows * whole.c_stride), c_parts = c_whole;
      whole.multiply(0, panels, c_whole.data(), accumulate);
      for (std::int64_t panel = panels; panel-- > 0;) {
        kernels<T>().pack(parts.w.data(), parts.w_stride, parts.layout, inner, columns, panel, panel + 1,
                          parts.packed.data());
        parts.multiply(panel, panel + 1, c_parts.data(), accumulate);
      }
      CHECK(std::memcmp(whole.packed.data(), parts.packed.data(),
                        static_cast<std::size_t>(kernels<T>().packed_elements(inner, columns)) * sizeof(T)) ==
            0);
      CHECK(std::memcmp(c_whole.data(), c_parts.data(), c_whole.size() * sizeof(T)) == 0);
    }
  });
}

TEST_CASE_TEMPLATE("a row has the same bits alone and among others", T, float, double) {
  on_every_isa_level([] {
    const std::int64_t rows = 150, columns = 70, inner = 90, panels = kernels<T>().panels(columns);
    Product<T> product{rows, columns, inner, 0, PackLayout::inner_by_columns};
    product.pack();
    std::vector<T> together(static_cast<std::size_t>(rows * columns)),
        alone(static_cast<std::size_t>(columns));
    product.multiply(0, panels, together.data(), false);
    for (const std::int64_t row : {0, 7, 8, 77, 149}) {
      kernels<T>().multiply({1, inner, columns, 0, panels, product.a.data() + row * inner, inner,
                             product.packed.data(), alone.data(), columns});
      CHECK(std::memcmp(alone.data(), together.data() + row * columns, alone.size() * sizeof(T)) == 0);
    }
  });
}

TEST_CASE("a transposed A gives the bits of the same rows") {
  on_every_isa_level([] {
    const auto multiply_transposed = kernels<float>().multiply_transposed;
    if (multiply_transposed == nullptr) return;
    for (const std::int64_t rows : {1, 11, 48, 205})
      for (const std::int64_t columns : {33, 100})
        for (const std::int64_t inner : {5, 400}) {
          Product<float> product{rows, columns, inner, 0, PackLayout::inner_by_columns};
          product.pack();
          std::vector<float> across(static_cast<std::size_t>(rows * inner));
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t k = 0; k < inner; ++k)
              across[static_cast<std::size_t>(k * rows + r)] =
                  product.a[static_cast<std::size_t>(r * inner + k)];
          const std::int64_t panels = kernels<float>().panels(columns);
          std::vector<float> plain = Numbers(3).many<float>(rows * columns), c = plain;
          product.multiply(0, panels, plain.data(), true);
          multiply_transposed({rows, inner, columns, 0, panels, across.data(), rows, product.packed.data(),
                               c.data(), columns, true});
          CHECK(c == plain);
        }
  });
}

TEST_CASE(
    "a product that packs both factors: the bits of one panel after the other, for any number of threads") {
  on_every_isa_level([] {
    if (kernels<float>().multiply_transposed == nullptr) return;
    // More columns than are packed at a time.
    const std::int64_t rows = 70, columns = 700, inner = 1600;
    Product<float> product{rows, columns, inner, 0, PackLayout::columns_by_inner};
    product.pack();
    std::vector<float> expected(static_cast<std::size_t>(rows * columns)), c(expected.size());
    product.multiply(0, kernels<float>().panels(columns), expected.data(), false);
    for (const int threads : {1, 2}) {
      const Threads use(threads);
      GemmArgs g{Dtype::f32,       false, true,     rows,   columns, inner, product.a.data(), inner,
                 product.w.data(), inner, c.data(), columns};
      g.beta = 0;
      multiply_packing(g);
      CHECK(c == expected);
    }
  });
}

TEST_CASE_TEMPLATE("a NaN in one row of A stays in its row", T, float, double) {
  on_every_isa_level([] {
    Product<T> product{9, 50, 20, 0, PackLayout::columns_by_inner};
    product.pack();
    product.a[4 * 20 + 3] = std::numeric_limits<T>::quiet_NaN();
    std::vector<T> c(9 * 50);
    product.multiply(0, kernels<T>().panels(50), c.data(), false);
    std::int64_t outside = 0, inside = 0;
    for (std::size_t i = 0; i < c.size(); ++i) (i / 50 == 4 ? inside : outside) += std::isnan(c[i]) ? 1 : 0;
    CHECK(inside == 50);
    CHECK(outside == 0);
  });
}

}  // namespace
