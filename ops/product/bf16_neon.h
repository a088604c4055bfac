// The packed products of bf16_gemm.isa.cpp by BFMMLA (ARM64 with FEAT_BF16), which multiplies matrices of 2 x 4 and
// 4 x 2 numbers in bf16. Four neighbouring factors of a sum stand side by side, a quad; two quads of neighbouring rows
// of A, or columns of B, are a vector:
//
//   panel of B     [steps][kColumns / 2][2][4]      a step is four inner indices; past the end they are zeros
//   tile of A      [steps][kRows / 2][2][4]
//   sums           a vector is 2 x 2 elements of C
//
// Registers of a tile: 6 x 4 vectors of C, 4 of B, 1 of A. An element of C is one accumulation over pairs in rising
// order, as by two of BFDOT, which does half as much: its bits depend neither on the number of rows nor on threads. The
// instruction rounds each sum to odd (exact, or the neighbour whose last bit is 1) and takes denormals as zeros.
//
// The loops take the instruction as a template argument and have no other of a processor, so that tests run them with
// its emulation anywhere. Source: Arm Architecture Reference Manual, BFMMLA and shared/functions/float/bfloat.
#pragma once

#include <cstdint>

#include "ops/cpu/transpose.h"
#include "ops/product/packed_gemm.h"
#include "tensor/base/host_device.h"

namespace eddy::EDDY_ISA {
namespace bf16_neon {

typedef float Floats __attribute__((vector_size(16)));
typedef float LooseFloats __attribute__((vector_size(16), aligned(4), may_alias));
typedef std::uint32_t Bits __attribute__((vector_size(16)));
typedef std::uint16_t Quads __attribute__((vector_size(16), may_alias));  // two rows of four factors

// In assembly, so that functions need no target of their own: those of the emulation run without FEAT_BF16.
#if defined(__aarch64__)
struct Bfmmla {
  // sum + A B^T: `a` has two rows of A, `b` two columns of B.
  EDDY_INLINE static Floats multiply_add(Floats sum, Quads a, Quads b) {
    asm(".arch_extension bf16\n\tbfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
  }
  EDDY_INLINE static Quads round(Floats first, Floats second) {
    Quads rounded;
    asm(".arch_extension bf16\n\tbfcvtn %0.4h, %1.4s\n\tbfcvtn2 %0.8h, %2.4s"
        : "=&w"(rounded)
        : "w"(first), "w"(second));
    return rounded;
  }
};
#endif

// The same bit by bit.
struct EmulatedBfmmla {
  __attribute__((noinline)) static Floats multiply_add(Floats sum, Quads a, Quads b) {
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < 2; ++c)
        for (int k = 0; k < 4; k += 2) {
          const float pair = odd_sum(number(a[4 * r + k]) * number(b[4 * c + k]),
                                     number(a[4 * r + k + 1]) * number(b[4 * c + k + 1]));
          sum[2 * r + c] = odd_sum(sum[2 * r + c], pair);
        }
    return sum;
  }
  __attribute__((noinline)) static Quads round(Floats first, Floats second) {
    Quads rounded{};
    for (int i = 0; i < 8; ++i) {
      const float x = i < 4 ? first[i] : second[i - 4];
      const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
      rounded[i] = static_cast<std::uint16_t>(x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0);
    }
    return rounded;
  }

 private:
  // Denormals are zeros.
  static float flushed(std::uint32_t bits) {
    return __builtin_bit_cast(float, (bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
  }
  static float number(std::uint16_t half) { return flushed(static_cast<std::uint32_t>(half) << 16); }
  // x + y; a product of two bf16 is exact in f32.
  static float odd_sum(float x, float y) {
    const double a = static_cast<double>(flushed(__builtin_bit_cast(std::uint32_t, x))),
                 b = static_cast<double>(flushed(__builtin_bit_cast(std::uint32_t, y))), sum = a + b,
                 without_a = sum - a,
                 lost = (a - (sum - without_a)) + (b - without_a);  // what the sum in f64 rounds away
    const float near = static_cast<float>(sum);
    std::uint32_t bits = __builtin_bit_cast(std::uint32_t, near);
    if ((bits & 0x7f800000u) == 0x7f800000u) return near;
    const double kept = static_cast<double>(near), rest = (sum - kept) + lost;
    if (rest != 0) {
      if ((rest < 0) == (kept > 0)) --bits;  // towards zero
      bits |= 1;
    }
    return flushed(bits);
  }
};

constexpr std::int64_t kRows = 12, kColumns = 8, kStep = 4;
constexpr std::int64_t kRowPairs = kRows / 2, kColumnPairs = kColumns / 2;
// Rows and steps of a block of A: 96 KiB, in a second-level cache. A tile of it and its part of a panel, 12 and 8 KiB,
// stay in the first.
constexpr std::int64_t kRowBlock = 96, kBlockSteps = 128;

EDDY_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
EDDY_INLINE std::int64_t steps_of(std::int64_t inner) {
  return (inner + kStep - 1) / kStep;
}
// Up to four neighbouring floats; the rest are zeros.
EDDY_INLINE Floats quad(const float* x, std::int64_t count) {
  if (count >= 4) return *reinterpret_cast<const LooseFloats*>(x);
  Floats some{};
  for (std::int64_t i = 0; i < count; ++i) some[i] = x[i];
  return some;
}

// Rounds `rows` rows, of which a tile holds 2 kPairs, into [steps][kPairs][2][4]. They are stored [rows, inner] or,
// with kAcross, [inner, rows].
template <class Matrices, bool kAcross, std::int64_t kPairs>
void round_tile(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t inner, Quads* to) {
  for (std::int64_t k = 0; k < inner; k += kStep, to += kPairs)
    for (std::int64_t p = 0; p < kPairs; p += 2) {
      Floats of[4];  // rows 2 p to 2 p + 3
      for (std::int64_t i = 0; i < 4; ++i) {
        if constexpr (kAcross)
          of[i] = k + i < inner ? quad(x + (k + i) * stride + 2 * p, rows - 2 * p) : Floats{};
        else
          of[i] = 2 * p + i < rows ? quad(x + (2 * p + i) * stride + k, inner - k) : Floats{};
      }
      if constexpr (kAcross) transpose_square<4>(of);
      to[p] = Matrices::round(of[0], of[1]);
      to[p + 1] = Matrices::round(of[2], of[3]);
    }
}

// What the tiles of a block share, and where one of them is.
struct ProductTile {
  std::int64_t steps, rows, columns;  // of C from here on, maybe more than the tile's
  const Quads *a, *b;
  float* c;
  std::int64_t c_stride;
  const float* begin;  // what sums begin with, rows `begin_stride` apart: C, a bias, or null for zeros
  std::int64_t begin_stride;
  bool relu;
};

// Without the pragmas loops are unrolled too late for `sum` to stay in registers from start to end.
template <class Matrices, int kPairs>
void multiply_tile(const ProductTile& x) {
  alignas(16) float edge[2 * kPairs * kColumns];
  const std::int64_t rows = smaller(x.rows, 2 * kPairs), columns = smaller(x.columns, kColumns);
  const bool cut = rows < 2 * kPairs || columns < kColumns;
  const float* begin = x.begin;
  std::int64_t begin_stride = x.begin_stride;
  if (cut && begin != nullptr) {
    for (std::int64_t r = 0; r < 2 * kPairs; ++r)
      for (std::int64_t j = 0; j < kColumns; ++j)
        edge[r * kColumns + j] = r < rows && j < columns ? begin[r * begin_stride + j] : 0.0f;
    begin = edge;
    begin_stride = kColumns;
  }
  Floats sum[kPairs][kColumnPairs];
#pragma GCC unroll 6
  for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 2
    for (int q = 0; q < kColumnPairs; q += 2) {
      Floats upper{}, lower{};
      if (begin != nullptr) {
        const float* const at = begin + 2 * p * begin_stride + 2 * q;
        upper = *reinterpret_cast<const LooseFloats*>(at);
        lower = *reinterpret_cast<const LooseFloats*>(at + begin_stride);
      }
      sum[p][q] = __builtin_shufflevector(upper, lower, 0, 1, 4, 5);
      sum[p][q + 1] = __builtin_shufflevector(upper, lower, 2, 3, 6, 7);
    }
  const Quads *a = x.a, *b = x.b;
  for (std::int64_t step = 0; step < x.steps; ++step, a += kRowPairs, b += kColumnPairs) {
    Quads right[kColumnPairs];
#pragma GCC unroll 4
    for (int q = 0; q < kColumnPairs; ++q) right[q] = b[q];
#pragma GCC unroll 6
    for (int p = 0; p < kPairs; ++p) {
      const Quads left = a[p];
#pragma GCC unroll 4
      for (int q = 0; q < kColumnPairs; ++q) sum[p][q] = Matrices::multiply_add(sum[p][q], left, right[q]);
    }
  }
  float* const c = cut ? edge : x.c;
  const std::int64_t c_stride = cut ? kColumns : x.c_stride;
#pragma GCC unroll 6
  for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 2
    for (int q = 0; q < kColumnPairs; q += 2) {
      Floats rows_of[2] = {__builtin_shufflevector(sum[p][q], sum[p][q + 1], 0, 1, 4, 5),
                           __builtin_shufflevector(sum[p][q], sum[p][q + 1], 2, 3, 6, 7)};
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const Floats y = rows_of[i];
        *reinterpret_cast<LooseFloats*>(c + (2 * p + i) * c_stride + 2 * q) =
            x.relu ? (y > 0 ? y : (y == y ? Floats{} : y)) : y;  // NaN stays
      }
    }
  if (cut)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < columns; ++j) x.c[r * x.c_stride + j] = edge[r * kColumns + j];
}

template <class Matrices, int kPairs = kRowPairs>
void multiply_rows(const ProductTile& x) {
  if constexpr (kPairs > 1) {
    if (x.rows <= 2 * (kPairs - 1)) return multiply_rows<Matrices, kPairs - 1>(x);
  }
  multiply_tile<Matrices, kPairs>(x);
}

template <class Matrices, bool kTransposed>
void multiply(const detail::PanelProduct<float>& g) {
  alignas(64) Quads block[kRowBlock / 2 * kBlockSteps];
  if (g.inner <= 0 && g.accumulate) return;
  const Quads* const panels = reinterpret_cast<const Quads*>(g.packed);
  const std::int64_t all_steps = steps_of(g.inner);
  for (std::int64_t row = 0; row < g.rows; row += kRowBlock) {
    const std::int64_t rows = smaller(kRowBlock, g.rows - row);
    std::int64_t first = 0;  // step
    do {
      const std::int64_t steps = smaller(kBlockSteps, all_steps - first), k = first * kStep;
      for (std::int64_t r = 0; r < rows; r += kRows)
        round_tile<Matrices, kTransposed, kRowPairs>(
            kTransposed ? g.a + k * g.a_stride + row + r : g.a + (row + r) * g.a_stride + k, g.a_stride,
            rows - r, smaller(g.inner - k, steps * kStep), block + r / 2 * steps);
      const bool adds = g.accumulate || first > 0, last = first + steps == all_steps;
      for (std::int64_t panel = g.panel_begin; panel < g.panel_end; ++panel) {
        const std::int64_t column = panel * kColumns;
        for (std::int64_t r = 0; r < rows; r += kRows) {
          float* const c = g.c + (row + r) * g.c_stride + column;
          multiply_rows<Matrices>({steps, rows - r, g.columns - column, block + r / 2 * steps,
                                   panels + (panel * all_steps + first) * kColumnPairs, c, g.c_stride,
                                   adds                ? c
                                   : g.bias != nullptr ? g.bias + column
                                                       : nullptr,
                                   adds ? g.c_stride : 0, g.relu && last});
        }
      }
      first += steps;
    } while (first < all_steps);
  }
}

template <class Matrices>
void pack(const float* w, std::int64_t w_stride, detail::PackLayout layout, std::int64_t inner,
          std::int64_t columns, std::int64_t panel_begin, std::int64_t panel_end, float* packed) {
  for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
    Quads* const to = reinterpret_cast<Quads*>(packed) + panel * steps_of(inner) * kColumnPairs;
    const std::int64_t column = panel * kColumns;
    if (layout == detail::PackLayout::columns_by_inner)
      round_tile<Matrices, false, kColumnPairs>(w + column * w_stride, w_stride, columns - column, inner, to);
    else
      round_tile<Matrices, true, kColumnPairs>(w + column, w_stride, columns - column, inner, to);
  }
}

// The instruction alone.
template <class Matrices>
std::int64_t multiply_registers(std::int64_t rounds) {
  constexpr int kSums = kRowPairs * kColumnPairs;
  volatile float unknown[] = {0.5f, 1};  // not to be computed beforehand
  const Floats one = Floats{} + unknown[0], other = Floats{} + unknown[1];
  const Quads a = Matrices::round(one, one), b = Matrices::round(other, other);
  Floats sum[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i)
    sum[i] = Floats{} + static_cast<float>(i);  // different, lest one stand for all
  for (std::int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sum[i] = Matrices::multiply_add(sum[i], a, b);
#pragma GCC unroll 24
  for (int i = 1; i < kSums; ++i) sum[0] += sum[i];
  unknown[0] = sum[0][0];
  return rounds * kSums * 16;
}

template <class Matrices>
detail::PackedGemm<float> table() {
  return {kColumns,
          pack<Matrices>,
          multiply<Matrices, false>,
          multiply<Matrices, true>,
          multiply_registers<Matrices>,
          kStep,
          true,
          kBlockSteps * kStep};
}

}  // namespace bf16_neon
}  // namespace eddy::EDDY_ISA
