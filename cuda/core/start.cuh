// The one place where kernels are started, except for those whose blocks are all resident (resident_launch.cuh).
// tests/emulation/ replaces this file by one that runs kernels on the host.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "cuda/runtime/stream.cuh"

namespace eddy::cuda {

// Returns the block's dynamic shared memory, aligned to 16 bytes; the launch sets its size.
__device__ inline float* shared_memory() {
  extern __shared__ float4 shared_fours[];
  return reinterpret_cast<float*>(shared_fours);
}

// Allows a kernel to use this much shared memory. The limit belongs to the kernel, not to the launch, and is
// only ever raised: captured work may hold launches of the same kernel that use more. It is asked for once, and
// again after the GPU was closed, which forgets it.
inline void allow_shared(const char* name, const void* kernel, int bytes) {
  struct Allowed {
    std::uint64_t opening;
    int bytes;
  };
  static std::mutex mutex;
  static std::unordered_map<const void*, Allowed> of_kernels;
  const std::lock_guard lock(mutex);
  Allowed& allowed = of_kernels[kernel];
  if (allowed.opening != times_opened()) {
    cudaFuncAttributes now{};
    check(cudaFuncGetAttributes(&now, kernel), name);
    allowed = {times_opened(), now.maxDynamicSharedSizeBytes};
  }
  if (allowed.bytes >= bytes) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  allowed.bytes = bytes;
}

// Enqueues a kernel on the library's stream. Errors contain `name`.
template <class Args>
void start(const char* name, void (*kernel)(Args), std::int64_t blocks, int threads, int shared_bytes,
           const Args& args) {
  static_assert(sizeof(Args) <= 4096);  // the most that every GPU takes as a kernel's arguments
  const cudaStream_t queue = stream();
  if (shared_bytes > 0) allow_shared(name, reinterpret_cast<const void*>(kernel), shared_bytes);
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
           static_cast<std::size_t>(shared_bytes), queue>>>(args);
}

}  // namespace eddy::cuda
