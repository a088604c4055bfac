// The gradient of attention's bias by distance, summed by the kernels for dq, which have the gradient of
// every score in registers: first in tables of the warps, then in a slice of global memory for each block,
// which cuda/attention/attention_tensor_core_bias.cu adds to the call's partial tables.
// No score is computed for it. The sums are f32 and of the gradients before rounding. Each entry belongs to
// one thread at a time and the order of the sums is fixed, so the bits are the same every time.
//
// A warp's tile of 16 x N gradients, queries in rows, has 16 + N - 1 distances, one to a diagonal. Diagonals
// are summed in three steps (BlockDiagonals):
//   1. The 8 x 8 blocks on the same block diagonal are added, within each thread: N / 8 + 1 sums of blocks.
//   2. 8 consecutive distances are a run. Each of the 8 rows g of a block has one element of distance
//      number r of a run, in column c = (g - r) mod 8: elements with c <= g come from one sum of blocks,
//      those with c > g from the one before. N / 8 + 2 runs.
//   3. The 8 rows of each run are added by exchanges in the warp; each halves the numbers of a thread.
// Then 32 consecutive distances are in 32 threads, which add them to the warp's own table: no bank conflicts,
// and no barrier besides the one that each iteration has.
//
// Cost of a tile of N = 64 (32): 19 (12) exchanges, and 3 (2) reads and writes of the table, each of them one
// pass of 128 bytes through shared memory: 25 (16) passes. Through shared memory alone, writing the block
// diagonals and reading the diagonals, it would be 48 (30). Some 110 (75) instructions of a warp, counted in
// this source; in nvcc's code the kernel with wgmma at H = 128 grows by 380, including the loops before and
// after. The cost in time is to be measured.
//
// Shared memory: a table of most - least + 1 entries for each warp: 16 bytes a distance, and 32 with wgmma at
// H = 128, where a block has 8 warps. For a band of 512: 8 and 16 KiB.
//
// Bytes moved: a slice of 4 bytes a distance for each block, written and read once: for 64 (128) queries and
// a band of 512 4 KiB, where their q, do and dq are 384 H (768 H) bytes.
#pragma once

#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/attention_tensor_core_backward.cuh"
#include "cuda/runtime/context.h"
#include "tensor/tensor.h"

namespace eddy::cuda {
namespace {

// The sums of the 8 x 8 blocks of a warp's tile of 16 x N gradients of scores, by block diagonal: d - 1 block
// columns right of the block row. A thread has row own_row() and two columns of each.
template <int N>
struct BlockDiagonals {
  static constexpr int kBlocks = N / 8 + 1, kRuns = kBlocks + 1;
  static constexpr int kQuarter = (kRuns + 3) / 4;  // runs that a thread has in the end
  float sums[kBlocks][2];

  __device__ explicit BlockDiagonals(const float (&dscores)[N / 8][4]) {
#pragma unroll
    for (int d = 0; d < kBlocks; ++d)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        sums[d][e] = d == 0       ? dscores[d][2 + e]
                     : d == N / 8 ? dscores[d - 1][e]
                                  : dscores[d - 1][e] + dscores[d][2 + e];
  }

  // table[i] += the sum of the pairs of distance `first` + i, for `entries` entries. `base` is the distance
  // of the tile's first pair, less `first`. All threads of the warp must call it.
  __device__ void add_to(float* table, int entries, int base) const {
    const int row = own_row(), pair = lane() % 4;
    // Run d has the distances base + 8 (1 - d) + 0 .. 7. Rows 2 i and 2 i + 1 go together: their columns of
    // one distance are neighbours too.
    const bool swap = row % 2 != 0;
    const int neighbour = (row ^ 1) * 4 + (swap ? pair + 3 : pair) % 4;
    float runs[4 * kQuarter];
#pragma unroll
    for (int d = 0; d < 4 * kQuarter; ++d)
      runs[d] = d < kRuns ? of_run(d, 0) + __shfl_sync(0xffffffffu, of_run(d, 1), neighbour) : 0.0f;
    const bool second = (row & 2) != 0, third = (row & 4) != 0;
    float half[2 * kQuarter], quarter[kQuarter];
    halve(runs, half, second, (row ^ 2) * 4 + (pair + (second ? 3 : 1)) % 4);
    halve(half, quarter, third, lane() ^ 18);  // four rows and two pairs of columns further
    // The numbers of this thread now belong to the runs row / 2 + 4 i.
    const int own = base + 8 - 8 * (row / 2) + ((row - own_column()) & 7);
#pragma unroll
    for (int i = 0; i < kQuarter; ++i) {
      const int entry = own - 32 * i;
      if (entry >= 0 && entry < entries) table[entry] += quarter[i];
    }
  }

 private:
  // A thread's element e of run d.
  __device__ float of_run(int d, int e) const {
    const float left = d < kBlocks ? sums[d][e] : 0.0f, right = d > 0 ? sums[d - 1][e] : 0.0f;
    return own_column() + e <= own_row() ? left : right;
  }
  // Two threads that have the same distances add their numbers, and each keeps half of the runs: the upper
  // one the odd ones.
  template <int Count>
  __device__ static void halve(const float (&from)[2 * Count], float (&to)[Count], bool upper, int partner) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const float keep = upper ? from[2 * i + 1] : from[2 * i], give = upper ? from[2 * i] : from[2 * i + 1];
      to[i] = keep + __shfl_sync(0xffffffffu, give, partner);
    }
  }
};

// The tables of a block's warps, in shared memory; empty if they are not wanted.
template <bool Wanted, int Threads>
struct BiasTables {
  const BiasSlices& slices;
  float* tables;

  // Zeroes them; a barrier must follow.
  __device__ explicit BiasTables(const TensorBackward& launched)
      : slices(launched.bias), tables(shared_memory() + launched.bias.place) {
    if constexpr (Wanted)
      for (int i = static_cast<int>(threadIdx.x); i < Threads / 32 * slices.entries; i += Threads)
        tables[i] = 0;
  }
  // Adds a warp's tile of gradients of scores; `base` is the distance of its first pair. There must be a
  // barrier between two calls.
  template <int N>
  __device__ void add(const BlockDiagonals<N>& diagonals, const AttentionArgs& args, std::int64_t base) {
    if constexpr (Wanted)
      diagonals.add_to(tables + warp() * slices.entries, slices.entries, static_cast<int>(base - args.least));
  }
  // Writes the block's slice: the warps' tables, added in order.
  __device__ void store() const {
    if constexpr (!Wanted) return;
    float* const to = slices.data + std::int64_t{blockIdx.x} * slices.entries;
    __syncthreads();  // the last tile has been added
    for (int i = static_cast<int>(threadIdx.x); i < slices.entries; i += Threads) {
      float sum = tables[i];
#pragma unroll
      for (int w = 1; w < Threads / 32; ++w) sum += tables[w * slices.entries + i];
      to[i] = sum;
    }
  }
};

// Launches a kernel for dq, with `rows` queries to a block: `summing` if it can also sum the gradient of the
// bias, else `plain`. Returns whether that gradient is added. shared_bytes: what a block uses
// without the tables; most_bytes: what it may use.
inline bool launch_queries(const char* name, void (*plain)(TensorBackward), void (*summing)(TensorBackward),
                           const AttentionBackwardArgs& args, const AttentionPartials& partials, int rows,
                           int threads, int shared_bytes, int most_bytes) {
  const std::int64_t tiles = divide_up(args.forward.queries, rows),
                     blocks = args.forward.batch * args.forward.heads * tiles;
  TensorBackward launched = tensor_backward(args, partials);
  if (!sums_bias_with_queries(args, blocks, threads / 32, most_bytes - shared_bytes)) {
    launch_shared(name, plain, blocks, threads, shared_bytes, launched);
    return false;
  }
  const int entries = static_cast<int>(args.forward.most - args.forward.least + 1);
  const Tensor slices = Tensor::empty({blocks, entries}, Dtype::f32, {DeviceType::cuda, device_index()});
  launched.bias = {slices.mutable_data<float>(), entries, shared_bytes / 4};
  launch_shared(name, summing, blocks, threads, shared_bytes + threads / 32 * 4 * entries, launched);
  add_bias_slices(args, partials, slices.data<float>(), tiles);
  return true;
}

}  // namespace
}  // namespace eddy::cuda
