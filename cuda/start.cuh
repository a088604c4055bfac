// Where kernels are started, but for those whose blocks meet (block_group.cuh), and nowhere else:
// tests/gpu/emulation/ has a file in this one's place that runs them on the host.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/stream.cuh"

namespace eddy::cuda {

// The block's shared memory, 16-byte aligned; its size is the launch's.
__device__ inline float* shared_memory() {
  extern __shared__ float4 shared_fours[];
  return reinterpret_cast<float*>(shared_fours);
}

// Puts a kernel into the library's stream. `name` is for errors.
template <class Args>
void start(const char* name, void (*kernel)(Args), std::int64_t blocks, int threads, int shared_bytes,
           const Args& args) {
  static_assert(sizeof(Args) <= 4096);  // what every GPU takes as a kernel's arguments
  const cudaStream_t queue = stream();
  if (shared_bytes > 0)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), name);
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
           static_cast<std::size_t>(shared_bytes), queue>>>(args);
}

}  // namespace eddy::cuda
