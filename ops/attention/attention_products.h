// The ways in which attention's kernels multiply: by the register tile of attention_tile.h, or on the tiles of AMX. A
// kernel takes one as a template argument P:
//
//   Factor       what products read: T, or pairs of factors of a sum rounded to bf16
//   kRows        rows that one product computes
//   kQueryTile   query rows of a tile, a multiple of kRows
//   kStep        elements of a sum: begin and end of a product's inner axis are multiples of this
//   product      C = A B, or C += A B, for kRows rows; all in scratch memory, in whole vectors of columns
//   across       the place of a row and a column of a score tile as factors of sums over rows,
//   round_across, which rounds a score tile to such pairs, with kMovesAcross never in the same memory, and
//   product_across, which multiplies them: C's rows are kRows columns of that tile
//
// Only *.isa.cpp files include this header.
#pragma once

#include "ops/attention/attention_scratch.h"
#include "ops/attention/attention_tile.h"
#include "ops/cpu/bf16_tiles.h"
#include "ops/cpu/isa.h"

namespace eddy::EDDY_ISA::attention_tile {

// By registers; pairs by VDPBF16PS. Factors of sums over rows lie as the score tile does, a row for each factor.
template <class T, class F>
struct RegisterProducts {
  using Factor = F;
  static constexpr std::int64_t kRows = attention_tile::kRows, kQueryTile = 48, kStep = kInner<F>;
  static constexpr bool kMovesAcross = false;
  static_assert(kQueryTile <= kAttentionQueryTile);
  static void begin() {}
  static void end() {}
  EDDY_INLINE static void product(std::int64_t inner, std::int64_t columns, const F* a, std::int64_t a_stride,
                                  const F* b, std::int64_t b_stride, T* c, std::int64_t c_stride,
                                  bool accumulate) {
    attention_tile::product<false>(inner, columns, a, a_stride, b, b_stride, c, c_stride, accumulate);
  }
  EDDY_INLINE static void product_across(std::int64_t inner, std::int64_t columns, const F* a,
                                         std::int64_t a_stride, const F* b, std::int64_t b_stride, T* c,
                                         std::int64_t c_stride, bool accumulate) {
    attention_tile::product<true>(inner, columns, a, a_stride, b, b_stride, c, c_stride, accumulate);
  }
  EDDY_INLINE static F* across(F* x, std::int64_t row, std::int64_t column, std::int64_t stride) {
    return x + row / kInner<F> * stride + column;
  }
  EDDY_INLINE static void round_across(const T* x, std::int64_t stride, std::int64_t count,
                                       std::int64_t columns, F* to) {
    for (std::int64_t r = 0; r < count; r += 2)
      pair_rows(x + r * stride, r + 1 < count ? x + (r + 1) * stride : nullptr, columns, to + r / 2 * stride);
  }
};

#if defined(__AVX512F__)
EDDY_TARGET_BEGIN("avx512bf16,amx-tile,amx-bf16")

// C = A B or C += A B for 16 Rows rows and 16 Columns columns.
template <class Tiles, int Rows, int Columns>
EDDY_INLINE void multiply_square(std::int64_t pairs, const Pair* a, std::int64_t a_stride, const Pair* b,
                                 std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulate) {
  constexpr std::int64_t word = sizeof(Pair);
  const std::int64_t a_bytes = a_stride * word, b_bytes = b_stride * word, c_bytes = c_stride * word;
  if (accumulate) {
    Tiles::template load<0>(c, c_bytes);
    if constexpr (Columns > 1) Tiles::template load<1>(c + 16, c_bytes);
    if constexpr (Rows > 1) Tiles::template load<2>(c + 16 * c_stride, c_bytes);
    if constexpr (Rows > 1 && Columns > 1) Tiles::template load<3>(c + 16 * c_stride + 16, c_bytes);
  } else {
    Tiles::template zero<0>();
    if constexpr (Columns > 1) Tiles::template zero<1>();
    if constexpr (Rows > 1) Tiles::template zero<2>();
    if constexpr (Rows > 1 && Columns > 1) Tiles::template zero<3>();
  }
  for (std::int64_t p = 0; p < pairs; p += 16, a += 16, b += 16 * b_stride) {
    Tiles::template load<6>(b, b_bytes);
    Tiles::template load<4>(a, a_bytes);
    Tiles::template multiply<0, 4, 6>();
    if constexpr (Columns > 1) {
      Tiles::template load<7>(b + 16, b_bytes);
      Tiles::template multiply<1, 4, 7>();
    }
    if constexpr (Rows > 1) {
      Tiles::template load<5>(a + 16 * a_stride, a_bytes);
      Tiles::template multiply<2, 5, 6>();
      if constexpr (Columns > 1) Tiles::template multiply<3, 5, 7>();
    }
  }
  Tiles::template store<0>(c, c_bytes);
  if constexpr (Columns > 1) Tiles::template store<1>(c + 16, c_bytes);
  if constexpr (Rows > 1) Tiles::template store<2>(c + 16 * c_stride, c_bytes);
  if constexpr (Rows > 1 && Columns > 1) Tiles::template store<3>(c + 16 * c_stride + 16, c_bytes);
}

// C = A B or C += A B for 32 rows and whole vectors of columns.
template <class Tiles>
__attribute__((noinline)) void multiply_rows(std::int64_t pairs, std::int64_t columns, const Pair* a,
                                             std::int64_t a_stride, const Pair* b, std::int64_t b_stride,
                                             float* c, std::int64_t c_stride, bool accumulate) {
  std::int64_t j = 0;
  for (; j + 16 < columns; j += 32)
    multiply_square<Tiles, 2, 2>(pairs, a, a_stride, b + j, b_stride, c + j, c_stride, accumulate);
  if (j < columns)
    multiply_square<Tiles, 2, 1>(pairs, a, a_stride, b + j, b_stride, c + j, c_stride, accumulate);
}

// Rounds `count` rows and whole vectors of columns to pairs of neighbouring rows: row j of `to`, a `to_stride` after
// the one before, holds those of column j, up to a multiple of 16 pairs.
__attribute__((noinline)) inline void round_columns(const float* x, std::int64_t stride, std::int64_t count,
                                                    std::int64_t columns, Pair* to, std::int64_t to_stride) {
  for (std::int64_t row = 0; row < count; row += 32)
    for (std::int64_t j = 0; j < columns; j += 16) {
      bf16::PairVector square[16];
      for (std::int64_t i = 0; i < 16; ++i) {
        const std::int64_t first = row + 2 * i;
        square[i] = first < count
                        ? bf16::pairs_across(x + first * stride + j,
                                             first + 1 < count ? x + (first + 1) * stride + j : nullptr, 16)
                        : bf16::PairVector{};
      }
      transpose_square<16>(square);
      for (std::int64_t i = 0; i < 16; ++i) bf16::store(to + (j + i) * to_stride + row / 2, square[i]);
    }
}
EDDY_TARGET_END

// On tiles. Factors of sums over rows lie as a tile reads them: a row for each column of the score tile, with the pairs
// of neighbouring query rows side by side.
struct TileProducts {
  using Factor = Pair;
  static constexpr std::int64_t kRows = 32, kQueryTile = 64, kStep = 32, kAcrossStride = kQueryTile / 2;
  static constexpr bool kMovesAcross = true;
  static_assert(kQueryTile <= kAttentionQueryTile);
  static void begin() {
    with_tiles([]<class Tiles>(Tiles) { Tiles::begin(); });
  }
  static void end() {
    with_tiles([]<class Tiles>(Tiles) { Tiles::end(); });
  }
  // Calls body(Tiles{}) with the tiles in use.
  template <class Body>
  EDDY_INLINE static void with_tiles(Body&& body) {
    if (emulates_tiles())
      body(bf16::EmulatedTiles{});
    else
      body(bf16::AmxTiles{});
  }
  static void product(std::int64_t pairs, std::int64_t columns, const Pair* a, std::int64_t a_stride,
                      const Pair* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
                      bool accumulate) {
    with_tiles([&]<class Tiles>(Tiles) {
      multiply_rows<Tiles>(pairs, columns, a, a_stride, b, b_stride, c, c_stride, accumulate);
    });
  }
  static void product_across(std::int64_t pairs, std::int64_t columns, const Pair* a, std::int64_t,
                             const Pair* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
                             bool accumulate) {
    product(pairs, columns, a, kAcrossStride, b, b_stride, c, c_stride, accumulate);
  }
  EDDY_INLINE static Pair* across(Pair* x, std::int64_t row, std::int64_t column, std::int64_t) {
    return x + column * kAcrossStride + row / 2;
  }
  static void round_across(const float* x, std::int64_t stride, std::int64_t count, std::int64_t columns,
                           Pair* to) {
    round_columns(x, stride, count, columns, to, kAcrossStride);
  }
};

#endif

}  // namespace eddy::EDDY_ISA::attention_tile
