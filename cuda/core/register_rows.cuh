// Register-resident rows: a team of neighbouring threads reads a row once and keeps it in registers.
//
// A row is divided into groups of 16 bytes. Of a team of `lanes` threads, a power of two, thread l keeps
// groups l, l + lanes, ..., so neighbouring threads access neighbouring groups. A team is part of a warp for
// short rows, else one warp or several. A block has kRegisterRowThreads threads, or one team if that is
// larger.
//
// Sums over a row: each thread adds its elements in order, then the lanes of a warp are added by a butterfly
// of shuffles, then the warps in order. So the bits depend only on the row's length and type, not on the
// address, the number of rows or the GPU. Rows that are not aligned to 16 bytes use the same kernels with
// `Aligned` false, which read and write element by element.
//
// Shared memory: two values for each warp of a block and each of the numbers that are added at once.
#pragma once

#include <bit>

#include "cuda/core/numbers.cuh"

namespace eddy::cuda {

inline constexpr std::int64_t kLongestRegisterRow = 8192;  // elements
inline constexpr int kRegisterRowThreads = 128;            // threads of a block, unless a team has more
inline constexpr int kMostTeamWarps = 16;

// How the threads of a block are divided into teams, one row each.
struct RowTeams {
  int lane_bits;  // log2 of the threads of a team
  int groups;     // groups of a row
  int count;      // teams of a block

  __host__ __device__ int lanes() const { return 1 << lane_bits; }
  int threads() const { return lanes() * count; }

  __device__ int lane() const { return static_cast<int>(threadIdx.x) & (lanes() - 1); }
  __device__ int team() const { return static_cast<int>(threadIdx.x) >> lane_bits; }
};

// Returns whether rows of this width are register-resident: whole groups, at least one, and at most kLongestRegisterRow
// elements.
template <class T>
bool rows_fit_registers(std::int64_t width) {
  return width > 0 && width % kGroup<T> == 0 && width <= kLongestRegisterRow;
}
// Returns the smallest teams that hold a row with at most `Elements` elements to a thread.
template <int Elements, class T>
RowTeams row_teams(std::int64_t width) {
  static_assert(kLongestRegisterRow <= Elements * 32 * kMostTeamWarps);
  const auto wanted = static_cast<unsigned>((width + Elements - 1) / Elements);
  const int bits = std::countr_zero(std::bit_ceil(wanted));
  return {bits, static_cast<int>(width) / kGroup<T>,
          kRegisterRowThreads >> bits > 1 ? kRegisterRowThreads >> bits : 1};
}
// Returns whether all rows of a tensor start at multiples of 16 bytes; true for null.
template <class T>
bool rows_aligned(const void* first, std::int64_t stride = 0) {
  return aligned(first) && stride % kGroup<T> == 0;
}

template <bool Aligned, class T>
__device__ Group<T> read_row_group(const T* from) {
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
__device__ void write_row_group(T* to, const Group<T>& group) {
  if constexpr (Aligned) {
    write_group(to, group);
  } else {
#pragma unroll
    for (int j = 0; j < kGroup<T>; ++j) to[j] = static_cast<T>(group.at[j]);
  }
}
// The same number of entries of a vector that is f32 whatever T is, such as a weight.
template <bool Aligned, class T>
__device__ Group<T> read_parameters(const float* from) {
  Group<T> group;
#pragma unroll
  for (int j = 0; j < kGroup<T>; j += 4) {
    const Group<float> four = read_row_group<Aligned>(from + j);
#pragma unroll
    for (int i = 0; i < 4; ++i) group.at[j + i] = four.at[i];
  }
  return group;
}

// Calls run(k, column) for each group of the row that this thread keeps: its k-th, which starts at `column`.
template <class T, int ThreadGroups, class Run>
__device__ void each_group(const RowTeams& teams, int groups, Run&& run) {
#pragma unroll
  for (int k = 0; k < ThreadGroups; ++k) {
    const int group = teams.lane() + k * teams.lanes();
    if (group < groups) run(k, group * kGroup<T>);
  }
}
// Reads this thread's groups of a row, which must exist; where it keeps fewer, it reads the last group again.
// So no load depends on a condition and all are in flight at once; behind branches each would be waited for.
template <bool Aligned, class T, int ThreadGroups>
__device__ void read_row(Group<T> (&row)[ThreadGroups], const T* from, const RowTeams& teams) {
#pragma unroll
  for (int k = 0; k < ThreadGroups; ++k)
    row[k] =
        read_row_group<Aligned>(from + min(teams.lane() + k * teams.lanes(), teams.groups - 1) * kGroup<T>);
}

// Adds each of `Count` values over a team; every thread gets the sums. All threads of the block must call it.
// `turn` alternates between 0 and 1: the values of a call stay in shared memory until the call after the
// next.
template <int Count>
__device__ void add_up(float (&sums)[Count], const RowTeams& teams, int& turn) {
  for (int distance = (teams.lanes() < 32 ? teams.lanes() : 32) / 2; distance > 0; distance /= 2)
#pragma unroll
    for (int i = 0; i < Count; ++i) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], distance);
  if (teams.lanes() <= 32) return;
  __shared__ float of_warps[2][kMostTeamWarps][Count];
  const int warp = static_cast<int>(threadIdx.x) / 32, first = teams.team() * (teams.lanes() / 32);
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int i = 0; i < Count; ++i) of_warps[turn][warp][i] = sums[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    sums[i] = of_warps[turn][first][i];
#pragma unroll 1
    for (int other = 1; other < teams.lanes() / 32; ++other) sums[i] += of_warps[turn][first + other][i];
  }
  turn ^= 1;
}

}  // namespace eddy::cuda
