// The packed matrix product with factors rounded to bf16 and sums in f32: by VDPBF16PS (AVX512-BF16), or by the
// tiles of AMX. The interface is that of packed_gemm.h for f32, so callers need not know.
//
// A panel holds 32 columns; the two factors of neighbouring inner indices lie side by side as a pair of 32
// bits: [pairs][32]. Blocks of A are rounded into rows of pairs. An odd inner size is padded with a zero in both
// factors. Each element of C is one accumulation over pairs in rising order: its bits depend neither on the
// number of rows nor on threads. Both instructions round sums to nearest and take denormals as zeros; they add
// the products of a pair in different orders, so the bits of the two differ.
//
// Registers of a tile, AVX512-BF16: 12 x 2 vectors of C, 2 of B, 1 of A. AMX: 2 x 2 tiles of C, 2 of A, 2 of B.
#include "ops/cpu/isa.h"
#include "ops/product/packed_gemm.h"

#if defined(__AVX512F__)
#include "ops/cpu/bf16_pairs.h"
#include "ops/cpu/bf16_tiles.h"
#include "ops/cpu/transpose.h"
EDDY_TARGET_BEGIN("avx512bf16,amx-tile,amx-bf16")
#endif

namespace eddy::EDDY_ISA {
Bf16GemmKernels bf16_gemm_table();

#if defined(__AVX512F__)
namespace {

constexpr std::int64_t kWidth = 32;  // columns of a panel
constexpr std::int64_t kLanes = 16;  // floats, or pairs, of a vector
// Rows and pairs of the block of A that is rounded at a time: at most 192 KiB, for the second-level cache.
constexpr std::int64_t kRowBlock = 96, kPairBlock = 512;
// Pairs ahead of the one in use that are prefetched from a panel.
constexpr std::int64_t kAhead = 16;

using namespace bf16;

EDDY_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// What one panel is multiplied with: `rows` rows of `depth` pairs, `stride` pairs apart.
struct Block {
  std::int64_t rows, depth, stride;
  const Pair *a, *b;
  float* c;
  std::int64_t c_stride, columns;  // columns of C from here on, maybe more than a panel's
  bool accumulate;
};

template <int Rows>
__attribute__((noinline)) void dot_tile(const Block& x) {
  const __mmask16 left = mask_of(x.columns), right = mask_of(x.columns - kLanes);
  __m512 sum[Rows][2];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    sum[r][0] = x.accumulate ? _mm512_maskz_loadu_ps(left, x.c + r * x.c_stride) : _mm512_setzero_ps();
    sum[r][1] =
        x.accumulate ? _mm512_maskz_loadu_ps(right, x.c + r * x.c_stride + kLanes) : _mm512_setzero_ps();
  }
  const Pair* b = x.b;
  for (std::int64_t p = 0; p < x.depth; ++p, b += kWidth) {
    const auto b0 = reinterpret_cast<__m512bh>(_mm512_load_si512(b)),
               b1 = reinterpret_cast<__m512bh>(_mm512_load_si512(b + kLanes));
    __builtin_prefetch(b + kAhead * kWidth);
    __builtin_prefetch(b + kAhead * kWidth + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(x.a[r * x.stride + p])));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a, b0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a, b1);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    _mm512_mask_storeu_ps(x.c + r * x.c_stride, left, sum[r][0]);
    _mm512_mask_storeu_ps(x.c + r * x.c_stride + kLanes, right, sum[r][1]);
  }
}

// AVX512-BF16.
struct DotProducts {
  static constexpr std::int64_t kPairStep = 1;  // the pairs of a panel are a multiple of this
  static constexpr int kTileRows = 12;
  static void begin() {}
  static void end() {}

  template <int Rows = kTileRows>
  static void tile(const Block& x) {
    if constexpr (Rows > 1) {
      if (x.rows < Rows) return tile<Rows - 1>(x);
    }
    dot_tile<Rows>(x);
  }
  static void panel(const Block& block) {
    // Tiles of nearly equal height: a single row left over would cost as much as four.
    const std::int64_t tiles = (block.rows + kTileRows - 1) / kTileRows;
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t first = block.rows * t / tiles;
      Block x = block;
      x.rows = block.rows * (t + 1) / tiles - first;
      x.a += first * x.stride;
      x.c += first * x.c_stride;
      tile(x);
    }
  }
};

template <class Tiles>
struct TileProducts : Tiles {
  static constexpr std::int64_t kPairStep = 16;
  static constexpr std::int64_t kRows = 32;

  // 32 rows and a panel. A is scratch memory, in which rows past the last may be read; a tile of C that is cut
  // off by the edge goes through a buffer.
  static void square(const Block& x) {
    alignas(64) float edge[kRows * kWidth];
    const bool cut = x.rows < kRows || x.columns < kWidth;
    const std::int64_t columns = smaller(x.columns, kWidth);
    if (cut && x.accumulate)
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t j = 0; j < kWidth; ++j)
          edge[r * kWidth + j] = r < x.rows && j < columns ? x.c[r * x.c_stride + j] : 0.0f;
    float* const c = cut ? edge : x.c;
    const std::int64_t c_stride = cut ? kWidth : x.c_stride;
    constexpr std::int64_t word = sizeof(Pair);
    if (x.accumulate) {
      Tiles::template load<0>(c, c_stride * word);
      Tiles::template load<1>(c + 16, c_stride * word);
      Tiles::template load<2>(c + 16 * c_stride, c_stride * word);
      Tiles::template load<3>(c + 16 * c_stride + 16, c_stride * word);
    } else {
      Tiles::template zero<0>();
      Tiles::template zero<1>();
      Tiles::template zero<2>();
      Tiles::template zero<3>();
    }
    for (std::int64_t p = 0; p < x.depth; p += kPairStep) {
      Tiles::template load<6>(x.b + p * kWidth, kWidth * word);
      Tiles::template load<4>(x.a + p, x.stride * word);
      Tiles::template load<7>(x.b + p * kWidth + 16, kWidth * word);
      Tiles::template load<5>(x.a + 16 * x.stride + p, x.stride * word);
      Tiles::template multiply<0, 4, 6>();
      Tiles::template multiply<1, 4, 7>();
      Tiles::template multiply<2, 5, 6>();
      Tiles::template multiply<3, 5, 7>();
    }
    Tiles::template store<0>(c, c_stride * word);
    Tiles::template store<1>(c + 16, c_stride * word);
    Tiles::template store<2>(c + 16 * c_stride, c_stride * word);
    Tiles::template store<3>(c + 16 * c_stride + 16, c_stride * word);
    if (cut)
      for (std::int64_t r = 0; r < smaller(x.rows, kRows); ++r)
        for (std::int64_t j = 0; j < columns; ++j) x.c[r * x.c_stride + j] = edge[r * kWidth + j];
  }
  static void panel(const Block& block) {
    for (std::int64_t row = 0; row < block.rows; row += kRows) {
      Block x = block;
      x.rows = block.rows - row;
      x.a += row * x.stride;
      x.c += row * x.c_stride;
      square(x);
    }
  }
};

template <class Unit>
std::int64_t padded_pairs(std::int64_t inner) {
  return ((inner + 1) / 2 + Unit::kPairStep - 1) / Unit::kPairStep * Unit::kPairStep;
}

// Rounds rows of A, stored [rows, inner] or, transposed, [inner, rows], into rows of `stride` pairs. `a` is
// where the block begins, `inner` what is left of A from there.
template <bool kTransposed>
void round_block(const float* a, std::int64_t a_stride, std::int64_t rows, std::int64_t inner,
                 std::int64_t stride, Pair* out) {
  if constexpr (!kTransposed) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t p = 0; p < stride; p += kLanes)
        store(out + r * stride + p, pairs_along(a + r * a_stride + 2 * p, inner - 2 * p));
  } else {
    for (std::int64_t p = 0; p < stride; p += kLanes)
      for (std::int64_t r = 0; r < rows; r += kLanes) {
        PairVector square[kLanes];
        for (std::int64_t i = 0; i < kLanes; ++i) {
          const std::int64_t k = 2 * (p + i);
          const float* const first = a + k * a_stride + r;
          square[i] = k < inner ? pairs_across(first, k + 1 < inner ? first + a_stride : nullptr, rows - r)
                                : PairVector{};
        }
        transpose_square<kLanes>(square);
        for (std::int64_t i = 0; i < smaller(kLanes, rows - r); ++i)
          store(out + (r + i) * stride + p, square[i]);
      }
  }
}

template <class Unit, bool kTransposed>
void multiply(std::int64_t rows, std::int64_t inner, std::int64_t columns, std::int64_t panel_begin,
              std::int64_t panel_end, const float* a, std::int64_t a_stride, const float* packed, float* c,
              std::int64_t c_stride, bool accumulate) {
  alignas(64) Pair block[kRowBlock * kPairBlock];
  if (inner <= 0 && accumulate) return;
  const Pair* const panels = reinterpret_cast<const Pair*>(packed);
  const std::int64_t pairs = padded_pairs<Unit>(inner);
  Unit::begin();
  for (std::int64_t row = 0; row < rows; row += kRowBlock) {
    const std::int64_t count = smaller(kRowBlock, rows - row);
    std::int64_t p = 0;
    do {
      const std::int64_t depth = smaller(kPairBlock, pairs - p),
                         stride = (depth + kLanes - 1) / kLanes * kLanes;
      const float* const from = kTransposed ? a + 2 * p * a_stride + row : a + row * a_stride + 2 * p;
      round_block<kTransposed>(from, a_stride, count, inner - 2 * p, stride, block);
      for (std::int64_t panel = panel_begin; panel < panel_end; ++panel)
        Unit::panel({count, depth, stride, block, panels + (panel * pairs + p) * kWidth,
                     c + row * c_stride + panel * kWidth, c_stride, columns - panel * kWidth,
                     accumulate || p > 0});
      p += depth;
    } while (p < pairs);
  }
  Unit::end();
}

template <class Unit>
void pack(const float* w, std::int64_t w_stride, PackLayout layout, std::int64_t inner, std::int64_t columns,
          std::int64_t panel_begin, std::int64_t panel_end, float* packed) {
  const std::int64_t pairs = padded_pairs<Unit>(inner);
  for (std::int64_t column = panel_begin * kWidth; column < panel_end * kWidth; column += kLanes) {
    const std::int64_t panel = column / kWidth, here = columns - column;
    Pair* const out = reinterpret_cast<Pair*>(packed) + panel * pairs * kWidth + column % kWidth;
    if (layout == PackLayout::inner_by_columns) {
      for (std::int64_t p = 0; p < pairs; ++p) {
        const float* const first = w + 2 * p * w_stride + column;
        store(out + p * kWidth,
              2 * p < inner ? pairs_across(first, 2 * p + 1 < inner ? first + w_stride : nullptr, here)
                            : PairVector{});
      }
    } else {
      for (std::int64_t p = 0; p < pairs; p += kLanes) {
        PairVector square[kLanes];
        for (std::int64_t j = 0; j < kLanes; ++j)
          square[j] =
              j < here ? pairs_along(w + (column + j) * w_stride + 2 * p, inner - 2 * p) : PairVector{};
        transpose_square<kLanes>(square);
        for (std::int64_t i = 0; i < smaller(kLanes, pairs - p); ++i)
          store(out + (p + i) * kWidth, square[i]);
      }
    }
  }
}

template <class Unit>
PackedGemm<float> table() {
  return {kWidth, pack<Unit>, multiply<Unit, false>, multiply<Unit, true>, 2 * Unit::kPairStep, true};
}

}  // namespace

Bf16GemmKernels bf16_gemm_table() {
  return {table<DotProducts>(), table<TileProducts<AmxTiles>>(), table<TileProducts<EmulatedTiles>>()};
}
EDDY_TARGET_END
#else
Bf16GemmKernels bf16_gemm_table() {
  return {};
}
#endif

}  // namespace eddy::EDDY_ISA
