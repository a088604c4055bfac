// Elements of activations, f32 or bf16: kernels compute in f32 and read and write either.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstring>

#include "cuda/core/launch.cuh"
#include "tensor/base/dtype.h"

namespace eddy::cuda {

// Four neighbouring elements as they are stored, 16 or 8 bytes.
template <class T>
struct alignas(4 * sizeof(T)) StoredFour {
  T at[4];
};

// Four neighbours from a place that is aligned to them, or one number four times.
template <class T>
__device__ Four read_four(const T* from) {
  const StoredFour<T> stored = *reinterpret_cast<const StoredFour<T>*>(from);
  Four four;
#pragma unroll
  for (int j = 0; j < 4; ++j) four.at[j] = static_cast<float>(stored.at[j]);
  return four;
}
template <class T>
__device__ Four repeat_four(const T* from) {
  const float value = static_cast<float>(*from);
  return {{value, value, value, value}};
}
template <class T>
__device__ void write_four(T* to, const Four& four) {
  StoredFour<T> stored;
#pragma unroll
  for (int j = 0; j < 4; ++j) stored.at[j] = static_cast<T>(four.at[j]);
  *reinterpret_cast<StoredFour<T>*>(to) = stored;
}

// The neighbours that make 16 bytes: four of f32, eight of bf16. As stored, and as computed with.
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

// bf16 in pairs: a GPU rounds two numbers by one instruction, of a NaN it keeps that it is one.
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

// From and to a place that is aligned to 16 bytes.
template <class T>
__device__ Group<T> read_group(const T* from) {
  const StoredGroup<T> whole = *reinterpret_cast<const StoredGroup<T>*>(from);  // by one instruction
  return computed(whole);
}
template <class T>
__device__ void write_group(T* to, const Group<T>& group) {
  *reinterpret_cast<StoredGroup<T>*>(to) = stored(group);
}

// to = beta to + value, where `to` is not read when beta is 0.
template <class T>
__device__ void add_to(T& to, float beta, float value) {
  to = static_cast<T>(beta == 0.0f ? value : beta * static_cast<float>(to) + value);
}

// Calls run(type) with a null pointer to the type that activations are stored in.
// errors: DtypeError for other dtypes.
template <class Run>
void for_activations(const char* kernel, Dtype dtype, Run&& run) {
  if (dtype == Dtype::f32) return run(static_cast<float*>(nullptr));
  if (dtype == Dtype::bf16) return run(static_cast<bf16*>(nullptr));
  refuse_dtype(kernel, dtype);
}
// That type, of such a pointer.
template <class Pointer>
using StoredIn = std::remove_pointer_t<std::remove_cvref_t<Pointer>>;

}  // namespace eddy::cuda
