// Replaces cuda/core/resident_launch.cuh: the emulation runs the blocks of such a launch together.
#pragma once

#include "cuda/core/start.cuh"
#include "tests/emulation/together.h"

namespace eddy::cuda {

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
