// The kernel of gemm_small.h for one instruction set: a tile of rows by vectors of C stays in registers while
// the inner index runs over a block. A block of B and the rows of A multiplied with it stay in the
// second-level cache.
#include "ops/product/gemm_small.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/cpu/isa.h"

namespace eddy::EDDY_ISA {
void install_gemm_small();

#if defined(__AVX2__) || defined(__aarch64__)
namespace {

// Registers: AVX-512 has 32 (8 x 3 sums, 3 of B, 1 of A), NEON too (6 x 4, 4, 1), AVX2 16 (6 x 2, 2, 1).
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16;
constexpr int kTileRows = 6;
constexpr int kTileVectors = 4;
#else
constexpr int kVectorBytes = 32;
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
#endif
constexpr std::int64_t kLanes = kVectorBytes / 4;
constexpr int kLineVectors = kVectorBytes == 16 ? 4 : 1;  // of C that one prefetch is for
// How many tiles ahead rows of A and C are prefetched. A step of cifar_block takes 92.2 ms so, and 93.4 with those of
// the next tile (docs/choices.md).
constexpr std::int64_t kAheadTiles = 4;

typedef float Vector __attribute__((vector_size(kVectorBytes)));
typedef float Loose __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));

// What the tiles of a block of inner indices share.
struct Block {
  std::int64_t a_row, a_inner, b_stride, c_stride, inner;
  bool accumulate, relu;
  // What a tile prefetches while it computes moves on by so much at every inner step.
  std::int64_t next_a_step, next_b_step;
};

// One tile of C. With a transposed A the next block of B is prefetched too; a plain A multiplies a B that stays near.
// Without the pragmas loops are unrolled too late for `sum` to stay in registers from start to end.
template <bool Transposed, int Rows, int Vectors>
void tile(const Block& of, const float* a, const float* b, float* c, const float* next_a,
          [[maybe_unused]] const float* next_b) {
  const std::int64_t c_stride = of.c_stride;
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)  // prefetch C of a later tile, whose stores would wait
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v += kLineVectors)
      __builtin_prefetch(c + (r + kAheadTiles * kTileRows) * c_stride + v * kLanes, 1);
  Vector sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sum[r][v] = Vector{};
  const float* row[Rows];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) row[r] = a + r * of.a_row;
  const std::int64_t step = Transposed ? of.a_inner : 1, b_stride = of.b_stride, end = of.inner * step,
                     next_a_step = of.next_a_step;
  [[maybe_unused]] const std::int64_t next_b_step = of.next_b_step;
  for (std::int64_t k = 0; k < end; k += step) {
    Vector right[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) right[v] = *reinterpret_cast<const Loose*>(b + v * kLanes);
    __builtin_prefetch(next_a, 0, 2);
    next_a += next_a_step;
    if constexpr (Transposed) {
      __builtin_prefetch(next_b, 0, 2);
      next_b += next_b_step;
    }
    b += b_stride;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] += row[r][k] * right[v];
  }
  if (of.accumulate)
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v)
        sum[r][v] += *reinterpret_cast<const Loose*>(c + r * c_stride + v * kLanes);
  if (of.relu)  // NaN stays
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v)
        sum[r][v] = sum[r][v] > 0 ? sum[r][v] : (sum[r][v] == sum[r][v] ? Vector{} : sum[r][v]);
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<Loose*>(c + r * c_stride + v * kLanes) = sum[r][v];
}

using TileKernel = void (*)(const Block&, const float*, const float*, float*, const float*, const float*);

template <bool Transposed, int... Sizes>
constexpr auto tiles_of(std::integer_sequence<int, Sizes...>) {
  return std::array<TileKernel, sizeof...(Sizes)>{
      tile<Transposed, Sizes / kTileVectors + 1, Sizes % kTileVectors + 1>...};
}
// By rows, then by vectors.
constexpr std::make_integer_sequence<int, kTileRows * kTileVectors> kSizes;
constexpr auto kTiles = tiles_of<false>(kSizes), kTransposedTiles = tiles_of<true>(kSizes);

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

// `size` in `parts` of nearly equal size: a narrow tile left over would cost as much as a wide one.
struct Cut {
  std::int64_t size, parts;

  // Calls body(part, begin, end).
  template <class Body>
  void each(Body&& body) const {
    for (std::int64_t part = 0, begin = 0; part < parts; ++part) {
      const std::int64_t end = size * (part + 1) / parts;
      body(part, begin, end);
      begin = end;
    }
  }
};

void multiply(const SmallGemmArgs& g) {
  const std::int64_t vectors = g.columns / kLanes, block = g.inner_block;
  const Cut rows{g.rows, (g.rows + kTileRows - 1) / kTileRows},
      columns{vectors, (vectors + kTileVectors - 1) / kTileVectors};
  const bool transposed = g.a_inner != 1;
  const auto& tiles = transposed ? kTransposedTiles : kTiles;
  const NextBlock next_a(g.a_inner, g.rows, block, rows.parts * columns.parts),
      next_b(g.b_stride, g.columns, block, rows.parts * columns.parts);
  // C is written in the order of memory if B stays near meanwhile.
  const bool by_rows = !transposed && std::min(block, g.inner) * g.columns <= kNearElements;
  for (std::int64_t k = 0; k < g.inner; k += block) {
    const Block of{g.a_row,
                   g.a_inner,
                   g.b_stride,
                   g.c_stride,
                   std::min(block, g.inner - k),
                   g.accumulate || k > 0,
                   g.relu && k + block >= g.inner,
                   transposed ? next_a.step : kTileRows,
                   next_b.step};
    const float *const a = g.a + k * g.a_inner, *const b = g.b + k * g.b_stride;
    const auto multiply_tile = [&](std::int64_t y, std::int64_t row, std::int64_t row_end, std::int64_t x,
                                   std::int64_t vector, std::int64_t vector_end) {
      const std::int64_t column = vector * kLanes, number = x * rows.parts + y;
      const float* const tile_a = a + row * g.a_row;
      // A plain A goes on with the rows of a later tile.
      const float* const next = transposed ? next_a.begin(a + block * g.a_inner, number, row)
                                           : tile_a + kAheadTiles * kTileRows * g.a_row;
      tiles[static_cast<std::size_t>((row_end - row - 1) * kTileVectors + vector_end - vector - 1)](
          of, tile_a, b + column, g.c + row * g.c_stride + column, next,
          next_b.begin(b + block * g.b_stride, number, column));
    };
    if (by_rows)
      rows.each([&](std::int64_t y, std::int64_t row, std::int64_t row_end) {
        columns.each([&](std::int64_t x, std::int64_t vector, std::int64_t vector_end) {
          multiply_tile(y, row, row_end, x, vector, vector_end);
        });
      });
    else
      columns.each([&](std::int64_t x, std::int64_t vector, std::int64_t vector_end) {
        rows.each([&](std::int64_t y, std::int64_t row, std::int64_t row_end) {
          multiply_tile(y, row, row_end, x, vector, vector_end);
        });
      });
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
