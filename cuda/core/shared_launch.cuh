// Launching kernels with dynamic shared memory: more than the 48 KiB that a kernel may declare statically, up
// to what every architecture from 8.0 on offers a block, or what the one architecture of a kernel offers.
#pragma once

#include "cuda/core/launch.cuh"

namespace eddy::cuda {

inline constexpr int kMostSharedBytes =
    99 * 1024;  // per block on 8.6, 8.9 and 12.0; 8.0, 9.0 and 10.0 have more

// As launch, with `shared_bytes` of shared memory for each block, which kernels get from shared_memory().
template <class Args>
void launch_shared(const char* name, void (*kernel)(Args), std::int64_t blocks, int threads, int shared_bytes,
                   const std::type_identity_t<Args>& args) {
  launch(name, kernel, blocks, threads, args, shared_bytes);
}

}  // namespace eddy::cuda
