// Replaces CUDA's header: the keywords and device functions of kernels, for g++.
#pragma once

#include <math.h>

#include <cstring>
#include <type_traits>

#include "tests/emulation/include/cuda_runtime_api.h"

#define __global__
#define __grid_constant__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// One block runs at a time, so its declared shared memory can be a static variable.
#define __shared__ static

struct EmulatedIndex {
  unsigned x = 0, y = 0, z = 0;
};
struct EmulatedSize {
  unsigned x = 1, y = 1, z = 1;
};
extern EmulatedIndex threadIdx, blockIdx;
extern EmulatedSize blockDim, gridDim;
constexpr int warpSize = 32;

inline void __syncthreads() {
  emulation::barrier();
}
inline void __syncwarp(unsigned = 0xffffffffu) {
  emulation::exchange(nullptr, 0);
}

namespace emulation {

// The value of a lane in this exchange of the warp. Only a full warp can exchange.
template <class T>
T from_lane(unsigned mask, const T& mine, int lane) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (mask != 0xffffffffu) stop("an exchange with mask %x (all lanes must take part)", mask);
  const unsigned char* const all = exchange(&mine, sizeof mine);
  T value;
  std::memcpy(&value, all + static_cast<std::size_t>(lane) * kLaneBytes, sizeof value);
  return value;
}
inline int lane() {
  return static_cast<int>(threadIdx.x % 32);
}

}  // namespace emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return emulation::from_lane(mask, value, lane & 31);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return emulation::from_lane(mask, value, emulation::lane() ^ distance);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int distance) {
  const int lane = emulation::lane();
  return emulation::from_lane(mask, value, lane < distance ? lane : lane - distance);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int distance) {
  const int lane = emulation::lane();
  return emulation::from_lane(mask, value, lane + distance > 31 ? lane : lane + distance);
}
inline unsigned __ballot_sync(unsigned mask, bool vote) {
  if (mask != 0xffffffffu) emulation::stop("a vote with mask %x (all lanes must take part)", mask);
  const unsigned char* const all = emulation::exchange(&vote, sizeof vote);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    votes |= static_cast<unsigned>(all[lane * emulation::kLaneBytes] != 0) << lane;
  return votes;
}
inline bool __any_sync(unsigned mask, bool vote) {
  return __ballot_sync(mask, vote) != 0;
}
inline bool __all_sync(unsigned mask, bool vote) {
  return __ballot_sync(mask, vote) == 0xffffffffu;
}

template <class T>
T __ldg(const T* from) {
  return *from;
}
inline float __int_as_float(int bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float __uint_as_float(unsigned bits) {
  return __int_as_float(static_cast<int>(bits));
}
inline int __float_as_int(float value) {
  int bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline unsigned __float_as_uint(float value) {
  return static_cast<unsigned>(__float_as_int(value));
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline int __clz(int bits) {
  return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits));
}
inline float __fmul_rn(float a, float b) {  // never part of a fused multiply-add
  return a * b;
}
inline float __expf(float x) {
  return expf(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}

// Only one thread runs at a time, so nothing more is needed.
inline unsigned atomicAdd(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to += value;
  return before;
}
inline int atomicAdd(int* to, int value) {
  const int before = *to;
  *to += value;
  return before;
}

// CUDA's overloads for two numbers of one type. Of a number and a NaN they return the number.
template <class T>
requires std::is_integral_v<T> T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
requires std::is_integral_v<T> T max(T a, T b) {
  return a < b ? b : a;
}
inline float min(float a, float b) {
  return fminf(a, b);
}
inline float max(float a, float b) {
  return fmaxf(a, b);
}
inline double min(double a, double b) {
  return fmin(a, b);
}
inline double max(double a, double b) {
  return fmax(a, b);
}
