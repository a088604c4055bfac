// The threads that work together on one row: a warp (Team<32>), or a whole block of kThreads or more. Each
// sums or compares its own elements, then the team combines: within warps by a butterfly of shuffles, between
// warps in the order of the warps. The order depends on the team's size alone, so the bits of a result do not
// change from run to run; every thread of the team gets it.
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

// The larger of two, and NaN once there is one.
struct NanMax {
  __device__ float operator()(float a, float b) const { return (b <= a) | (a != a) ? a : b; }
};

template <int Threads>
struct Team {
  static_assert(Threads == 32 || (Threads >= kThreads && Threads % 32 == 0));
  static constexpr int kBlock = Threads > kThreads ? Threads : kThreads;  // threads of a block
  static constexpr int kRowsPerBlock = kBlock / Threads;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % Threads; }
  // The first row of this team, and the distance to its next one. All threads of a team walk alike.
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
      __syncthreads();  // the next call writes there again
    }
    return value;
  }
};

// Rows of up to this many elements are a warp's work; for longer ones a block is faster than a warp's serial
// loop.
inline constexpr std::int64_t kWarpRow = 1024;

// Runs a kernel on `rows` rows: `of_warp` with a team of a warp for each, `of_block` with a block for each.
template <class Args>
void launch_rows(const char* name, void (*of_warp)(Args), void (*of_block)(Args), std::int64_t rows,
                 std::int64_t width, const std::type_identity_t<Args>& args) {
  if (rows == 0) return;
  if (width <= kWarpRow)
    launch(name, of_warp, grid_for(rows, Team<32>::kRowsPerBlock, 64), kThreads, args);
  else
    launch(name, of_block, grid_for(rows, 1, 64), kThreads, args);
}

}  // namespace eddy::cuda
