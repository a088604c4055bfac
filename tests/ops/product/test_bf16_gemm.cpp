// Products whose factors are rounded to bf16: by AVX512-BF16, by AMX or BFMMLA where it is, and by the loops of AMX
// with its instructions in plain C++. Those of BFMMLA run on every processor so, in a namespace of this file.
#define EDDY_ISA isa_emulated
#include "ops/product/bf16_neon.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/core/parameter_cache.h"
#include "ops/cpu/isa.h"
#include "ops/product/linear.h"
#include "ops/product/packed_gemm.h"
#include "ops/product/product.h"
#include "tensor/create.h"
#include "tensor/random/random_tensors.h"
#include "tensor/threads/thread_pool.h"
#include "tests/support/isa_levels.h"

namespace eddy {

using namespace detail;

namespace {

using Floats = std::vector<float>;

namespace neon = isa_emulated::bf16_neon;

struct Table {
  const char* name;
  PackedGemm<float> gemm;
  double unit = 0x1p-24;                   // to which a sum is rounded
  std::int64_t most_products = 1LL << 40;  // that a case of a test computes
};

// Tables that run here.
std::vector<Table> tables() {
  const Bf16GemmKernels& kernels = bf16_gemm_kernels();
  std::vector<Table> found{{"emulated bfmmla", neon::table<neon::EmulatedBfmmla>(), 0x1p-23, 1 << 23}};
  if (best_isa_level() == IsaLevel::neon_bf16) found.push_back({"bfmmla", kernels.dot, 0x1p-23});
  if (best_isa_level() >= IsaLevel::avx512_bf16) {
    found.push_back({"dot", kernels.dot});
    found.push_back({"emulated amx", kernels.emulated_amx});
  }
  if (best_isa_level() >= IsaLevel::amx) found.push_back({"amx", kernels.amx});
  return found;
}

// A product of all panels; `a` is [rows, inner], or [inner, rows] if `transposed`.
Floats multiplied(const PackedGemm<float>& gemm, const Floats& a, bool transposed, const Floats& w,
                  PackLayout layout, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                  const Floats* added = nullptr) {
  const Tensor packed = Tensor::empty({gemm.packed_elements(inner, columns)});
  float* const panels = packed.mutable_data<float>();
  const std::int64_t count = gemm.panels(columns);
  gemm.pack(w.data(), layout == PackLayout::inner_by_columns ? columns : inner, layout, inner, columns, 0,
            count, panels);
  Floats c = added != nullptr ? *added
                              : Floats(static_cast<std::size_t>(rows * columns),
                                       std::numeric_limits<float>::quiet_NaN());  // must not be read
  const auto multiply = transposed ? gemm.multiply_transposed : gemm.multiply;
  multiply({rows, inner, columns, 0, count, a.data(), transposed ? rows : inner, panels, c.data(), columns,
            added != nullptr});
  return c;
}

Floats transposed(const Floats& x, std::int64_t rows, std::int64_t columns) {
  Floats y(x.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      y[static_cast<std::size_t>(j * rows + i)] = x[static_cast<std::size_t>(i * columns + j)];
  return y;
}

Floats random_floats(std::int64_t count) {
  return randn({count}).to_vector<float>();
}

double rounded(float x) {
  return static_cast<double>(raw::cast(raw::cast(tensor(x), Dtype::bf16), Dtype::f64).item());
}

}  // namespace

TEST_CASE("bf16 products: sums of rounded factors, at odd sizes, for every layout") {
  manual_seed(5);
  for (const auto& [name, gemm, unit, most_products] : tables()) {
    CAPTURE(name);
    for (const auto& [rows, inner, columns] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{{1, 1, 1},
                                                                           {3, 2, 33},
                                                                           {12, 31, 32},
                                                                           {13, 33, 31},
                                                                           {25, 64, 65},
                                                                           {97, 1025, 40},
                                                                           {100, 1100, 3},
                                                                           {70, 2600, 300}}) {
      CAPTURE(rows);
      CAPTURE(inner);
      CAPTURE(columns);
      if (rows * inner * columns > most_products) continue;
      const Floats a = random_floats(rows * inner), w = random_floats(inner * columns),
                   added = random_floats(rows * columns);
      const Floats c = multiplied(gemm, a, false, w, PackLayout::inner_by_columns, rows, inner, columns);
      CHECK(c == multiplied(gemm, a, false, transposed(w, inner, columns), PackLayout::columns_by_inner, rows,
                            inner, columns));
      CHECK(c == multiplied(gemm, transposed(a, rows, inner), true, w, PackLayout::inner_by_columns, rows,
                            inner, columns));
      const Floats sum =
          multiplied(gemm, a, false, w, PackLayout::inner_by_columns, rows, inner, columns, &added);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; j += 1 + columns / 3) {
          double exact = 0, size = 0;
          for (std::int64_t k = 0; k < inner; ++k) {
            const double term = rounded(a[static_cast<std::size_t>(i * inner + k)]) *
                                rounded(w[static_cast<std::size_t>(k * columns + j)]);
            exact += term;
            size += std::abs(term);
          }
          const auto at = static_cast<std::size_t>(i * columns + j);
          // Each of the `inner` sums rounds once, to `unit` of at most `size`.
          const double bound = static_cast<double>(inner) * unit * size;
          CHECK(std::abs(static_cast<double>(c[at]) - exact) <= bound);
          CHECK(std::abs(static_cast<double>(sum[at]) - exact - static_cast<double>(added[at])) <=
                bound + static_cast<double>(inner + 1) * unit * std::abs(static_cast<double>(added[at])));
        }
    }
  }
}

TEST_CASE("bf16 products: BFMMLA has the bits of its emulation, of large, tiny and cancelling sums") {
  if (best_isa_level() != IsaLevel::neon_bf16) return;
  manual_seed(11);
  constexpr std::int64_t kRows = 30, kInner = 90, kColumns = 20;
  Floats a = random_floats(kRows * kInner), w = random_floats(kInner * kColumns);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::ldexp(a[i], static_cast<int>(i * i % 120) - 66);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::ldexp(w[i], static_cast<int>(i % 120) - 66);
  const Floats by_instruction =
      multiplied(bf16_gemm_kernels().dot, a, false, w, PackLayout::inner_by_columns, kRows, kInner, kColumns);
  CHECK(by_instruction == multiplied(bf16_gemm_kernels().emulated_dot, a, false, w,
                                     PackLayout::inner_by_columns, kRows, kInner, kColumns));
}

TEST_CASE("bf16 products: a bias is what sums begin with, and ReLU comes last") {
  manual_seed(8);
  for (const auto& [name, gemm, unit, most] : tables()) {
    CAPTURE(name);
    for (const auto& [rows, inner, columns] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
             {1, 1, 1}, {16, 33, 64}, {40, 1100, 70}}) {
      CAPTURE(rows);
      const Floats a = random_floats(rows * inner), w = random_floats(inner * columns),
                   bias = random_floats(columns);
      Floats begin;
      for (std::int64_t r = 0; r < rows; ++r) begin.insert(begin.end(), bias.begin(), bias.end());
      Floats expected =
          multiplied(gemm, a, false, w, PackLayout::inner_by_columns, rows, inner, columns, &begin);
      for (float& x : expected) x = std::max(x, 0.0f);
      const Tensor packed = Tensor::empty({gemm.packed_elements(inner, columns)});
      float* const panels = packed.mutable_data<float>();
      const std::int64_t count = gemm.panels(columns);
      gemm.pack(w.data(), columns, PackLayout::inner_by_columns, inner, columns, 0, count, panels);
      Floats c(static_cast<std::size_t>(rows * columns));
      gemm.multiply({rows, inner, columns, 0, count, a.data(), inner, panels, c.data(), columns, false,
                     bias.data(), true});
      CHECK(c == expected);
    }
  }
}

TEST_CASE("bf16 products: a row alone has the bits that it has among others") {
  manual_seed(6);
  constexpr std::int64_t kRows = 40, kInner = 70, kColumns = 50;
  const Floats a = random_floats(kRows * kInner), w = random_floats(kInner * kColumns);
  for (const auto& [name, gemm, unit, most] : tables()) {
    CAPTURE(name);
    const Floats all = multiplied(gemm, a, false, w, PackLayout::inner_by_columns, kRows, kInner, kColumns);
    for (std::int64_t row = 0; row < kRows; row += 13) {
      const Floats one(a.begin() + row * kInner, a.begin() + (row + 1) * kInner);
      const Floats c = multiplied(gemm, one, false, w, PackLayout::inner_by_columns, 1, kInner, kColumns);
      CHECK(c == Floats(all.begin() + row * kColumns, all.begin() + (row + 1) * kColumns));
    }
  }
}

TEST_CASE("bf16 products: an odd inner size is padded without NaN, and infinities stay") {
  for (const auto& [name, gemm, unit, most] : tables()) {
    CAPTURE(name);
    const Floats a(3 * 3, INFINITY), w(3 * 2, 1);
    CHECK(multiplied(gemm, a, false, w, PackLayout::inner_by_columns, 3, 3, 2) == Floats(6, INFINITY));
    CHECK(multiplied(gemm, a, true, w, PackLayout::columns_by_inner, 3, 3, 2) == Floats(6, INFINITY));
    const Floats tiny(3, 1e-40f);  // denormals count as zeros, in whole vectors and at the edge
    CHECK(multiplied(gemm, tiny, false, w, PackLayout::inner_by_columns, 1, 3, 2) == Floats(2, 0.0f));
  }
}

TEST_CASE("linear with rounded factors: the same bits for any number of threads, and near f32") {
  manual_seed(7);
  const Tensor x = randn({300, 129}), w = randn({70, 129}), bias = randn({70});
  const Floats exact = linear(x, w, bias).to_vector<float>();
  if (!test::has_rounded_products()) return;
  mark_parameters(w, MatmulPrecision::bf16);
  const int threads = thread_count();
  Floats first;
  for (const int count : {1, 2}) {
    set_thread_count(count);
    const Floats y = linear(x, w, bias).to_vector<float>();
    if (first.empty()) first = y;
    CHECK(first == y);
  }
  set_thread_count(threads);
  const Tensor few = linear(raw::narrow(x, 0, 7, 1), w, bias);
  CHECK(few.to_vector<float>() == Floats(first.begin() + 7 * 70, first.begin() + 8 * 70));
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst, static_cast<double>(std::abs(exact[i] - first[i])));
  CHECK(worst < 129 * 0x1p-8);  // each factor of 129 products of the size of 1 is off by at most 2^-9
  CHECK(worst > 0);
}

// A gradient adds over rows in turns, and may be cut into parts and columns;
// the product of the copied transpose does not.
TEST_CASE("bf16 products: the gradient of a weight has the same bits in turns, in parts and in one product") {
  if (!test::has_rounded_products()) return;
  manual_seed(9);
  const int threads = thread_count();
  for (const auto& [rows, in, out] : std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
           {300, 129, 70}, {1025, 96, 200}, {513, 17, 385}, {600, 4200, 40}}) {
    CAPTURE(rows);
    CAPTURE(in);
    const Tensor x = randn({rows, in}), dy = randn({rows, out}), before = randn({out, in});
    const Tensor dy_transposed = raw::transpose(dy, 0, 1);
    const auto gradient = [&](const Tensor& left, double beta) {
      const Tensor dw = raw::copy(before);
      multiply_into(dw, left, x, beta, {.precision = MatmulPrecision::bf16});
      return dw.to_vector<float>();
    };
    for (const double beta : {0.0, 1.0}) {
      const Floats whole = gradient(raw::contiguous(dy_transposed), beta);
      for (const int count : {1, 2, 3, 4}) {
        set_thread_count(count);
        CHECK(gradient(dy_transposed, beta) == whole);
      }
      set_thread_count(threads);
    }
  }
}

TEST_CASE("bf16 products: panels that are packed beside a product are those that are packed alone") {
  manual_seed(10);
  for (const auto& [name, gemm, unit, most] : tables()) {
    CAPTURE(name);
    if (!gemm.packs_later) continue;
    for (const auto& [rows, inner, columns] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
             {0, 5, 3}, {1, 1, 33}, {13, 255, 100}, {100, 64, 64}}) {
      CAPTURE(inner);
      const Floats b = random_floats(inner * columns), a = random_floats(rows * inner);
      const std::int64_t count = gemm.panels(columns), elements = gemm.packed_elements(inner, columns);
      const Tensor packed = Tensor::zeros({elements}), later = Tensor::full({elements}, NAN);
      gemm.pack(b.data(), columns, PackLayout::inner_by_columns, inner, columns, 0, count,
                packed.mutable_data<float>());
      Floats c(static_cast<std::size_t>(rows * columns));
      for (std::int64_t panel = 0; panel < count; ++panel) {  // by pieces
        PanelProduct<float> piece{
            rows, inner, columns, panel, panel + 1, a.data(), inner, packed.data<float>(), c.data(), columns};
        piece.later = {b.data(), columns, inner, columns, panel, panel + 1, later.mutable_data<float>()};
        gemm.multiply(piece);
      }
      CHECK(std::memcmp(packed.raw_data(), later.raw_data(), static_cast<std::size_t>(packed.bytes())) == 0);
    }
  }
}

TEST_CASE("bf16 products: the gradient of a weight with a short side is that in f32") {
  if (!test::has_rounded_products()) return;
  const Tensor x = randn({300, 32});
  for (const std::int64_t side : {kLeastRoundedSide - 1, kLeastRoundedSide}) {
    const Tensor dy = randn({300, side});
    const auto gradient = [&](MatmulPrecision precision) {
      const Tensor dw = Tensor::empty({side, 32});
      multiply_into(dw, raw::transpose(dy, 0, 1), x, 0, {.precision = precision});
      return dw.to_vector<float>();
    };
    CHECK((gradient(MatmulPrecision::bf16) == gradient(MatmulPrecision::f32)) == (side < kLeastRoundedSide));
  }
}

}  // namespace eddy
