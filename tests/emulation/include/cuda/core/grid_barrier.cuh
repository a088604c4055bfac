// Replaces cuda/core/grid_barrier.cuh: the emulation's scheduler, which knows the blocks of each group,
// implements the barrier.
#pragma once

#include "cuda/core/start.cuh"
#include "tests/emulation/together.h"

namespace eddy::cuda {

class BlockGroup {
 public:
  static constexpr int kCounterStride = 32;

  BlockGroup(unsigned* counters, int blocks)
      : index(static_cast<int>(blockIdx.x) / blocks),
        rank(static_cast<int>(blockIdx.x) % blocks),
        blocks_(blocks) {
    if (counters[index * kCounterStride] != 0) emulation::stop("a group's counter is not 0 at the start");
  }

  void sync() { emulation::sync_blocks(index * blocks_, blocks_); }

  const int index, rank;

 private:
  int blocks_;
};

template <class Args>
int most_resident_blocks(void (*)(Args), int threads, int) {
  return emulation::most_resident_blocks(threads);
}

inline int most_shared_bytes() {
  return 227 << 10;  // as on 9.0
}

template <class Args>
void start_resident(const char* name, void (*kernel)(Args), int blocks, int threads, int shared_bytes,
                    const Args& args) {
  if (shared_bytes > most_shared_bytes())
    emulation::stop("%s: %d bytes of shared memory", name, shared_bytes);
  emulation::submit(stream(), [=] {
    emulation::run_resident(
        {name, blocks, threads, shared_bytes, reinterpret_cast<const void*>(kernel), &args, sizeof args},
        [&] { kernel(args); });
  });
}

}  // namespace eddy::cuda
