// The packed matrix product with factors rounded to bf16 and sums in f32: by VDPBF16PS (AVX512-BF16), by the tiles of
// AMX or, on ARM64, by BFMMLA (bf16_neon.h; what follows is on the first two). The interface is that of packed_gemm.h
// for f32, so callers need not know.
//
// A panel holds 32 columns; the two factors of neighbouring inner indices lie side by side as a pair of 32
// bits: [pairs][32]. Blocks of A are rounded into rows of pairs, or into tiles. An odd inner size is padded with a
// zero in both factors. Each element of C is one accumulation over pairs in rising order: its bits depend neither
// on the number of rows nor on threads. Both instructions round sums to nearest and take denormals as zeros; they add
// the products of a pair in different orders, so the bits of the two differ.
//
// Registers on AMX: 2 x 2 tiles of C, 2 of A, 2 of B. bf16_dots.h has VDPBF16PS.
#include "ops/product/bf16_dots.h"

#include "ops/cpu/isa.h"
#include "ops/product/packed_gemm.h"

#if defined(__AVX512F__)
#include "ops/cpu/bf16_pairs.h"
#include "ops/cpu/bf16_tiles.h"
#include "ops/cpu/transpose.h"
EDDY_TARGET_BEGIN("avx512bf16,amx-tile,amx-bf16")
#elif defined(__aarch64__)
#include "ops/product/bf16_neon.h"
#endif

namespace eddy::EDDY_ISA {
Bf16GemmKernels bf16_gemm_table();

#if defined(__AVX512F__)
namespace {

constexpr std::int64_t kPairBytes = sizeof(Pair);
constexpr std::int64_t kTile = kStep * kLanes;       // pairs of a tile
constexpr std::int64_t kPanelStep = kStep * kWidth;  // pairs of a panel in a step
// A block of A: as many rows as fit kBlockPairs, and not all of the inner axis if those would be fewer than kFewRows.
// If all panels fit the second-level cache beside it (2 MiB), 32 rows do; else each group of panels is read from
// memory once for a block.
constexpr std::int64_t kBlockPairs = 96 * 1024, kFewRows = 128, kPanelBytes = 1280 << 10,
                       kGroupBytes = 512 << 10;
// Where 32 rows are multiplied, a block of A is read for every panel and stays in the first-level cache, if panels do
// not push it out. They pass it by (TILELOADDT1) where the second-level cache keeps what is read again: all panels, two
// blocks of A, and C if it is added to, together no more than kNearBytes. Else so many steps are prefetched, past A.
// Each is 3 to 16 % faster where it is taken (docs/choices.md). With 16 rows the stream of panels from outer caches
// takes the time, and fetching lines early delays it.
constexpr std::int64_t kNearBytes = 1152 << 10, kAheadSteps = 2;

// 16 pairs of each of up to 16 columns of `a`, from k on, one vector per column; `a` is stored [inner, columns].
EDDY_INLINE void pairs_of_columns(const float* a, std::int64_t a_stride, std::int64_t columns, std::int64_t k,
                                  std::int64_t inner, PairVector* square) {
  for (std::int64_t i = 0; i < kLanes; ++i, k += 2) {
    const float* const first = a + k * a_stride;
    square[i] =
        k < inner ? pairs_across(first, k + 1 < inner ? first + a_stride : nullptr, columns) : PairVector{};
  }
  transpose_square<kLanes>(square);
}

// A block of A [rows, inner] on its way into tiles: [rows / 16][steps][16][16]. It is rounded while the block before it
// is multiplied, which hides most of the waiting for memory: `taken` rows or, where A is stored [inner, rows], tiles
// are done.
template <bool kTransposed>
struct Rounding {
  const float* a;
  std::int64_t a_stride, rows, inner, steps;
  Pair* to;
  std::int64_t taken = 0;

  EDDY_INLINE std::int64_t count() const { return kTransposed ? (rows + kLanes - 1) / kLanes * steps : rows; }
  EDDY_INLINE Pair* tile_at(std::int64_t row, std::int64_t step) const {
    return to + (row / kLanes * steps + step) * kTile;
  }
  EDDY_INLINE void round_row(std::int64_t row, std::int64_t step) const {
    store(tile_at(row, step) + row % kLanes * kStep,
          pairs_along(a + row * a_stride + 2 * kStep * step, inner - 2 * kStep * step));
  }
  EDDY_INLINE void fetch_row(std::int64_t row, std::int64_t step) const {
    const float* const at = a + row * a_stride + 2 * kStep * step;
    __builtin_prefetch(at, 0, 1);
    __builtin_prefetch(at + kLanes, 0, 1);
  }
  void round_tile(std::int64_t index) const {
    const std::int64_t across = (rows + kLanes - 1) / kLanes, row = index % across * kLanes,
                       step = index / across;
    PairVector square[kLanes];
    pairs_of_columns(a + row, a_stride, rows - row, 2 * kStep * step, inner, square);
    for (std::int64_t i = 0; i < kLanes; ++i) store(tile_at(row, step) + i * kStep, square[i]);
  }
  void round_rest() {
    for (; taken < count(); ++taken) {
      if constexpr (kTransposed) {
        round_tile(taken);
      } else {
        for (std::int64_t step = 0; step < steps; ++step) round_row(taken, step);
      }
    }
  }
};

// A square of C: 32 rows and a panel, or 16 rows and two panels. Rows of A past the last one may be read.
struct Square {
  std::int64_t rows, columns;  // of C from here on, maybe more than the square's
  std::int64_t steps;
  const Pair *a, *b;
  std::int64_t b_stride;  // from a panel to the next one
  float* c;
  std::int64_t c_stride;
  bool accumulate;
  const float* bias;  // of these columns, or null
  bool relu;
};

template <class Tiles>
struct TileProducts {
  EDDY_INLINE static void prefetch(const Pair* b, int line) {
#pragma GCC unroll 16
    for (int i = line; i < line + 16; ++i) __builtin_prefetch(b + kAheadSteps * kPanelStep + i * kLanes);
  }

  // Four tiles of sums: 2 x 2, or 1 x 4 with kTall false. A square that is cut off by the edge of C goes through a
  // buffer. Panels that are kNear pass the first-level cache by. Meanwhile `taking` more rows or tiles of the next
  // block are rounded.
  template <bool kTall, bool kNear, bool kTransposed>
  static void multiply(const Square& x, Rounding<kTransposed>& next, std::int64_t taking) {
    constexpr std::int64_t rows = kTall ? 32 : 16, columns = kTall ? kWidth : 2 * kWidth,
                           word = sizeof(float);
    alignas(64) float edge[rows * columns];
    const bool cut = x.rows < rows || x.columns < columns;
    const std::int64_t rows_here = smaller(x.rows, rows), columns_here = smaller(x.columns, columns);
    if (cut && (x.accumulate || x.bias != nullptr)) {
      const float* const from = x.accumulate ? x.c : x.bias;
      const std::int64_t stride = x.accumulate ? x.c_stride : 0;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < columns; ++j)
          edge[r * columns + j] = r < rows_here && j < columns_here ? from[r * stride + j] : 0.0f;
    }
    float* const c = cut ? edge : x.c;
    const std::int64_t stride = cut ? columns : x.c_stride, second = kTall ? kLanes * stride : 2 * kLanes;
    if (x.accumulate || (cut && x.bias != nullptr)) {
      begin_with(c, second, stride * word);
    } else if (x.bias != nullptr) {
      begin_with(x.bias, kTall ? 0 : 2 * kLanes, 0);
    } else {
      Tiles::template zero<0>();
      Tiles::template zero<1>();
      Tiles::template zero<2>();
      Tiles::template zero<3>();
    }
    taking = smaller(taking, next.count() - next.taken);
    if constexpr (kTransposed)
      for (std::int64_t i = 0; i < taking; ++i) next.round_tile(next.taken + i);
    const Pair *a = x.a, *b = x.b;
    std::int64_t line = 0;
    const std::int64_t lines_a_step = (rows + x.steps - 1) / larger(x.steps, 1);
    for (std::int64_t step = 0; step < x.steps; ++step, a += kTile, b += kPanelStep) {
      for (const std::int64_t end = smaller(line + lines_a_step, rows); line < end; ++line)
        for (std::int64_t j = 0; j < columns; j += kLanes) __builtin_prefetch(c + line * stride + j, 1);
      if constexpr (!kTransposed)
        for (std::int64_t i = 0; i < taking; ++i) {
          next.fetch_row(next.taken + taking + i, step);
          next.round_row(next.taken + i, step);
        }
      load_panel<kNear, 6>(b);
      Tiles::template load<4>(a, kStep * word);
      Tiles::template multiply<0, 4, 6>();
      load_panel<kNear, 7>(b + kLanes);
      Tiles::template multiply<1, 4, 7>();
      if constexpr (kTall) {
        if constexpr (!kNear) prefetch(b, 0);
        Tiles::template load<5>(a + x.steps * kTile, kStep * word);
        Tiles::template multiply<2, 5, 6>();
        if constexpr (!kNear) prefetch(b, 16);
        Tiles::template multiply<3, 5, 7>();
      } else {
        load_panel<kNear, 6>(b + x.b_stride);
        Tiles::template multiply<2, 4, 6>();
        load_panel<kNear, 7>(b + x.b_stride + kLanes);
        Tiles::template multiply<3, 4, 7>();
      }
    }
    if constexpr (!kTransposed)  // the next block may have more steps
      for (std::int64_t i = 0; i < taking; ++i)
        for (std::int64_t step = x.steps; step < next.steps; ++step) next.round_row(next.taken + i, step);
    next.taken += taking;
    Tiles::template store<0>(c, stride * word);
    Tiles::template store<1>(c + kLanes, stride * word);
    Tiles::template store<2>(c + second, stride * word);
    Tiles::template store<3>(c + second + kLanes, stride * word);
    if (cut) {
      for (std::int64_t r = 0; r < rows_here; ++r)
        for (std::int64_t j = 0; j < columns_here; ++j) x.c[r * x.c_stride + j] = edge[r * columns + j];
    }
    if (x.relu)
      for (std::int64_t r = 0; r < rows_here; ++r)
        for (std::int64_t j = 0; j < columns_here; j += kLanes) {
          float* const at = x.c + r * x.c_stride + j;
          const __mmask16 mask = mask_of(columns_here - j);
          _mm512_mask_storeu_ps(at, mask, rectified(_mm512_maskz_loadu_ps(mask, at)));
        }
  }

 private:
  // A tile of a panel.
  template <bool kNear, int Tile>
  EDDY_INLINE static void load_panel(const Pair* b) {
    constexpr std::int64_t bytes = kWidth * kPairBytes;
    if constexpr (kNear)
      Tiles::template load_once<Tile>(b, bytes);
    else
      Tiles::template load<Tile>(b, bytes);
  }
  // The sums begin with c; `second` is from the first two tiles to the others.
  EDDY_INLINE static void begin_with(const float* c, std::int64_t second, std::int64_t bytes) {
    Tiles::template load<0>(c, bytes);
    Tiles::template load<1>(c + kLanes, bytes);
    Tiles::template load<2>(c + second, bytes);
    Tiles::template load<3>(c + second + kLanes, bytes);
  }
};

template <class Tiles, bool kTransposed>
void multiply_by_tiles(const Product& g) {
  alignas(64) Pair blocks[2][kBlockPairs];
  if ((g.inner <= 0 && g.accumulate) || g.rows <= 0) return;
  const Pair* const panels = reinterpret_cast<const Pair*>(g.packed);
  const std::int64_t steps = (g.inner + 2 * kStep - 1) / (2 * kStep), panel_stride = steps * kPanelStep,
                     panel_bytes = panel_stride * kPairBytes, count = g.panel_end - g.panel_begin;
  const bool fits = count * panel_bytes <= kPanelBytes;
  const std::int64_t most_steps = kBlockPairs / kStep / (fits ? 32 : kFewRows),
                     parts = larger(1, (steps + most_steps - 1) / most_steps),
                     part_steps = larger(1, (steps + parts - 1) / parts);
  const std::int64_t block_rows = fits && !kTransposed ? 32 : kBlockPairs / kStep / part_steps / 32 * 32,
                     group = fits ? count : larger(2, kGroupBytes * parts / panel_bytes);
  // Bytes that the second-level cache keeps, if they fit (kNearBytes).
  const std::int64_t read_again = count * panel_bytes +
                                  2 * smaller(block_rows, g.rows) * part_steps * kStep * kPairBytes +
                                  (g.accumulate ? g.rows * count * kWidth * 4 : 0);
  const auto block_of = [&](std::int64_t row, std::int64_t part, Pair* to) {
    const std::int64_t first = steps * part / parts, k = 2 * kStep * first;
    return Rounding<kTransposed>{kTransposed ? g.a + k * g.a_stride + row : g.a + row * g.a_stride + k,
                                 g.a_stride,
                                 smaller(block_rows, g.rows - row),
                                 g.inner - k,
                                 steps * (part + 1) / parts - first,
                                 to};
  };
  Tiles::begin();
  Rounding<kTransposed> block = block_of(0, 0, blocks[0]);
  for (std::int64_t row = 0, part = 0, turn = 1; row < g.rows; turn ^= 1) {
    block.round_rest();
    const bool last_part = part + 1 == parts;
    const std::int64_t next_part = last_part ? 0 : part + 1, next_row = last_part ? row + block_rows : row;
    Rounding<kTransposed> next{};
    if (next_row < g.rows) next = block_of(next_row, next_part, blocks[turn]);
    const std::int64_t squares = (block.rows + 31) / 32 * count,
                       taking = (next.count() + squares - 1) / larger(squares, 1);
    for (std::int64_t first = g.panel_begin; first < g.panel_end; first += group)
      for (std::int64_t r = 0; r < block.rows; r += 32) {
        Square x{block.rows - r,
                 g.columns - first * kWidth,
                 block.steps,
                 block.tile_at(r, 0),
                 panels + first * panel_stride + steps * part / parts * kPanelStep,
                 panel_stride,
                 g.c + (row + r) * g.c_stride + first * kWidth,
                 g.c_stride,
                 g.accumulate || part > 0,
                 g.bias == nullptr ? nullptr : g.bias + first * kWidth,
                 g.relu && last_part};
        for (std::int64_t panel = first, end = smaller(first + group, g.panel_end); panel < end;) {
          const bool tall = x.rows > kLanes || panel + 1 == end;
          if (!tall)
            TileProducts<Tiles>::template multiply<false, false>(x, next, taking);
          else if (read_again <= kNearBytes)
            TileProducts<Tiles>::template multiply<true, true>(x, next, taking);
          else
            TileProducts<Tiles>::template multiply<true, false>(x, next, taking);
          const std::int64_t done = tall ? 1 : 2;
          panel += done;
          x.b += done * panel_stride;
          x.c += done * kWidth;
          x.columns -= done * kWidth;
          if (x.bias != nullptr) x.bias += done * kWidth;
        }
      }
    block = next;
    row = next_row;
    part = next_part;
  }
  Tiles::end();
}

// The instruction alone.
template <class Tiles>
std::int64_t multiply_tiles(std::int64_t rounds) {
  alignas(64) const Pair zeros[kTile] = {};
  Tiles::begin();
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  Tiles::template zero<2>();
  Tiles::template zero<3>();
  Tiles::template load<4>(zeros, kStep * kPairBytes);
  Tiles::template load<5>(zeros, kStep * kPairBytes);
  Tiles::template load<6>(zeros, kStep * kPairBytes);
  Tiles::template load<7>(zeros, kStep * kPairBytes);
  for (std::int64_t round = 0; round < rounds; ++round) {
    Tiles::template multiply<0, 4, 6>();
    Tiles::template multiply<1, 4, 7>();
    Tiles::template multiply<2, 5, 6>();
    Tiles::template multiply<3, 5, 7>();
  }
  Tiles::end();
  return rounds * 4 * kTile * 2 * kLanes;
}

// ---- Packing ----

// Panels are padded to a multiple of kPairStep pairs.
template <std::int64_t kPairStep>
void pack(const float* w, std::int64_t w_stride, PackLayout layout, std::int64_t inner, std::int64_t columns,
          std::int64_t panel_begin, std::int64_t panel_end, float* packed) {
  const std::int64_t pairs = ((inner + 1) / 2 + kPairStep - 1) / kPairStep * kPairStep;
  const std::int64_t begin = panel_begin * kWidth, end = panel_end * kWidth;
  const auto place = [&](std::int64_t pair, std::int64_t column) {
    return reinterpret_cast<Pair*>(packed) + (column / kWidth * pairs + pair) * kWidth + column % kWidth;
  };
  if (layout == PackLayout::inner_by_columns) {  // rows are read from end to end, as memory likes it
    for (std::int64_t p = 0; p < pairs; ++p)
      for (std::int64_t column = begin; column < end; column += kLanes) {
        const float* const first = w + 2 * p * w_stride + column;
        const bool inside = 2 * p < inner && column < columns;
        __builtin_prefetch(first + 2 * w_stride);  // the next two rows
        __builtin_prefetch(first + 3 * w_stride);
        store(place(p, column),
              inside ? pairs_across(first, 2 * p + 1 < inner ? first + w_stride : nullptr, columns - column)
                     : PairVector{});
      }
    return;
  }
  for (std::int64_t column = begin; column < end; column += kLanes)
    for (std::int64_t p = 0; p < pairs; p += kLanes) {
      PairVector square[kLanes];
      for (std::int64_t j = 0; j < kLanes; ++j)
        square[j] = column + j < columns ? pairs_along(w + (column + j) * w_stride + 2 * p, inner - 2 * p)
                                         : PairVector{};
      transpose_square<kLanes>(square);
      for (std::int64_t i = 0; i < smaller(kLanes, pairs - p); ++i) store(place(p + i, column), square[i]);
    }
}

template <class Tiles>
PackedGemm<float> tile_table() {
  return {kWidth,
          pack<kStep>,
          multiply_by_tiles<Tiles, false>,
          multiply_by_tiles<Tiles, true>,
          multiply_tiles<Tiles>,
          2 * kStep,
          true,
          kPackedInner};
}

}  // namespace

Bf16GemmKernels bf16_gemm_table() {
  return {{kWidth, pack<1>, multiply_by_dots<Lay::along>, multiply_by_dots<Lay::across>, multiply_registers,
           2, true, kPackedInner, true},
          tile_table<AmxTiles>(),
          tile_table<EmulatedTiles>(),
          {}};
}
EDDY_TARGET_END
#elif defined(__aarch64__)
Bf16GemmKernels bf16_gemm_table() {
  return {bf16_neon::table<bf16_neon::Bfmmla>(), {}, {}, bf16_neon::table<bf16_neon::EmulatedBfmmla>()};
}
#else
Bf16GemmKernels bf16_gemm_table() {
  return {};
}
#endif

}  // namespace eddy::EDDY_ISA
