// A barrier over a group of blocks, for kernels whose blocks are all resident on the GPU at once. An
// algorithm that keeps its weights in the shared memory of many multiprocessors needs it. tests/emulation/
// replaces this file by its own.
//
// The groups are not the hardware's clusters: those hold at most 16 blocks, and how many clusters of that
// size fit at once depends on the GPU. A group here has any size, and its barrier is a counter in global
// memory.
// source: PTX ISA, "Memory Consistency Model": the block's barriers, with a release and an acquire by one of
// its threads, make all writes of the group before the barrier visible to its plain reads after it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cuda/atomic>

#include "cuda/core/start.cuh"

namespace eddy::cuda {

namespace cuda_std = ::cuda;  // NVIDIA's library, whose name eddy::cuda hides

// The barrier of one group of blocks. Block b of the grid has rank b % blocks in group b / blocks.
class BlockGroup {
 public:
  static constexpr int kCounterStride = 32;  // each group's counter has a cache line of its own

  // `counters`: kCounterStride numbers for each group, all 0 when the kernel starts.
  __device__ BlockGroup(unsigned* counters, int blocks)
      : index(static_cast<int>(blockIdx.x) / blocks),
        rank(static_cast<int>(blockIdx.x) % blocks),
        counter_(counters + index * kCounterStride),
        blocks_(static_cast<unsigned>(blocks)) {}

  // Waits for all threads of the group; all of them must call it.
  // errors: after half a minute without the others the kernel traps, so that it does not hold the GPU for
  // good. It counts polls, which a checker such as compute-sanitizer slows as it slows the others' work.
  __device__ void sync() {
    __syncthreads();
    if (blocks_ > 1 && threadIdx.x == 0) {
      const cuda_std::atomic_ref<unsigned, cuda_std::thread_scope_device> arrived(*counter_);
      awaited_ += blocks_;
      arrived.fetch_add(1, cuda_std::memory_order_release);
      // Compares the difference, so that the counter may wrap.
      unsigned polls = 0;
      while (static_cast<int>(arrived.load(cuda_std::memory_order_acquire) - awaited_) < 0)
        if (++polls == kMostPolls) __trap();
    }
    __syncthreads();
  }

  const int index, rank;

 private:
  static constexpr unsigned kMostPolls = 1u << 27;  // of at least 0.2 us, the way to the second-level cache

  unsigned* counter_;
  unsigned blocks_, awaited_ = 0;
};

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

// As start, for kernels with a BlockGroup: at most most_resident_blocks blocks.
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
