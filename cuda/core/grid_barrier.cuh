// Kernels whose blocks are all on the GPU at once, in groups that wait for each other: what an algorithm
// needs that keeps its weights in the shared memory of many multiprocessors. tests/emulation/ has a file
// in this one's place.
//
// The groups are not the hardware's clusters: those hold at most 16 blocks, and how many of that size fit
// beside each other depends on the GPU's make. A group has any size, and meets by a counter in global memory.
// source: PTX ISA, "Memory Consistency Model": the barriers of the block and the release and acquire of one
// of its threads make all writes of the group before the meeting visible to its plain reads after it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/core/start.cuh"

namespace eddy::cuda {

// The blocks rank 0 .. blocks - 1 of one group; block b of the grid is number b % blocks of group b / blocks.
class BlockGroup {
 public:
  static constexpr int kCounterStride = 32;  // each group's counter in a line of its own

  // `counters`: kCounterStride numbers for each group, 0 at the start of the kernel.
  __device__ BlockGroup(unsigned* counters, int blocks)
      : index(static_cast<int>(blockIdx.x) / blocks),
        rank(static_cast<int>(blockIdx.x) % blocks),
        counter_(counters + index * kCounterStride),
        blocks_(static_cast<unsigned>(blocks)) {}

  // Waits for all threads of the group; all of them must call it.
  // errors: one who never comes is a fault, and ends the launch with an error in place of holding the GPU for
  // good.
  __device__ void meet() {
    __syncthreads();
    if (blocks_ == 1) return;
    if (threadIdx.x == 0) {
      awaited_ += blocks_;
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter_) : "memory");
      // By the difference, so that the counter may wrap.
      const long long began = clock64();
      while (static_cast<int>(read() - awaited_) < 0)
        if (clock64() - began > kPatience) __trap();
    }
    __syncthreads();
  }

  const int index, rank;

 private:
  static constexpr long long kPatience = 1ll << 36;  // clocks: half a minute

  __device__ unsigned read() const {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter_) : "memory");
    return value;
  }

  unsigned* counter_;
  unsigned blocks_, awaited_ = 0;
};

// How many blocks of a kernel the GPU holds at once.
template <class Args>
int blocks_together(void (*kernel)(Args), int threads, int shared_bytes) {
  allow_shared("blocks_together", reinterpret_cast<const void*>(kernel), shared_bytes);
  int of_one = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_one, kernel, threads,
                                                      static_cast<std::size_t>(shared_bytes)),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return of_one * multiprocessors();
}

// The most shared memory that a launch may give to a block.
inline int most_shared_bytes() {
  stream();  // of the GPU in use
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return bytes;
}

// As start, for blocks that meet: at most blocks_together of them.
template <class Args>
void start_together(const char* name, void (*kernel)(Args), int blocks, int threads, int shared_bytes,
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
