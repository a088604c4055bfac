// The packed matrix product for one instruction set; see packed_gemm.h. A register tile of up to kTileRows
// rows by kTileVectors vectors of C stays in registers over the inner loop; B is read from its panel in
// storage order. With few rows the product is bound by the stream of B from the outer caches (one recurrent
// step uses more weights than the second-level cache holds), so the row tiles of a panel prefetch the next
// panel while they compute, each its share.
#include "ops/product/packed_gemm.h"

#include "ops/cpu/isa.h"

#if !EDDY_F64_HERE
namespace eddy::isa_baseline {
PackedGemmKernels packed_gemm_table();
}
#endif

namespace eddy::EDDY_ISA {
PackedGemmKernels packed_gemm_table();
Bf16GemmKernels bf16_gemm_table();
void install_packed_gemm();

namespace {

// Register tiles: AVX-512 has 32 vector registers (8 x 3 sums, 3 of B, 1 of A), the others 16 (6 x 2, 2, 1).
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
#else
constexpr int kVectorBytes = 16;
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
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
using Tile = void (*)(std::int64_t, const T*, std::int64_t, const T*, T*, std::int64_t, std::int64_t,
                      Begin<T>, bool, const char*);

template <class T, int Vectors, int Lines, int Rows = kTileRows>
Tile<T> tile_of_rows(std::int64_t rows) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return tile_of_rows<T, Vectors, Lines, Rows - 1>(rows);
  }
  return tile<T, Vectors, Lines, Rows>;
}

// The tile for a panel with fewer than kTileVectors vectors: the last one, with nothing after it to prefetch.
template <class T, int Vectors = kTileVectors>
Tile<T> last_tile(std::int64_t rows, std::int64_t vectors) {
  if constexpr (Vectors > 1) {
    if (vectors < Vectors) return last_tile<T, Vectors - 1>(rows, vectors);
  }
  return tile_of_rows<T, Vectors, 0>(rows);
}

// The tile for a whole panel. One inner step of a panel is kPanelLines cache lines (0 with narrow vectors:
// then nothing is prefetched), so no tile has more to fetch.
constexpr std::int64_t kPanelLines = kTileVectors * kVectorBytes / kLineBytes;
template <class T, int Lines = static_cast<int>(kPanelLines)>
Tile<T> full_tile(std::int64_t rows, std::int64_t lines) {
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
void multiply(const PanelProduct<T>& g) {
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
          const Tile<T> run = vectors < kTileVectors ? last_tile<T>(tile_rows, vectors)
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

// Packs rows of W as columns of a panel; blocks of a cache line of inner indices keep both sides in the first
// cache.
template <class T>
void pack_transposed(const T* w, std::int64_t w_stride, std::int64_t inner, std::int64_t columns, T* out) {
  constexpr std::int64_t width = panel_width<T>;
  constexpr std::int64_t block = kLineBytes / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t k = 0; k < inner; k += block) {
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

}  // namespace

PackedGemmKernels packed_gemm_table() {
  PackedGemmKernels table{{panel_width<float>, pack<float>, multiply<float>}, {}};
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
