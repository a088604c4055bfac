// Four neighbours of a row at a time. `Whole`: by one load or store, of rows that begin at multiples of 16 bytes and
// have whole fours; else number by number, for rows at any address and of any length.
#pragma once

#include "cuda/core/map.cuh"
#include "cuda/core/warp_matrix.cuh"

namespace eddy::cuda {

using Fours = Neighbours<float, 4>;

// Whether rows of whole fours that are so far apart begin at multiples of 16 bytes; true for null.
inline bool takes_fours(const void* data, std::int64_t stride = 0) {
  return aligned(data) && stride % 4 == 0;
}

// Returns the four numbers at `from`, of which the row has `count` more; 0 for those behind its end.
template <bool Whole>
__device__ Fours read_fours(const float* from, int count) {
  if constexpr (Whole) {
    return *reinterpret_cast<const Fours*>(from);
  } else {
    Fours four;
#pragma unroll
    for (int e = 0; e < 4; ++e) four.at[e] = e < count ? from[e] : 0.0f;
    return four;
  }
}
template <bool Whole, class T>
__device__ void write_fours(T* to, const Fours& four, int count) {
  if constexpr (Whole) {
    *reinterpret_cast<Neighbours<T, 4>*>(to) = as_stored<T>(four);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (e < count) to[e] = static_cast<T>(four.at[e]);
  }
}

// The same for f32 that nothing reads back in the kernel: by one instruction also where the compiler would store parts.
template <bool Whole>
__device__ void store_fours(float* to, const Fours& four, int count) {
  if constexpr (Whole)
    store_whole(to, four);
  else
    write_fours<false>(to, four, count);
}

// The lanes of a warp that have a head: the fewest, a power of two, that have all its numbers, four neighbours each:
// 16 lanes for heads of 64, so that a warp has two of them. Longer heads than 128 have all 32 lanes, each with every
// 32nd four. A sum over a head: a lane adds its numbers in order, then the lanes are added by a butterfly of shuffles.
// So the bits depend on the size of the head alone.
struct HeadTeam {
  int lanes, lane;  // how many, and which of them this thread is
  int size;         // numbers of the head; 0 for a team that has none

  __host__ __device__ static int lanes_for(std::int64_t size) {
    int lanes = 1;
    while (lanes < 32 && 4 * lanes < size) lanes *= 2;
    return lanes;
  }

  // Calls body(ahead, i) for the lane's fours, which start at number i. ahead: it is the first.
  template <class Body>
  __device__ void for_each(Body&& body) const {
    if (4 * lane < size) body(true, 4 * lane);
#pragma unroll 1
    for (int i = 4 * (lane + lanes); i < size; i += 4 * lanes) body(false, i);
  }
  // Adds two numbers over the lanes. All threads of the warp must call it.
  __device__ void add_up(float& a, float& b) const {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      a += __shfl_xor_sync(0xffffffffu, a, distance);
      b += __shfl_xor_sync(0xffffffffu, b, distance);
    }
  }
};

}  // namespace eddy::cuda
