// Elements of activations: f32 or bf16 in memory, f32 in arithmetic.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstring>

#include "cuda/core/launch.cuh"
#include "tensor/base/dtype.h"

namespace eddy::cuda {

// log2(e): e^x is fast_exp2(x * kLog2OfE).
inline constexpr float kLog2OfE = 1.44269504f;

// A group: the neighbours that fill 16 bytes, four of f32 or eight of bf16. As stored, and as computed with.
template <class T>
inline constexpr int kGroup = 16 / static_cast<int>(sizeof(T));
template <class T>
struct alignas(16) StoredGroup {
  T at[kGroup<T>];
};
template <class T>
struct Group {
  float at[kGroup<T>];
};

// Converts bf16 in pairs, since a GPU rounds two numbers by one instruction. A NaN stays a NaN.
template <class T>
__device__ StoredGroup<T> stored(const Group<T>& group) {
  StoredGroup<T> result;
#pragma unroll
  for (int j = 0; j < kGroup<T>; j += 2) {
    if constexpr (std::is_same_v<T, bf16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(group.at[j], group.at[j + 1]);
      std::memcpy(&result.at[j], &pair, sizeof pair);
    } else {
      result.at[j] = group.at[j];
      result.at[j + 1] = group.at[j + 1];
    }
  }
  return result;
}
template <class T>
__device__ Group<T> computed(const StoredGroup<T>& stored) {
  Group<T> group;
#pragma unroll
  for (int j = 0; j < kGroup<T>; ++j) group.at[j] = static_cast<float>(stored.at[j]);
  return group;
}

// Reads and writes a group at an address that is aligned to 16 bytes.
template <class T>
__device__ Group<T> read_group(const T* from) {
  const StoredGroup<T> whole = *reinterpret_cast<const StoredGroup<T>*>(from);  // by one instruction
  return computed(whole);
}
template <class T>
__device__ void write_group(T* to, const Group<T>& group) {
  *reinterpret_cast<StoredGroup<T>*>(to) = stored(group);
}

// to = beta to + value; `to` is not read when beta is 0.
template <class T>
__device__ void add_to(T& to, float beta, float value) {
  to = static_cast<T>(beta == 0.0f ? value : beta * static_cast<float>(to) + value);
}

// Calls run(type) with a null pointer to the storage type of `dtype`.
// errors: DtypeError for dtypes other than f32 and bf16.
template <class Run>
void for_activations(const char* kernel, Dtype dtype, Run&& run) {
  if (dtype == Dtype::f32) return run(static_cast<float*>(nullptr));
  if (dtype == Dtype::bf16) return run(static_cast<bf16*>(nullptr));
  refuse_dtype(kernel, dtype);
}
// The type that such a pointer points to.
template <class Pointer>
using StoredIn = std::remove_pointer_t<std::remove_cvref_t<Pointer>>;

}  // namespace eddy::cuda
