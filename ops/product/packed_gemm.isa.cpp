// The packed matrix product for one instruction set; see packed_gemm.h. A register tile of up to kTileRows
// rows by kTileVectors vectors of C stays in registers over the inner loop; B is read from its panel in
// storage order. With few rows the product is bound by the stream of B from the outer caches (one recurrent
// step uses more weights than the second-level cache holds), so the row tiles of a panel prefetch the next
// panel while they compute, each its share. Of many rows A is packed too, block by block.
#include "ops/product/packed_gemm.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/transpose.h"

#if !EDDY_F64_HERE
namespace eddy::isa_baseline {
detail::PackedGemmKernels packed_gemm_table();
}
#endif

namespace eddy::EDDY_ISA {
PackedGemmKernels packed_gemm_table();
Bf16GemmKernels bf16_gemm_table();
void install_packed_gemm();

namespace {

// Register tiles: AVX-512 has 32 vector registers (12 x 2 sums, 2 of B, 1 of A), and so has NEON (6 x 4, 4, 2), the
// others 16 (6 x 2, 2, 1). Rows of A that are read in place take a general register each, so that a tile of AVX-512 has
// 8 of them. GFLOP/s of its tile of packed rows alone, in the caches: 238 (12 x 2), 218 (8 x 3), 238 (14 x 2); one core
// of an Intel Xeon (Sapphire Rapids or newer).
#if defined(__aarch64__)
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;
#endif
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kTileRows = 8;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kTileRows = 6;
#else
constexpr int kVectorBytes = 16;
constexpr int kTileRows = 6;
#endif

// Rows and inner bytes of one pass over a panel: kRowBlock rows of A (1 MiB) and a panel (at most 384 KiB)
// stay in a second-level cache of 2 MiB. Measured there, f32: inner blocks of 256 elements lose 3-10 % to
// reloads of C.
constexpr std::int64_t kRowBlock = 128;
constexpr std::int64_t kInnerBlockBytes = 8192;
constexpr std::int64_t kLineBytes = 64;

// A vector of T, and the same for memory that is aligned to one element only.
template <class T>
struct Vector {
  static constexpr std::int64_t lanes = kVectorBytes / static_cast<std::int64_t>(sizeof(T));
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T loose __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias));
};

template <class T>
constexpr std::int64_t panel_width = Vector<T>::lanes* kTileVectors;

// What the sums of a tile begin with: zeros where `from` is null, else rows `stride` apart; C itself or a bias.
template <class T>
struct Begin {
  const T* from;
  std::int64_t stride;
};

// One register tile: Rows rows of A by Vectors vectors of a panel, of which `columns` columns exist in C.
// Every step of the inner loop prefetches Lines cache lines at `ahead`.
template <class T, int Vectors, int Lines, int Rows>
void tile(std::int64_t inner, const T* a, std::int64_t a_stride, const T* b, T* c, std::int64_t c_stride,
          std::int64_t columns, Begin<T> begin, bool relu, const char* ahead) {
  using Vec = typename Vector<T>::type;
  using Loose = typename Vector<T>::loose;
  constexpr std::int64_t lanes = Vector<T>::lanes;
  constexpr std::int64_t tile_columns = Vectors * lanes;
  // A tile that is cut off by the edge of C goes through a buffer.
  T edge[Rows * tile_columns];
  const bool cut = columns < tile_columns;
  T* out = cut ? edge : c;
  const std::int64_t out_stride = cut ? tile_columns : c_stride;
  if (cut && begin.from != nullptr) {
    for (int r = 0; r < Rows; ++r)
      for (std::int64_t j = 0; j < tile_columns; ++j)
        edge[r * tile_columns + j] = j < columns ? begin.from[r * begin.stride + j] : T(0);
    begin = {edge, tile_columns};
  }
  Vec sum[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v)
      sum[r][v] = begin.from != nullptr
                      ? *reinterpret_cast<const Loose*>(begin.from + r * begin.stride + v * lanes)
                      : Vec{};
  const T* row[Rows];
  for (int r = 0; r < Rows; ++r) row[r] = a + r * a_stride;
  for (std::int64_t k = 0; k < inner; ++k) {
    Vec right[Vectors];
    for (int v = 0; v < Vectors; ++v) right[v] = *reinterpret_cast<const Vec*>(b + v * lanes);
    b += panel_width<T>;
    for (int line = 0; line < Lines; ++line) __builtin_prefetch(ahead + line * kLineBytes, 0, 2);
    ahead += Lines * kLineBytes;
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < Vectors; ++v) sum[r][v] += row[r][k] * right[v];
  }
  if (relu)  // NaN stays
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < Vectors; ++v)
        sum[r][v] = sum[r][v] > 0 ? sum[r][v] : (sum[r][v] == sum[r][v] ? Vec{} : sum[r][v]);
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<Loose*>(out + r * out_stride + v * lanes) = sum[r][v];
  if (cut) {
    for (int r = 0; r < Rows; ++r)
      for (std::int64_t j = 0; j < columns; ++j) c[r * c_stride + j] = edge[r * tile_columns + j];
  }
}

template <class T>
using TileKernel = void (*)(std::int64_t, const T*, std::int64_t, const T*, T*, std::int64_t, std::int64_t,
                            Begin<T>, bool, const char*);

template <class T, int Vectors, int Lines, int Rows = kTileRows>
TileKernel<T> tile_of_rows(std::int64_t rows) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return tile_of_rows<T, Vectors, Lines, Rows - 1>(rows);
  }
  return tile<T, Vectors, Lines, Rows>;
}

// The tile for a panel with fewer than kTileVectors vectors: the last one, with nothing after it to prefetch.
template <class T, int Vectors = kTileVectors>
TileKernel<T> last_tile(std::int64_t rows, std::int64_t vectors) {
  if constexpr (Vectors > 1) {
    if (vectors < Vectors) return last_tile<T, Vectors - 1>(rows, vectors);
  }
  return tile_of_rows<T, Vectors, 0>(rows);
}

// The tile for a whole panel. One inner step of a panel is kPanelLines cache lines (0 with narrow vectors:
// then nothing is prefetched), so no tile has more to fetch.
constexpr std::int64_t kPanelLines = kTileVectors * kVectorBytes / kLineBytes;
template <class T, int Lines = static_cast<int>(kPanelLines)>
TileKernel<T> full_tile(std::int64_t rows, std::int64_t lines) {
  if constexpr (Lines > 0) {
    if (lines < Lines) return full_tile<T, Lines - 1>(rows, lines);
  }
  return tile_of_rows<T, kTileVectors, Lines>(rows);
}

// The cache lines that row tile `index` of `count` prefetches at every inner step. The panel_lines lines per
// inner step are spread over the first row tiles, so that the stream runs while all of them compute.
struct Share {
  std::int64_t lines;  // of this row tile
  std::int64_t first;  // of the row tiles before it
};
EDDY_INLINE Share prefetch_share(std::int64_t index, std::int64_t count, std::int64_t panel_lines) {
  const std::int64_t first = (panel_lines * index + count - 1) / count;
  return {(panel_lines * (index + 1) + count - 1) / count - first, first};
}

template <class T>
void multiply_in_place(const PanelProduct<T>& g) {
  constexpr std::int64_t width = panel_width<T>;
  constexpr std::int64_t inner_block = kInnerBlockBytes / static_cast<std::int64_t>(sizeof(T));
  if (g.inner <= 0 && g.accumulate) return;
  for (std::int64_t row_begin = 0; row_begin < g.rows; row_begin += kRowBlock) {
    const std::int64_t row_count = g.rows - row_begin < kRowBlock ? g.rows - row_begin : kRowBlock;
    const std::int64_t tiles = (row_count + kTileRows - 1) / kTileRows;
    for (std::int64_t panel = g.panel_begin; panel < g.panel_end; ++panel) {
      const std::int64_t first_column = panel * width;
      const std::int64_t left = g.columns - first_column;
      const std::int64_t vectors =
          left < width ? (left + Vector<T>::lanes - 1) / Vector<T>::lanes : kTileVectors;
      std::int64_t k = 0;
      do {
        const std::int64_t depth = g.inner - k < inner_block ? g.inner - k : inner_block;
        const T* b = g.packed + panel * width * g.inner + k * width;
        const char* next = reinterpret_cast<const char*>(b + depth * width);
        const bool last = k + depth == g.inner, more = panel + 1 < g.panel_end || !last;
        for (std::int64_t t = 0; t < tiles; ++t) {
          // Tiles of nearly equal height: a single row left over would cost as much as four.
          const std::int64_t first_row = row_count * t / tiles;
          const std::int64_t tile_rows = row_count * (t + 1) / tiles - first_row;
          const Share share = more ? prefetch_share(t, tiles, kPanelLines) : Share{0, 0};
          const TileKernel<T> run = vectors < kTileVectors ? last_tile<T>(tile_rows, vectors)
                                                           : full_tile<T>(tile_rows, share.lines);
          T* const c = g.c + (row_begin + first_row) * g.c_stride + first_column;
          const Begin<T> begin = g.accumulate || k > 0 ? Begin<T>{c, g.c_stride}
                                 : g.bias != nullptr   ? Begin<T>{g.bias + first_column, 0}
                                                       : Begin<T>{};
          run(depth, g.a + (row_begin + first_row) * g.a_stride + k, g.a_stride, b, c, g.c_stride,
              left < width ? left : width, begin, g.relu && last, next + share.first * kLineBytes * depth);
        }
        k += depth;
      } while (k < g.inner);
    }
  }
}

// ---- Many rows ----

#if defined(__AVX2__) || defined(__aarch64__)
// A block of A is packed: tiles of kTall rows, inner-major. It stays in the second-level cache beside a group of
// panels, each tile of it in the first. Meanwhile the tiles fetch what is packed next, and C, whose stores would wait.
constexpr int kTall = kVectorBytes == 64 ? 12 : 6;
constexpr std::int64_t kBlock = 192, kBlockInner = 384, kGroupBytes = 512 << 10;
// Rows from which packing them costs less than it gains.
constexpr std::int64_t kManyRows = 48;
// Inner steps ahead of the one in use that are prefetched from a panel.
constexpr std::int64_t kAhead = 8;
constexpr std::int64_t kWidth = panel_width<float>, kFloats = Vector<float>::lanes;
constexpr std::int64_t kTallVectors = (kTall + kFloats - 1) / kFloats;  // of the rows of a tile
using Floats = Vector<float>::type;
using LooseFloats = Vector<float>::loose;

EDDY_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// Part of A, as it lies in memory: `rows` rows of `inner` numbers or, transposed, the other way round.
template <bool kTransposed>
struct BlockOfA {
  const float* a;
  std::int64_t stride, rows, inner;

  EDDY_INLINE std::int64_t tiles() const { return (rows + kTall - 1) / kTall; }
  EDDY_INLINE std::int64_t first_row(std::int64_t tile) const { return rows * tile / tiles(); }

  // Stores of whole vectors run over the rows of a tile, into what is written next.
  void pack(float* out) const {
    if constexpr (kTransposed) {
      constexpr std::int64_t kRun = 16;  // steps of a tile at a time: few pages are in use
      for (std::int64_t begin = 0; begin < inner; begin += kRun)
        for (std::int64_t t = 0; t < tiles(); ++t) {
          const std::int64_t first = first_row(t), count = first_row(t + 1) - first;
          float* const tile = out + t * kTall * inner;
          // The overrun of the last step would fall into the next tile, which has its first steps already.
          const std::int64_t end = smaller(begin + kRun, inner),
                             whole = first + kTallVectors * kFloats > rows ? begin : smaller(end, inner - 1);
          for (std::int64_t k = begin; k < whole; ++k)
            for (std::int64_t v = 0; v < kTallVectors * kFloats; v += kFloats)
              *reinterpret_cast<LooseFloats*>(tile + k * kTall + v) =
                  *reinterpret_cast<const LooseFloats*>(a + k * stride + first + v);
          for (std::int64_t k = whole; k < end; ++k)
            for (std::int64_t r = 0; r < count; ++r) tile[k * kTall + r] = a[k * stride + first + r];
        }
    } else {
      for (std::int64_t t = 0; t < tiles(); ++t, out += kTall * inner) {
        const std::int64_t first = first_row(t), count = first_row(t + 1) - first;
        const float* const from = a + first * stride;
        std::int64_t k = 0;
        for (; k + kFloats <= inner; k += kFloats) {
          Floats square[kTallVectors][kFloats];
          for (std::int64_t v = 0; v < kTallVectors; ++v) {
            for (std::int64_t i = 0, r = v * kFloats; i < kFloats; ++i, ++r)
              square[v][i] =
                  r < count ? *reinterpret_cast<const LooseFloats*>(from + r * stride + k) : Floats{};
            transpose_square<kFloats>(square[v]);
          }
          for (std::int64_t i = 0; i < kFloats; ++i)
            for (std::int64_t v = 0; v < kTallVectors; ++v)
              *reinterpret_cast<LooseFloats*>(out + (k + i) * kTall + v * kFloats) = square[v][i];
        }
        for (; k < inner; ++k)
          for (std::int64_t r = 0; r < count; ++r) out[k * kTall + r] = from[r * stride + k];
      }
    }
  }

  // Its runs of neighbouring numbers, for prefetching.
  EDDY_INLINE std::int64_t runs() const { return kTransposed ? inner : rows; }
  EDDY_INLINE std::int64_t run_length() const { return kTransposed ? rows : inner; }
};

#if defined(__aarch64__)
// The factors of a tile's rows at one inner step. FMLA of NEON takes a factor from a lane of a vector, so that two
// loads do for all rows; numbers after the last row are read and not used.
struct LaneFactors {
  Floats x[kTallVectors];

  EDDY_INLINE explicit LaneFactors(const float* a) {
    for (std::int64_t v = 0; v < kTallVectors; ++v)
      x[v] = *reinterpret_cast<const LooseFloats*>(a + v * kFloats);
  }
  EDDY_INLINE float operator[](int row) const { return x[row / kFloats][row % kFloats]; }
};
#endif

// One tile of packed rows by the first `columns` columns of a panel. At every inner step the cache line of `next` is
// prefetched, which then moves by `next_step`.
template <int Rows>
__attribute__((noinline)) void tall_tile(std::int64_t inner, const float* a, const float* b, float* c,
                                         std::int64_t c_stride, std::int64_t columns, Begin<float> begin,
                                         bool relu, const float* next, std::int64_t next_step) {
  float edge[Rows * kWidth];
  const bool cut = columns < kWidth;
  float* const out = cut ? edge : c;
  const std::int64_t out_stride = cut ? kWidth : c_stride;
  for (int r = 0; r < Rows; ++r)  // C of this tile, and of the next one, whose sums may begin with it
    for (std::int64_t j = 0; j < 2 * kWidth; j += kLineBytes / 4) __builtin_prefetch(c + r * c_stride + j, 1);
  if (cut && begin.from != nullptr) {
    for (int r = 0; r < Rows; ++r)
      for (std::int64_t j = 0; j < kWidth; ++j)
        edge[r * kWidth + j] = j < columns ? begin.from[r * begin.stride + j] : 0.0f;
    begin = {edge, kWidth};
  }
  Floats sum[Rows][kTileVectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < kTileVectors; ++v)
      sum[r][v] = begin.from != nullptr
                      ? *reinterpret_cast<const LooseFloats*>(begin.from + r * begin.stride + v * kFloats)
                      : Floats{};
#pragma GCC unroll 1
  for (std::int64_t k = 0; k < inner; ++k) {
    Floats right[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) right[v] = *reinterpret_cast<const Floats*>(b + v * kFloats);
    for (std::int64_t j = 0; j < kWidth; j += kLineBytes / 4) __builtin_prefetch(b + kAhead * kWidth + j);
    __builtin_prefetch(next, 0, 2);
    next += next_step;
    b += kWidth;
#if defined(__aarch64__)
    const LaneFactors left(a);
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] += left[r] * right[v];
#else
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] += a[r] * right[v];
#endif
    a += kTall;
  }
  if (relu)  // NaN stays
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < kTileVectors; ++v)
        sum[r][v] = sum[r][v] > 0 ? sum[r][v] : (sum[r][v] == sum[r][v] ? Floats{} : sum[r][v]);
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < kTileVectors; ++v)
      *reinterpret_cast<LooseFloats*>(out + r * out_stride + v * kFloats) = sum[r][v];
  if (cut) {
    for (int r = 0; r < Rows; ++r)
      for (std::int64_t j = 0; j < columns; ++j) c[r * c_stride + j] = edge[r * kWidth + j];
  }
}

using TallTile = void (*)(std::int64_t, const float*, const float*, float*, std::int64_t, std::int64_t,
                          Begin<float>, bool, const float*, std::int64_t);
template <int Rows = kTall>
TallTile tall_tile_of(std::int64_t rows) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return tall_tile_of<Rows - 1>(rows);
  }
  return tall_tile<Rows>;
}

template <bool kTransposed>
void multiply_packing(const PanelProduct<float>& g) {
  alignas(64) float packed[(kBlock + kTall) * kBlockInner + kFloats];
  if ((g.inner <= 0 && g.accumulate) || g.rows <= 0) return;
  const auto block_of = [&](std::int64_t row, std::int64_t k) {
    return BlockOfA<kTransposed>{kTransposed ? g.a + k * g.a_stride + row : g.a + row * g.a_stride + k,
                                 g.a_stride, smaller(kBlock, g.rows - row),
                                 smaller(kBlockInner, g.inner - k)};
  };
  const std::int64_t panels = g.panel_end - g.panel_begin;
  for (std::int64_t row = 0, k = 0; row < g.rows;) {
    const BlockOfA<kTransposed> block = block_of(row, k);
    block.pack(packed);
    const bool last = k + block.inner >= g.inner;
    const std::int64_t next_k = last ? 0 : k + block.inner, next_row = last ? row + block.rows : row;
    const BlockOfA<kTransposed> next =
        next_row < g.rows ? block_of(next_row, next_k) : BlockOfA<kTransposed>{};
    const std::int64_t calls = panels * block.tiles(), inner = block.inner > 0 ? block.inner : 1,
                       each = (next.runs() + calls - 1) / (calls > 0 ? calls : 1),
                       group = kGroupBytes / (inner * kWidth * 4) + 1;
    std::int64_t fetched = 0;
    for (std::int64_t begin = g.panel_begin; begin < g.panel_end; begin += group)
      for (std::int64_t t = 0; t < block.tiles(); ++t)
        for (std::int64_t panel = begin; panel < smaller(begin + group, g.panel_end); ++panel) {
          const float* ahead = packed;
          std::int64_t ahead_step = 0;
          if (each == 1 && fetched < next.runs()) {
            ahead = next.a + fetched * next.stride;
            ahead_step = (next.run_length() + inner - 1) / inner;
          } else {
            for (std::int64_t i = fetched; i < smaller(fetched + each, next.runs()); ++i)
              for (std::int64_t j = 0; j < next.run_length(); j += kLineBytes / 4)
                __builtin_prefetch(next.a + i * next.stride + j, 0, 2);
          }
          fetched += each;
          const std::int64_t first = block.first_row(t), column = panel * kWidth;
          float* const c = g.c + (row + first) * g.c_stride + column;
          const Begin<float> sums = g.accumulate || k > 0 ? Begin<float>{c, g.c_stride}
                                    : g.bias != nullptr   ? Begin<float>{g.bias + column, 0}
                                                          : Begin<float>{};
          tall_tile_of(block.first_row(t + 1) - first)(
              block.inner, packed + t * kTall * block.inner, g.packed + (panel * g.inner + k) * kWidth, c,
              g.c_stride, smaller(g.columns - column, kWidth), sums, g.relu && last, ahead, ahead_step);
        }
    row = next_row;
    k = next_k;
  }
}
#endif

template <class T>
void multiply(const PanelProduct<T>& g) {
#if defined(__AVX2__) || defined(__aarch64__)
  if constexpr (sizeof(T) == 4)
    if (g.rows >= kManyRows) return multiply_packing<false>(g);
#endif
  multiply_in_place(g);
}

// Packs rows of W as columns of a panel, in squares of vectors; at the edges blocks of a cache line of inner indices
// keep both sides in the first cache.
template <class T>
void pack_transposed(const T* w, std::int64_t w_stride, std::int64_t inner, std::int64_t columns, T* out) {
  constexpr std::int64_t width = panel_width<T>, lanes = Vector<T>::lanes;
  std::int64_t first = 0;
  if (columns == width)
    for (; first + lanes <= inner; first += lanes)
      for (std::int64_t j = 0; j < width; j += lanes) {
        typename Vector<T>::type square[lanes];
        for (std::int64_t i = 0; i < lanes; ++i)
          square[i] = *reinterpret_cast<const typename Vector<T>::loose*>(w + (j + i) * w_stride + first);
        transpose_square<static_cast<int>(lanes)>(square);
        for (std::int64_t i = 0; i < lanes; ++i)
          *reinterpret_cast<typename Vector<T>::type*>(out + (first + i) * width + j) = square[i];
      }
  constexpr std::int64_t block = kLineBytes / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t k = first; k < inner; k += block) {
    const std::int64_t depth = inner - k < block ? inner - k : block;
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t i = 0; i < depth; ++i) out[(k + i) * width + j] = w[j * w_stride + k + i];
  }
}

template <class T>
void pack(const T* w, std::int64_t w_stride, PackLayout layout, std::int64_t inner, std::int64_t columns,
          std::int64_t panel_begin, std::int64_t panel_end, T* packed) {
  constexpr std::int64_t width = panel_width<T>;
  for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
    T* out = packed + panel * width * inner;
    const std::int64_t first = panel * width;
    const std::int64_t present = columns - first < width ? columns - first : width;
    if (layout == PackLayout::columns_by_inner) {
      pack_transposed(w + first * w_stride, w_stride, inner, present, out);
    } else {
      for (std::int64_t k = 0; k < inner; ++k)
        for (std::int64_t j = 0; j < present; ++j) out[k * width + j] = w[k * w_stride + first + j];
    }
    for (std::int64_t k = 0; k < inner; ++k)
      for (std::int64_t j = present; j < width; ++j) out[k * width + j] = T(0);
  }
}

// As many sums as hide the latency of an instruction and fit the registers.
template <class T>
std::int64_t multiply_registers(std::int64_t rounds) {
  using Vec = typename Vector<T>::type;
  constexpr bool kAddsInPlace = kTileVectors == 4;  // FMLA of NEON writes over what it adds to
  constexpr int kSums = kVectorBytes == 64 || kAddsInPlace ? 24 : 12;
  volatile T unknown[] = {T(0.5), T(1)};  // not to be computed beforehand
  const Vec a = Vec{} + unknown[0], b = Vec{} + unknown[1];
  Vec sum[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sum[i] = Vec{} + static_cast<T>(i);  // different, lest one stand for all
  for (std::int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i)
      sum[i] = sum[kAddsInPlace ? (i + 1) % kSums : i] * a + (kAddsInPlace ? sum[i] : b);
#pragma GCC unroll 24
  for (int i = 1; i < kSums; ++i) sum[0] += sum[i];
  unknown[0] = sum[0][0];
  return rounds * kSums * Vector<T>::lanes;
}

}  // namespace

PackedGemmKernels packed_gemm_table() {
  PackedGemmKernels table{{panel_width<float>, pack<float>, multiply<float>}, {}};
  table.f32.multiply_registers = multiply_registers<float>;
#if defined(__AVX2__) || defined(__aarch64__)
  table.f32.multiply_transposed = multiply_packing<true>;
  table.f32.packed_inner = kBlockInner;
#endif
#if EDDY_F64_HERE
  table.f64 = {panel_width<double>, pack<double>, multiply<double>};
#else
  table.f64 = isa_baseline::packed_gemm_table().f64;
#endif
  return table;
}

void install_packed_gemm() {
  set_packed_gemm_kernels(packed_gemm_table(), bf16_gemm_table());
}

}  // namespace eddy::EDDY_ISA
