// Turns of the blocks of one kernel at something in global memory: each waits until those before it have passed theirs
// on, so that sums get their terms in a fixed order without float atomics. All blocks must be resident
// (start_resident, cuda/core/resident_launch.cuh), and no two may wait for each other: where blocks do pieces of work
// in an order that all share, and wait only for pieces before their own, the first unfinished one waits for none.
// tests/emulation/include/ replaces this file by its path, so it lies here though one kernel alone includes it.
// source: PTX ISA, "Memory Consistency Model": a release by one thread behind a barrier of its block, and an acquire by
// another ahead of one of its own, make the first block's writes visible to the plain reads of the second.
#pragma once

#include <cuda_runtime.h>

#include <cuda/atomic>

namespace eddy::cuda {

// Counts the turns that were passed on: a number in global memory, 0 when the kernel starts.
class TurnCounter {
 public:
  __device__ explicit TurnCounter(unsigned* counter) : counter_(*counter) {}

  // Whether `turn` turns have been passed on. One thread of the block asks, and a barrier must follow before others
  // read what those turns wrote.
  __device__ bool has_come(unsigned turn) { return counter_.load(::cuda::memory_order_acquire) == turn; }
  // Waits until it has.
  // errors: after half a minute without it the kernel traps, so that it does not hold the GPU for good.
  __device__ void await(unsigned turn) {
    unsigned polls = 0;
    while (!has_come(turn))
      if (++polls == kMostPolls) __trap();
  }
  // Passes the turn on. One thread of the block calls it, behind a barrier after what the block wrote in its turn.
  __device__ void pass() { counter_.fetch_add(1, ::cuda::memory_order_release); }

 private:
  static constexpr unsigned kMostPolls = 1u << 27;  // of at least 0.2 us, the way to the second-level cache

  ::cuda::atomic_ref<unsigned, ::cuda::thread_scope_device> counter_;
};

}  // namespace eddy::cuda
