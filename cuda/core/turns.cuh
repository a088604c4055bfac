// Turns of the blocks of one kernel at something in global memory: each waits until those before it have passed theirs
// on, so that sums get their terms in a fixed order without float atomics. tests/emulation/ replaces this file by its
// own.
//
// Items of work are taken by tickets, and an item waits only for items with lower tickets. So no wait is for ever,
// however many blocks the GPU holds at once and whatever order it starts them in:
//   - A ticket is taken by a block that runs, and a block that runs goes on to run.
//   - Of all items that are not finished take the one with the lowest ticket. It waits for none. Its block works on it
//     or on one before it, which would be unfinished and lower: so the block works on it and finishes it.
// That holds too where a block takes its next ticket before it has finished its item.
// source: PTX ISA, "Memory Consistency Model": a release by one thread behind a barrier of its block, and an acquire by
// another ahead of one of its own, make the first block's writes visible to the plain reads of the second.
#pragma once

#include <cuda_runtime.h>

#include <cuda/atomic>

namespace eddy::cuda {

// A number in global memory that all blocks of a kernel share; 0 when the kernel starts.
class SharedCounter {
 public:
  __device__ explicit SharedCounter(unsigned* counter) : counter_(*counter) {}

  // Returns 0, 1, 2, ... to whoever calls it first, second, ...
  __device__ unsigned take() { return counter_.fetch_add(1, ::cuda::memory_order_relaxed); }

  // Whether `turn` turns have been passed on. One thread of the block asks, and a barrier must follow as for await.
  __device__ bool has_come(unsigned turn) { return counter_.load(::cuda::memory_order_acquire) == turn; }
  // Waits until `turn` turns have been passed on. One thread of the block calls it; a barrier must follow before others
  // read what those turns wrote.
  // errors: after half a minute without them the kernel traps, so that it does not hold the GPU for good.
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
