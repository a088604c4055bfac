// The packed products of bf16_gemm.isa.cpp by VDPBF16PS (AVX512-BF16). Panels are read as they lie; blocks of A are
// rounded into rows of pairs, and what comes next is fetched, rounded and packed amid the products. Registers of a
// tile: 12 x 2 vectors of C, 2 of B, 1 of A. Only bf16_gemm.isa.cpp includes this header.
#pragma once

#include "ops/cpu/isa.h"
#include "ops/product/packed_gemm.h"

#if defined(__AVX512F__)
#include "ops/cpu/bf16_pairs.h"

EDDY_TARGET_BEGIN("avx512bf16")
namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kWidth = 32;  // columns of a panel
constexpr std::int64_t kPackedInner = 256;
constexpr std::int64_t kLanes = 16;  // floats, or pairs, of a vector

using namespace bf16;
using Product = PanelProduct<float>;

EDDY_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
EDDY_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}
// max(x, 0); NaN stays. Not _mm512_max_ps: of its undefined operand g++ 12 warns.
EDDY_INLINE __m512 rectified(__m512 x) {
  return _mm512_maskz_max_ps(0xffff, _mm512_setzero_ps(), x);
}

// Rows and pairs of a block of A: at most 192 KiB, two of which are in the second-level cache.
constexpr std::int64_t kRowBlock = 96, kPairBlock = 512;
constexpr std::int64_t kStep = 16;  // pairs between two looks at what is done meanwhile, and of a tile's row
// Pairs ahead of the one in use that are prefetched from a panel.
constexpr std::int64_t kAhead = 16;

// How what is rounded lies: rows of pairs, or pairs of rows side by side, or panels.
enum class Lay { along, across, panels };

// A block of A, or panels of B, on their way into pairs: vector by vector, while what was rounded before is multiplied,
// so that nothing waits for memory. The source is stored [rows, inner] for `along`, else [inner, rows]; of panels of B,
// "rows" are the columns.
template <Lay kLay>
struct Rounded {
  const float* from;
  std::int64_t from_stride;
  std::int64_t rows;        // those past the last one are zeros
  std::int64_t inner;       // of the source from here on
  std::int64_t pairs;       // of this block
  std::int64_t first, end;  // rows, by 16
  Pair* to;

  struct Vector {
    std::int64_t major, minor;  // row and pair, or pair and row; the minor one by 16
  };
  Vector rounded{}, fetched{};  // the next ones

  static constexpr bool kAlong = kLay == Lay::along;
  static constexpr std::int64_t kFetchedAhead = 32;  // vectors

  // Across, an odd number of cache lines: those of a tile then fall into all sets of a cache.
  EDDY_INLINE std::int64_t stride() const {
    return kAlong ? (pairs + kLanes - 1) / kLanes * kLanes : kRowBlock + kLanes;
  }
  EDDY_INLINE std::int64_t major() const { return kAlong ? end : pairs; }
  EDDY_INLINE std::int64_t minor() const { return kAlong ? pairs : end; }
  EDDY_INLINE bool done() const { return rounded.major >= major(); }
  std::int64_t vectors() const {
    return kAlong ? end * ((pairs + kLanes - 1) / kLanes) : pairs * ((end - first + kLanes - 1) / kLanes);
  }
  EDDY_INLINE void advance(Vector& v) const {
    if ((v.minor += kLanes) < minor()) return;
    v.minor = first;
    ++v.major;
  }
  EDDY_INLINE void fetch() {
    if (fetched.major >= major()) return;
    const float* const at =
        from + (kAlong ? 1 : 2) * fetched.major * from_stride + (kAlong ? 2 : 1) * fetched.minor;
    __builtin_prefetch(at, 0, 2);
    __builtin_prefetch(at + (kAlong ? kLanes : from_stride), 0, 2);
    advance(fetched);
  }
  // Rounds the next vector, and fetches one further ahead.
  EDDY_INLINE void round() {
    if (done()) return;
    fetch();
    const auto [i, j] = rounded;
    if constexpr (kAlong) {
      store(to + i * stride() + j, pairs_along(from + i * from_stride + 2 * j, inner - 2 * j));
    } else {
      Pair* const at =
          kLay == Lay::across ? to + i * stride() + j : to + (j / kWidth * pairs + i) * kWidth + j % kWidth;
      const float* const row = from + 2 * i * from_stride + j;
      store(at, pairs_across(row, 2 * i + 1 < inner ? row + from_stride : nullptr, rows - j));
    }
    advance(rounded);
  }
  void begin() {
    rounded = fetched = {0, first};
    for (std::int64_t i = 0; i < kFetchedAhead; ++i) fetch();
  }
  void round_rest() {
    while (!done()) round();
  }
};

// What is done beside the products, a little at every step: so many vectors of the next block of A, and of the panels
// of B that the caller needs next.
template <Lay kLay>
struct Meanwhile {
  Rounded<kLay> block{};
  Rounded<Lay::panels> panels{};
  std::int64_t of_block = 0, of_panels = 0;

  EDDY_INLINE void step() {
    for (std::int64_t i = 0; i < of_block; ++i) block.round();
    for (std::int64_t i = 0; i < of_panels; ++i) panels.round();
  }
};

// What one panel is multiplied with: `rows` rows of `depth` pairs of a rounded block.
struct Block {
  std::int64_t rows, depth, stride;
  const Pair *a, *b;
  float* c;
  std::int64_t c_stride, columns;  // columns of C from here on, maybe more than a panel's
  bool accumulate;
  const float* bias;  // of these columns, or null
  bool relu;
  const float* next_c;  // where the next tile of C begins
};

// A tile of C. The lines of the next one are fetched, and what comes next is rounded, a little at every step: lines
// that are asked for all at once keep those of the panel waiting. Products are 11 to 23 % faster so than with neither
// (docs/choices.md).
template <int Rows, Lay kLay>
__attribute__((noinline)) void dot_tile(const Block& x, Meanwhile<kLay>& meanwhile) {
  const __mmask16 left = mask_of(x.columns), right = mask_of(x.columns - kLanes);
  const bool begins = x.accumulate || x.bias != nullptr;
  const float* const first = x.accumulate ? x.c : x.bias;
  const std::int64_t first_stride = x.accumulate ? x.c_stride : 0;
  __m512 sum[Rows][2];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    sum[r][0] = begins ? _mm512_maskz_loadu_ps(left, first + r * first_stride) : _mm512_setzero_ps();
    sum[r][1] =
        begins ? _mm512_maskz_loadu_ps(right, first + r * first_stride + kLanes) : _mm512_setzero_ps();
  }
  const Pair *a = x.a, *b = x.b;
  const std::int64_t steps = (x.depth + kStep - 1) / kStep, lines = (Rows + steps - 1) / larger(steps, 1);
  std::int64_t line = 0;
  for (std::int64_t left_over = x.depth; left_over > 0; left_over -= kStep) {
    for (const std::int64_t end = smaller(line + lines, Rows); line < end; ++line) {
      __builtin_prefetch(x.next_c + line * x.c_stride, 1);
      __builtin_prefetch(x.next_c + line * x.c_stride + kLanes, 1);
    }
    meanwhile.step();
    for (const Pair* const end = b + smaller(kStep, left_over) * kWidth; b < end; b += kWidth) {
      const auto b0 = reinterpret_cast<__m512bh>(_mm512_load_si512(b)),
                 b1 = reinterpret_cast<__m512bh>(_mm512_load_si512(b + kLanes));
      __builtin_prefetch(b + kAhead * kWidth);
      __builtin_prefetch(b + kAhead * kWidth + kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < Rows; ++r) {
        const auto pair = reinterpret_cast<__m512bh>(
            _mm512_set1_epi32(static_cast<int>(a[kLay == Lay::along ? r * x.stride : r])));
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], pair, b0);
        sum[r][1] = _mm512_dpbf16_ps(sum[r][1], pair, b1);
      }
      a += kLay == Lay::along ? 1 : x.stride;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
    _mm512_mask_storeu_ps(x.c + r * x.c_stride, left, x.relu ? rectified(sum[r][0]) : sum[r][0]);
    _mm512_mask_storeu_ps(x.c + r * x.c_stride + kLanes, right, x.relu ? rectified(sum[r][1]) : sum[r][1]);
  }
}

constexpr int kDotRows = 12;

template <Lay kLay, int Rows = kDotRows>
void dot_rows(const Block& x, Meanwhile<kLay>& meanwhile) {
  if constexpr (Rows > 1) {
    if (x.rows < Rows) return dot_rows<kLay, Rows - 1>(x, meanwhile);
  }
  dot_tile<Rows, kLay>(x, meanwhile);
}

// Tiles of nearly equal height: a single row left over would cost as much as four.
template <Lay kLay>
void dot_panel(const Block& block, Meanwhile<kLay>& meanwhile) {
  const std::int64_t tiles = (block.rows + kDotRows - 1) / kDotRows;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t first = block.rows * t / tiles, end = block.rows * (t + 1) / tiles;
    Block x = block;
    x.rows = end - first;
    x.a += first * (kLay == Lay::along ? x.stride : 1);
    x.c += first * x.c_stride;
    x.next_c = t + 1 < tiles ? block.c + end * x.c_stride : block.c + kWidth;
    dot_rows(x, meanwhile);
  }
}

template <Lay kLay>
void multiply_by_dots(const Product& g) {
  alignas(64) Pair blocks[2][(kRowBlock + kLanes) * kPairBlock];
  Meanwhile<kLay> meanwhile;
  if (const auto& later = g.later; later.panel_begin < later.panel_end) {
    meanwhile.panels = {later.b,
                        later.stride,
                        later.columns,
                        later.inner,
                        (later.inner + 1) / 2,
                        later.panel_begin * kWidth,
                        later.panel_end * kWidth,
                        reinterpret_cast<Pair*>(later.packed)};
    meanwhile.panels.begin();
  }
  const Pair* const panels = reinterpret_cast<const Pair*>(g.packed);
  const std::int64_t pairs = (g.inner + 1) / 2, steps = (pairs + kStep - 1) / kStep,
                     parts = larger(1, (pairs + kPairBlock - 1) / kPairBlock);
  const auto block_of = [&](std::int64_t row, std::int64_t part, Pair* to) {
    const std::int64_t first = kStep * (steps * part / parts), k = 2 * first,
                       rows = smaller(kRowBlock, g.rows - row);
    Rounded<kLay> block{kLay == Lay::along ? g.a + row * g.a_stride + k : g.a + k * g.a_stride + row,
                        g.a_stride,
                        rows,
                        g.inner - k,
                        smaller(kStep * (steps * (part + 1) / parts), pairs) - first,
                        0,
                        rows,
                        to};
    block.begin();
    return block;
  };
  // Steps of the products with so many rows and pairs.
  const auto steps_of = [&](std::int64_t rows, std::int64_t of_pairs) {
    return larger(1, (rows + kDotRows - 1) / kDotRows * (g.panel_end - g.panel_begin) *
                         ((of_pairs + kStep - 1) / kStep));
  };
  const auto shared = [](std::int64_t vectors, std::int64_t by_steps) {
    return (vectors + by_steps - 1) / by_steps;
  };
  meanwhile.of_panels = shared(meanwhile.panels.vectors(), steps_of(g.rows, pairs));
  if (g.rows > 0 && (g.inner > 0 || !g.accumulate)) {
    Rounded<kLay> block = block_of(0, 0, blocks[0]);
    for (std::int64_t row = 0, part = 0, turn = 1; row < g.rows; turn ^= 1) {
      block.round_rest();
      const bool last_part = part + 1 == parts;
      const std::int64_t next_part = last_part ? 0 : part + 1, next_row = last_part ? row + block.rows : row,
                         first = kStep * (steps * part / parts);
      meanwhile.block = {};
      if (next_row < g.rows) meanwhile.block = block_of(next_row, next_part, blocks[turn]);
      meanwhile.of_block = shared(meanwhile.block.vectors(), steps_of(block.rows, block.pairs));
      for (std::int64_t panel = g.panel_begin; panel < g.panel_end; ++panel)
        dot_panel({block.rows, block.pairs, block.stride(), block.to,
                   panels + (panel * pairs + first) * kWidth, g.c + row * g.c_stride + panel * kWidth,
                   g.c_stride, g.columns - panel * kWidth, g.accumulate || part > 0,
                   g.bias == nullptr ? nullptr : g.bias + panel * kWidth, g.relu && last_part, nullptr},
                  meanwhile);
      block = meanwhile.block;
      row = next_row;
      part = next_part;
    }
  }
  meanwhile.panels.round_rest();
}

// The instruction alone.
std::int64_t multiply_registers(std::int64_t rounds) {
  constexpr int kSums = 24;
  volatile Pair unknown[] = {0x3f003f00, 0x3f803f80};  // not to be computed beforehand
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(unknown[0]))),
             b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(unknown[1])));
  __m512 sum[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i)
    sum[i] = _mm512_set1_ps(static_cast<float>(i));  // different, lest one stand for all
  for (std::int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
#pragma GCC unroll 24
  for (int i = 1; i < kSums; ++i) sum[0] += sum[i];
  unknown[0] = static_cast<Pair>(_mm512_cvtss_f32(sum[0]) > 0);
  return rounds * kSums * 2 * kLanes;
}

}  // namespace
}  // namespace eddy::EDDY_ISA
EDDY_TARGET_END
#endif
