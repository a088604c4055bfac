// Where kernels are started, but for those whose blocks meet (grid_barrier.cuh), and nowhere else:
// tests/emulation/ has a file in this one's place that runs them on the host.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/runtime/stream.cuh"

namespace eddy::cuda {

// The block's shared memory, 16-byte aligned; its size is the launch's.
__device__ inline float* shared_memory() {
  extern __shared__ float4 shared_fours[];
  return reinterpret_cast<float*>(shared_fours);
}

// Lets a kernel ask for this much shared memory. The limit is the kernel's and not the launch's, and is only
// raised: what was captured may hold launches of the same kernel that ask for more.
inline void allow_shared(const char* name, const void* kernel, int bytes) {
  cudaFuncAttributes now{};
  check(cudaFuncGetAttributes(&now, kernel), name);
  if (now.maxDynamicSharedSizeBytes < bytes)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
}

// Puts a kernel into the library's stream. `name` is for errors.
template <class Args>
void start(const char* name, void (*kernel)(Args), std::int64_t blocks, int threads, int shared_bytes,
           const Args& args) {
  static_assert(sizeof(Args) <= 4096);  // what every GPU takes as a kernel's arguments
  const cudaStream_t queue = stream();
  if (shared_bytes > 0) allow_shared(name, reinterpret_cast<const void*>(kernel), shared_bytes);
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
           static_cast<std::size_t>(shared_bytes), queue>>>(args);
}

}  // namespace eddy::cuda
