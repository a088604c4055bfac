// A team: the threads that work on one row, either a warp (Team<32>) or a whole block of kThreads or more.
// Each thread reduces its own elements, then the team combines: within warps by a butterfly of shuffles,
// between warps in the order of the warps. The order depends only on the team's size, so the bits of a result
// are the same in every run. Every thread of the team gets the result.
//
// Shared memory: one value per warp, for a team of several warps.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/core/launch.cuh"

namespace eddy::cuda {

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

__device__ inline float minus_infinity() {
  return __int_as_float(static_cast<int>(0xff800000u));
}

// The larger of two numbers; of a number and NaN the number.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ std::int32_t operator()(std::int32_t a, std::int32_t b) const { return a < b ? b : a; }
};

// The larger of two numbers; NaN if either is NaN.
struct NanMax {
  __device__ float operator()(float a, float b) const { return ((b <= a) | (a != a)) ? a : b; }
};

template <int Threads>
struct Team {
  static_assert(Threads == 32 || (Threads >= kThreads && Threads % 32 == 0));
  static constexpr int kBlock = Threads > kThreads ? Threads : kThreads;  // threads of a block
  static constexpr int kRowsPerBlock = kBlock / Threads;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % Threads; }
  // The first row of this team, and the distance to its next one: the same for all threads of the team.
  __device__ static std::int64_t first_row() {
    return static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / Threads;
  }
  __device__ static std::int64_t row_step() { return static_cast<std::int64_t>(gridDim.x) * kRowsPerBlock; }

  // Combines one value of each thread. All threads of the team must call it.
  template <class T, class Combine>
  __device__ static T reduce(T value, Combine combine) {
    for (int distance = 16; distance > 0; distance /= 2)
      value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    if constexpr (Threads > 32) {
      constexpr int kWarps = Threads / 32;
      __shared__ T of_warps[kWarps];
      if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
      __syncthreads();
      value = of_warps[0];
      for (int warp = 1; warp < kWarps; ++warp) value = combine(value, of_warps[warp]);
      __syncthreads();  // the next call overwrites the shared values
    }
    return value;
  }

  // Returns the sum of term(i) over first <= i < end.
  template <class Term>
  __device__ static auto sum(std::int64_t first, std::int64_t end, Term&& term) {
    decltype(term(first)) own = 0;
    for (std::int64_t i = first + lane(); i < end; i += Threads) own += term(i);
    return reduce(own, Plus{});
  }
};

// Rows of up to this many elements are reduced by a warp. For longer rows a block is faster than the serial
// loop of a warp.
inline constexpr std::int64_t kWarpRow = 1024;

// Launches a kernel over `rows` rows: `warp_kernel` with a warp to a row, or `block_kernel` with a block to
// a row.
template <class Args>
void launch_rows(const char* name, void (*warp_kernel)(Args), void (*block_kernel)(Args), std::int64_t rows,
                 std::int64_t width, const std::type_identity_t<Args>& args) {
  if (rows == 0) return;
  if (width <= kWarpRow)
    launch(name, warp_kernel, grid_for(rows, Team<32>::kRowsPerBlock, 64), kThreads, args);
  else
    launch(name, block_kernel, grid_for(rows, 1, 64), kThreads, args);
}

}  // namespace eddy::cuda
