// Replaces cuda/core/dependent_launch.cuh: emulated kernels run one after the other, so there is nothing to wait for.
// The record of a launch says that it was a dependent one, and tests/ptx checks its waits.
#pragma once

#include "cuda/core/launch.cuh"

namespace eddy::cuda {

inline void wait_for_launch_ahead() {}
inline void begin_next_launch() {}

template <class Args>
void launch_dependent(const char* name, void (*kernel)(Args), std::int64_t blocks, int threads,
                      const std::type_identity_t<Args>& args, int shared_bytes) {
  if (blocks <= 0) return;
  if (blocks > kMostBlocks) refuse_launch(name, blocks);
  start(name, kernel, blocks, threads, shared_bytes, args, true);
  check_launch(name);
}

}  // namespace eddy::cuda
