// CPU kernels of the reductions. Each sees its input as [outer, count, inner] and reduces the middle axis.
// With inner 1 a row is contiguous and is summed in lanes; else whole rows of `inner` elements are added up.
// Each input element is read once.
#include "ops/reduce/reduce.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/rows.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kTile = 1024;  // columns whose running sums stay in the L1 cache

EDDY_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
// sums[j] = x[0][j] + x[1][j] + ..., four rows at a time so that the sums are read and written less often.
template <class T>
void add_rows(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t width, T* __restrict sums) {
  for (std::int64_t j = 0; j < width; ++j) sums[j] = T(0);
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const T* const a = x + row * stride;
    const T* const b = a + stride;
    const T* const c = b + stride;
    const T* const d = c + stride;
    for (std::int64_t j = 0; j < width; ++j) sums[j] += (a[j] + b[j]) + (c[j] + d[j]);
  }
  for (; row < rows; ++row) {
    const T* const a = x + row * stride;
    for (std::int64_t j = 0; j < width; ++j) sums[j] += a[j];
  }
}

template <class T>
void store(T* y, const T* sums, std::int64_t n, T beta, T scale) {
  if (beta == T(0)) {
    for (std::int64_t j = 0; j < n; ++j) y[j] = scale * sums[j];
  } else {
    for (std::int64_t j = 0; j < n; ++j) y[j] = beta * y[j] + scale * sums[j];
  }
}

// Sums blocks of the middle axis: y is [outer, blocks, inner].
template <class T>
void sum_in_blocks(std::int64_t outer, std::int64_t count, std::int64_t inner, std::int64_t block, const T* x,
                   T* y, T beta, T scale) {
  const std::int64_t blocks = count > 0 ? (count + block - 1) / block : 1;
  const std::int64_t tiles = (inner + kTile - 1) / kTile;
  const std::int64_t block_rows = smaller(block, count);
  parallel_for(outer * blocks * tiles, items_per_chunk(block_rows * smaller(inner, kTile)),
               [=](std::int64_t begin, std::int64_t end) {
                 T sums[kTile];
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t column = item % tiles * kTile;
                   const std::int64_t o = item / tiles / blocks, first = item / tiles % blocks * block;
                   const std::int64_t rows = smaller(block, count - first);
                   const std::int64_t width = smaller(kTile, inner - column);
                   const T* const from = x + (o * count + first) * inner + column;
                   if (inner == 1)
                     sums[0] = lane_sum<T>(
                         rows, [=](auto reader, std::int64_t i) { return reader.load(from + i); });
                   else
                     add_rows(from, inner, rows, width, sums);
                   store(y + item / tiles * inner + column, sums, width, beta, scale);
                 }
               });
}

// Contiguous rows that are one block each: y is [outer].
template <class T>
void sum_short_rows(std::int64_t outer, std::int64_t count, const T* x, T* y, T beta, T scale) {
  parallel_for_rows(outer, count, [=](std::int64_t row) {
    const T* const from = x + row * count;
    const T sum =
        scale * lane_sum<T>(count, [from](auto reader, std::int64_t i) { return reader.load(from + i); });
    y[row] = beta == T(0) ? sum : beta * y[row] + sum;
  });
}

template <class T>
void sum_kernel(const SumArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  T* const partials = static_cast<T*>(args.partials);
  const T beta = static_cast<T>(args.beta), scale = static_cast<T>(args.scale);
  const std::int64_t blocks = sum_blocks(args.count, args.inner);
  if (blocks <= 1 && args.inner == 1) return sum_short_rows(args.outer, args.count, x, y, beta, scale);
  if (blocks <= 1)
    return sum_in_blocks(args.outer, args.count, args.inner, sum_block(args.inner), x, y, beta, scale);
  sum_in_blocks(args.outer, args.count, args.inner, sum_block(args.inner), x, partials, T(0), T(1));
  sum_in_blocks(args.outer, blocks, args.inner, blocks, partials, y, beta, scale);
}

// One contiguous row: finds the maximum in lanes, then searches for its index.
template <class T>
void max_of_row(const T* x, std::int64_t count, T* y, std::int64_t* index) {
  const T best = lane_max(x, count);
  std::int64_t k = 0;
  if (best != best) {
    while (x[k] == x[k]) ++k;
  } else {
    while (x[k] != best) ++k;
  }
  *y = x[k];
  *index = k;
}

template <class T>
void max_of_columns(const T* x, std::int64_t stride, std::int64_t count, std::int64_t width, T* y,
                    std::int64_t* index) {
  for (std::int64_t j = 0; j < width; ++j) {
    y[j] = x[j];
    index[j] = 0;
  }
  for (std::int64_t k = 1; k < count; ++k) {
    const T* const row = x + k * stride;
    for (std::int64_t j = 0; j < width; ++j) {
      const bool keep = (row[j] <= y[j]) | (y[j] != y[j]);
      y[j] = keep ? y[j] : row[j];
      index[j] = keep ? index[j] : k;
    }
  }
}

template <class T>
void max_kernel(const MaxArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  const std::int64_t count = args.count, inner = args.inner, tiles = (inner + kTile - 1) / kTile;
  std::int64_t* const index = args.index;
  parallel_for_rows(args.outer * tiles, count * smaller(inner, kTile), [=](std::int64_t item) {
    const std::int64_t o = item / tiles, column = item % tiles * kTile;
    const std::int64_t to = o * inner + column;
    const T* const from = x + o * count * inner + column;
    if (inner == 1)
      max_of_row(from, count, y + to, index + to);
    else
      max_of_columns(from, inner, count, smaller(kTile, inner - column), y + to, index + to);
  });
}

template <class T>
void max_backward_kernel(const MaxBackwardArgs& args) {
  const T* const dy = static_cast<const T*>(args.dy);
  T* const dx = static_cast<T*>(args.dx);
  const T beta = static_cast<T>(args.beta);
  const std::int64_t count = args.count, inner = args.inner;
  const std::int64_t* const index = args.index;
  parallel_for_rows(args.outer, count * inner, [=](std::int64_t o) {
    T* const rows = dx + o * count * inner;
    if (beta == T(0)) {
      for (std::int64_t j = 0; j < count * inner; ++j) rows[j] = T(0);
    } else if (beta != T(1)) {
      for (std::int64_t j = 0; j < count * inner; ++j) rows[j] *= beta;
    }
    for (std::int64_t i = 0; i < inner; ++i) rows[index[o * inner + i] * inner + i] += dy[o * inner + i];
  });
}

}  // namespace

EDDY_CPU_KERNEL(sum, sum_kernel)
EDDY_CPU_KERNEL(max_forward, max_kernel)
EDDY_CPU_KERNEL(max_backward, max_backward_kernel)

}  // namespace eddy::EDDY_ISA
