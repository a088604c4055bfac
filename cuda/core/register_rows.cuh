// Rows that are read once: a team of neighbouring threads of a block keeps a row in its registers.
//
// A row is cut into groups of 16 bytes. Of a team of `lanes` threads, a power of two, thread l keeps groups
// l, l + lanes, ...: neighbours read and write neighbouring groups. A team is a part of a warp for short
// rows, a warp, or several; a block is kHeldThreads, or one team that is larger.
//
// Sums over a row: each thread adds its elements in order, then the lanes of a warp by a butterfly of
// shuffles, then the warps in order. So the bits depend on the row's length and the type alone: not on the
// address, the number of rows or the GPU. Rows that are not aligned to 16 bytes go by the same kernels with
// `Aligned` false, which read and write element by element.
//
// Shared memory: two values for each warp of a block and each of the numbers that are added at once.
#pragma once

#include <bit>

#include "cuda/core/numbers.cuh"

namespace eddy::cuda {

inline constexpr std::int64_t kHeldRow = 8192;  // elements of the longest row that is held
inline constexpr int kHeldThreads = 128;        // of a block, unless a team has more
inline constexpr int kMostTeamWarps = 16;

// How a block's threads share out rows.
struct RowTeams {
  int lane_bits;  // of the number of threads of a team
  int groups;     // of a row
  int count;      // teams of a block

  __host__ __device__ int lanes() const { return 1 << lane_bits; }
  int threads() const { return lanes() * count; }

  __device__ int lane() const { return static_cast<int>(threadIdx.x) & (lanes() - 1); }
  __device__ int team() const { return static_cast<int>(threadIdx.x) >> lane_bits; }
};

// Whether rows of this width are held: whole groups, and not too many.
template <class T>
bool rows_held(std::int64_t width) {
  return width % kGroup<T> == 0 && width <= kHeldRow;
}
// Teams of as few threads as can hold a row with up to `Elements` each.
template <int Elements, class T>
RowTeams row_teams(std::int64_t width) {
  static_assert(kHeldRow <= Elements * 32 * kMostTeamWarps);
  const auto wanted = static_cast<unsigned>((width + Elements - 1) / Elements);
  const int bits = std::countr_zero(std::bit_ceil(wanted));
  return {bits, static_cast<int>(width) / kGroup<T>, kHeldThreads >> bits > 1 ? kHeldThreads >> bits : 1};
}
// Whether all rows of such a tensor begin at multiples of 16 bytes. Of one that is null: yes.
template <class T>
bool rows_aligned(const void* first, std::int64_t stride = 0) {
  return aligned(first) && stride % kGroup<T> == 0;
}

template <bool Aligned, class T>
__device__ Group<T> read_held(const T* from) {
  if constexpr (Aligned) {
    return read_group(from);
  } else {
    Group<T> group;
#pragma unroll
    for (int j = 0; j < kGroup<T>; ++j) group.at[j] = static_cast<float>(from[j]);
    return group;
  }
}
template <bool Aligned, class T>
__device__ void write_held(T* to, const Group<T>& group) {
  if constexpr (Aligned) {
    write_group(to, group);
  } else {
#pragma unroll
    for (int j = 0; j < kGroup<T>; ++j) to[j] = static_cast<T>(group.at[j]);
  }
}
// As many numbers of a vector that is f32 whatever T is, such as a weight.
template <bool Aligned, class T>
__device__ Group<T> read_parameters(const float* from) {
  Group<T> group;
#pragma unroll
  for (int j = 0; j < kGroup<T>; j += 4) {
    const Group<float> four = read_held<Aligned>(from + j);
#pragma unroll
    for (int i = 0; i < 4; ++i) group.at[j + i] = four.at[i];
  }
  return group;
}

// Calls run(k, column) for each group that this thread keeps of a row of `groups`: its k-th, which begins at
// that column of the row.
template <class T, int Held, class Run>
__device__ void each_group(const RowTeams& by, int groups, Run&& run) {
#pragma unroll
  for (int k = 0; k < Held; ++k) {
    const int group = by.lane() + k * by.lanes();
    if (group < groups) run(k, group * kGroup<T>);
  }
}
// This thread's groups of a row, which must be there; where it keeps fewer, the last one again. So no read
// hangs on a condition, and all are under way at once: behind a branch each would be waited for.
template <bool Aligned, class T, int Held>
__device__ void read_row(Group<T> (&row)[Held], const T* from, const RowTeams& by) {
#pragma unroll
  for (int k = 0; k < Held; ++k)
    row[k] = read_held<Aligned>(from + min(by.lane() + k * by.lanes(), by.groups - 1) * kGroup<T>);
}

// Adds each of several values over a team; every thread gets the sums. All threads of the block must call it,
// with `turn` 0 and 1 by turns: a call's values stay in shared memory until the one after the next.
template <int Count>
__device__ void add_up(float (&sums)[Count], const RowTeams& by, int& turn) {
  for (int distance = (by.lanes() < 32 ? by.lanes() : 32) / 2; distance > 0; distance /= 2)
#pragma unroll
    for (int i = 0; i < Count; ++i) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], distance);
  if (by.lanes() <= 32) return;
  __shared__ float of_warps[2][kMostTeamWarps][Count];
  const int warp = static_cast<int>(threadIdx.x) / 32, first = by.team() * (by.lanes() / 32);
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int i = 0; i < Count; ++i) of_warps[turn][warp][i] = sums[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    sums[i] = of_warps[turn][first][i];
#pragma unroll 1
    for (int other = 1; other < by.lanes() / 32; ++other) sums[i] += of_warps[turn][first + other][i];
  }
  turn ^= 1;
}

}  // namespace eddy::cuda
