// The kernel of gemm_small.h for one instruction set: a tile of rows by vectors of C stays in registers while
// the inner index runs over a block. A block of B and the rows of A multiplied with it stay in the
// second-level cache.
#include "ops/product/gemm_small.h"

#include <algorithm>

#include "ops/cpu/isa.h"

namespace eddy::EDDY_ISA {
void install_gemm_small();

#if defined(__AVX2__)
namespace {

// Registers: AVX-512 has 32 (8 x 3 sums, 3 of B, 1 of A), AVX2 16 (6 x 2, 2, 1).
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;
#else
constexpr int kVectorBytes = 32;
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
#endif
constexpr std::int64_t kLanes = kVectorBytes / 4;

typedef float Vector __attribute__((vector_size(kVectorBytes)));
typedef float Loose __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));

// What a tile prefetches while it computes: at every inner step the lines at a and b, which then move on.
struct Ahead {
  const float* a;
  std::int64_t a_step;
  const float* b;
  std::int64_t b_step;
};

template <int Rows, int Vectors>
void tile(const SmallGemmArgs& g, Ahead ahead) {
  Vector sum[Rows][Vectors] = {};
  for (int r = 0; r < Rows; ++r)  // prefetch C of the next tile, whose stores would wait
    for (int v = 0; v < Vectors; ++v) __builtin_prefetch(g.c + (r + kTileRows) * g.c_stride + v * kLanes, 1);
  const float* row[Rows];
  for (int r = 0; r < Rows; ++r) row[r] = g.a + r * g.a_row;
  const float* b = g.b;
  const std::int64_t step = g.a_inner, b_stride = g.b_stride, end = g.inner * step;
  for (std::int64_t k = 0; k < end; k += step) {
    Vector right[Vectors];
    for (int v = 0; v < Vectors; ++v) right[v] = *reinterpret_cast<const Loose*>(b + v * kLanes);
    __builtin_prefetch(ahead.a, 0, 2);
    __builtin_prefetch(ahead.b, 0, 2);
    ahead.a += ahead.a_step;
    ahead.b += ahead.b_step;
    b += b_stride;
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < Vectors; ++v) sum[r][v] += row[r][k] * right[v];
  }
  float* const c = g.c;
  const std::int64_t stride = g.c_stride;
  if (g.accumulate)
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < Vectors; ++v)
        sum[r][v] += *reinterpret_cast<const Loose*>(c + r * stride + v * kLanes);
  if (g.relu)  // NaN stays
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < Vectors; ++v)
        sum[r][v] = sum[r][v] > 0 ? sum[r][v] : (sum[r][v] == sum[r][v] ? Vector{} : sum[r][v]);
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<Loose*>(c + r * stride + v * kLanes) = sum[r][v];
}

using Tile = void (*)(const SmallGemmArgs&, Ahead);

template <int Vectors, int Rows = kTileRows>
Tile tile_of_rows(std::int64_t rows) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return tile_of_rows<Vectors, Rows - 1>(rows);
  }
  return tile<Rows, Vectors>;
}

template <int Vectors = kTileVectors>
Tile tile_of(std::int64_t rows, std::int64_t vectors) {
  if constexpr (Vectors > 1) {
    if (vectors < Vectors) return tile_of<Vectors - 1>(rows, vectors);
  }
  return tile_of_rows<Vectors>(rows);
}

// Elements of a block of B that stays in the first cache beside a tile's rows of A and C.
constexpr std::int64_t kNearElements = 6144;

// How the tiles of a transposed A fetch the next block of A or B, whose rows have `width` of `stride` elements. They
// share the block in the order of memory, where the processor's own prefetching helps; where rows lie far apart, each
// fetches its own column.
struct NextBlock {
  std::int64_t step, part;  // elements an inner step and a tile

  NextBlock(std::int64_t stride, std::int64_t width, std::int64_t inner, std::int64_t tiles)
      : step(stride < 2 * width ? (stride + tiles - 1) / tiles : stride),
        part(stride < 2 * width ? step * inner : 0) {}
  const float* begin(const float* block, std::int64_t tile, std::int64_t column) const {
    return block + (part > 0 ? tile * part : column);
  }
};

// The tiles of C and a block of inner indices, which begins at k.
struct Block {
  const SmallGemmArgs& g;
  std::int64_t row_tiles, column_tiles;
  NextBlock next_a, next_b;
  std::int64_t k;

  void multiply_tile(std::int64_t y, std::int64_t x) const {
    const std::int64_t vectors = g.columns / kLanes, first = vectors * x / column_tiles,
                       count = vectors * (x + 1) / column_tiles - first, column = first * kLanes,
                       row = g.rows * y / row_tiles, rows = g.rows * (y + 1) / row_tiles - row,
                       block = g.inner_block;
    SmallGemmArgs t = g;
    t.inner = std::min(block, g.inner - k);
    t.accumulate = g.accumulate || k > 0;
    t.relu = g.relu && k + block >= g.inner;
    t.a = g.a + row * g.a_row + k * g.a_inner;
    t.b = g.b + k * g.b_stride + column;
    t.c = g.c + row * g.c_stride + column;
    // A plain A goes on with the rows of the next tile.
    Ahead ahead{t.a + kTileRows * g.a_row, kTileRows, t.b, 0};
    if (g.a_inner != 1) {
      const std::int64_t tile = x * row_tiles + y;
      ahead = {next_a.begin(g.a + (k + block) * g.a_inner, tile, row), next_a.step,
               next_b.begin(g.b + (k + block) * g.b_stride, tile, column), next_b.step};
    }
    tile_of(rows, count)(t, ahead);
  }
};

void multiply(const SmallGemmArgs& g) {
  // Tiles of nearly equal size: a narrow one left over would cost as much as a wide one.
  const std::int64_t row_tiles = (g.rows + kTileRows - 1) / kTileRows,
                     column_tiles = (g.columns / kLanes + kTileVectors - 1) / kTileVectors,
                     tiles = row_tiles * column_tiles, block = g.inner_block;
  Block of{
      g, row_tiles, column_tiles, {g.a_inner, g.rows, block, tiles}, {g.b_stride, g.columns, block, tiles},
      0};
  // C is written in the order of memory if B stays near meanwhile.
  const bool by_rows = g.a_inner == 1 && std::min(block, g.inner) * g.columns <= kNearElements;
  for (; of.k < g.inner; of.k += block) {
    if (by_rows) {
      for (std::int64_t y = 0; y < row_tiles; ++y)
        for (std::int64_t x = 0; x < column_tiles; ++x) of.multiply_tile(y, x);
    } else {
      for (std::int64_t x = 0; x < column_tiles; ++x)
        for (std::int64_t y = 0; y < row_tiles; ++y) of.multiply_tile(y, x);
    }
  }
}

}  // namespace

void install_gemm_small() {
  set_small_gemm_kernel({kLanes, multiply});
}
#else
void install_gemm_small() {
  set_small_gemm_kernel({0, nullptr});
}
#endif

}  // namespace eddy::EDDY_ISA
