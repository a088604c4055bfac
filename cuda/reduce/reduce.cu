// Sums and maxima over the middle axis of [outer, count, inner].
//
// Sum. The axis is divided into the blocks of ops/reduce/reduce.h, each summed to a partial result; a second
// launch sums those. The shape alone fixes the order.
//   mapping        inner 1 (contiguous rows): a warp or a thread block per row. Else a thread block per 32 or
//                  fewer neighbouring columns, with 8 or more threads for each; thread t of a column adds
//                  entries t, t + lanes, ..., then a tree in shared memory adds the threads' sums.
//   shared memory  1 KiB (1,024 bytes)
//   bytes moved    x once, the least, and the partial sums, 1/64 of it or less, twice
//
// Maximum, and its gradient.
//   mapping        rows as above, else a thread per column; the gradient has a thread per element of dx
//   bytes moved    x once; for the gradient dx once, dy and the index once per row through the cache
#include "cuda/core/numbers.cuh"
#include "cuda/core/team.cuh"
#include "ops/reduce/reduce.h"

namespace eddy::cuda {
namespace {

// One pass of a sum: y [outer, blocks, inner] = beta y + scale (the sum of x over each block of the middle
// axis).
template <class T>
struct SumPass {
  std::int64_t outer, count, inner;
  std::int64_t block, blocks;  // entries of a block, and the number of blocks
  const T* x;
  float* y;
  float beta, scale;

  __device__ void store(std::int64_t at, float sum) const {
    y[at] = beta == 0.0f ? scale * sum : beta * y[at] + scale * sum;
  }
};

// inner 1: item i is block i % blocks of row i / blocks.
template <int Threads, class T>
__global__ void sum_rows_kernel(SumPass<T> args) {
  using RowTeam = Team<Threads>;
  for (std::int64_t item = RowTeam::first_row(); item < args.outer * args.blocks;
       item += RowTeam::row_step()) {
    const std::int64_t first = item % args.blocks * args.block;
    const std::int64_t length = ::min(args.block, args.count - first);
    const T* const from = args.x + item / args.blocks * args.count + first;
    const float sum = RowTeam::sum(0, length, [=](std::int64_t i) { return static_cast<float>(from[i]); });
    if (RowTeam::lane() == 0) args.store(item, sum);
  }
}

// Item i is tile i % tiles of block i / tiles % blocks of outer entry i / tiles / blocks; a tile is `columns`
// neighbouring columns, a power of two.
template <class T>
struct ColumnSum {
  SumPass<T> pass;
  int columns;
  std::int64_t tiles;
};

template <class T>
__global__ void sum_columns_kernel(ColumnSum<T> args) {
  __shared__ float sums[kThreads];
  const SumPass<T>& pass = args.pass;
  const int column = static_cast<int>(threadIdx.x) % args.columns,
            lane = static_cast<int>(threadIdx.x) / args.columns;
  const int lanes = kThreads / args.columns;
  const std::int64_t items = pass.outer * pass.blocks * args.tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t at = item % args.tiles * args.columns + column, line = item / args.tiles;
    const std::int64_t first = line % pass.blocks * pass.block;
    const std::int64_t rows = ::min(pass.block, pass.count - first);
    const T* const from = pass.x + (line / pass.blocks * pass.count + first) * pass.inner + at;
    float sum = 0;
    if (at < pass.inner)
      for (std::int64_t row = lane; row < rows; row += lanes)
        sum += static_cast<float>(from[row * pass.inner]);
    sums[threadIdx.x] = sum;
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) sums[threadIdx.x] += sums[threadIdx.x + static_cast<unsigned>(half * args.columns)];
    }
    if (lane == 0 && at < pass.inner) pass.store(line * pass.inner + at, sums[threadIdx.x]);
    __syncthreads();  // the next item overwrites the shared sums
  }
}

template <class T>
void run_pass(const SumPass<T>& pass) {
  if (pass.inner == 1) {
    launch_rows("sum", sum_rows_kernel<32, T>, sum_rows_kernel<kThreads, T>, pass.outer * pass.blocks,
                pass.block, pass);
    return;
  }
  ColumnSum<T> args{pass, 2, 0};
  while (args.columns < 32 && args.columns < pass.inner) args.columns *= 2;
  args.tiles = (pass.inner + args.columns - 1) / args.columns;
  launch("sum", sum_columns_kernel<T>, grid_for(pass.outer * pass.blocks * args.tiles, 1, 64), kThreads,
         args);
}

template <class T>
void sum(const SumArgs& args) {
  const std::int64_t blocks = sum_blocks(args.count, args.inner), block = sum_block(args.inner);
  const T* const x = static_cast<const T*>(args.x);
  float* const y = static_cast<float*>(args.y);
  const float scale = static_cast<float>(args.scale);
  if (blocks <= 1)  // an empty axis is one empty block
    return run_pass<T>({args.outer, args.count, args.inner, args.count, 1, x, y, args.beta, scale});
  float* const partials = static_cast<float*>(args.partials);
  run_pass<T>({args.outer, args.count, args.inner, block, blocks, x, partials, 0, 1});
  run_pass<float>({args.outer, blocks, args.inner, blocks, 1, partials, y, args.beta, scale});
}

// A value and its index. The larger value wins, NaN above all, and among equals the lower index, so that the
// order of comparisons does not matter.
struct Best {
  float value;
  std::int64_t place;

  __device__ Best against(Best other) const {
    const bool nan = value != value, other_nan = other.value != other.value;
    if (nan != other_nan) return nan ? *this : other;
    const bool equal = nan || value == other.value;
    if (equal) return place < other.place ? *this : other;
    return value > other.value ? *this : other;
  }
};

template <int Threads>
__device__ Best reduce_best(Best best) {
  for (int distance = 16; distance > 0; distance /= 2)
    best = best.against({__shfl_xor_sync(0xffffffffu, best.value, distance),
                         __shfl_xor_sync(0xffffffffu, best.place, distance)});
  if constexpr (Threads > 32) {
    __shared__ Best of_warps[Threads / 32];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
    __syncthreads();
    for (const Best& other : of_warps) best = best.against(other);
    __syncthreads();
  }
  return best;
}

template <int Threads>
__global__ void max_rows_kernel(MaxArgs args) {
  using RowTeam = Team<Threads>;
  for (std::int64_t row = RowTeam::first_row(); row < args.outer; row += RowTeam::row_step()) {
    const float* const x = static_cast<const float*>(args.x) + row * args.count;
    Best best{x[0], 0};
    for (std::int64_t k = RowTeam::lane(); k < args.count; k += Threads) best = best.against({x[k], k});
    best = reduce_best<Threads>(best);
    if (RowTeam::lane() == 0) {
      static_cast<float*>(args.y)[row] = best.value;
      args.index[row] = best.place;
    }
  }
}

__global__ void max_columns_kernel(MaxArgs args) {
  for (std::int64_t i = first_item(); i < args.outer * args.inner; i += item_step()) {
    const float* const x =
        static_cast<const float*>(args.x) + i / args.inner * args.count * args.inner + i % args.inner;
    Best best{x[0], 0};
    for (std::int64_t k = 1; k < args.count; ++k) best = best.against({x[k * args.inner], k});
    static_cast<float*>(args.y)[i] = best.value;
    args.index[i] = best.place;
  }
}

__global__ void max_backward_kernel(MaxBackwardArgs args) {
  float* const dx = static_cast<float*>(args.dx);
  for (std::int64_t i = first_item(); i < args.outer * args.count * args.inner; i += item_step()) {
    const std::int64_t column = i % args.inner, line = i / args.inner;
    const std::int64_t from = line / args.count * args.inner + column;
    const float share =
        args.index[from] == line % args.count ? static_cast<const float*>(args.dy)[from] : 0.0f;
    dx[i] = args.beta == 0.0f ? share : args.beta * dx[i] + share;
  }
}

}  // namespace

void sum(const SumArgs& args) {
  for_activations("sum", args.dtype, [&](auto* type) { sum<StoredIn<decltype(type)>>(args); });
}

void max_forward(const MaxArgs& args) {
  require_f32("max", args.dtype);
  if (args.inner == 1)
    launch_rows("max", max_rows_kernel<32>, max_rows_kernel<kThreads>, args.outer, args.count, args);
  else
    launch("max", max_columns_kernel, grid_for(args.outer * args.inner, kThreads), kThreads, args);
}

void max_backward(const MaxBackwardArgs& args) {
  require_f32("max", args.dtype);
  launch("max_backward", max_backward_kernel, grid_for(args.outer * args.count * args.inner, kThreads),
         kThreads, args);
}

}  // namespace eddy::cuda
