// Launches whose blocks are all resident on the GPU at once, for kernels whose blocks wait for each other (turns.cuh),
// and what a GPU holds. tests/emulation/ replaces this file by its own.
#pragma once

#include <cuda_runtime.h>

#include "cuda/core/start.cuh"

namespace eddy::cuda {

// Returns how many blocks of a kernel the GPU holds at once.
template <class Args>
int most_resident_blocks(void (*kernel)(Args), int threads, int shared_bytes) {
  allow_shared("most_resident_blocks", reinterpret_cast<const void*>(kernel), shared_bytes);
  int of_one = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_one, kernel, threads,
                                                      static_cast<std::size_t>(shared_bytes)),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return of_one * multiprocessors();
}

// Returns the most shared memory that a launch may give to a block.
inline int most_shared_bytes() {
  stream();  // of the GPU in use
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return bytes;
}

// As start: at most most_resident_blocks blocks, which are resident together.
template <class Args>
void start_resident(const char* name, void (*kernel)(Args), int blocks, int threads, int shared_bytes,
                    const Args& args) {
  static_assert(sizeof(Args) <= 4096);
  const cudaStream_t queue = stream();
  const void* const function = reinterpret_cast<const void*>(kernel);
  allow_shared(name, function, shared_bytes);
  void* arguments[] = {const_cast<Args*>(&args)};
  check(cudaLaunchCooperativeKernel(function, dim3(static_cast<unsigned>(blocks)),
                                    dim3(static_cast<unsigned>(threads)), arguments,
                                    static_cast<std::size_t>(shared_bytes), queue),
        name);
}

}  // namespace eddy::cuda
