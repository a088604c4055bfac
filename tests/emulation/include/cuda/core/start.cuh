// Replaces cuda/core/start.cuh: kernels are enqueued on the emulated GPU.
#pragma once

#include <cstdint>

#include "cuda/runtime/stream.cuh"
#include "tests/emulation/include/cuda_runtime.h"

namespace eddy::cuda {

inline float* shared_memory() {
  return static_cast<float*>(emulation::shared_memory());
}

template <class Args>
void start(const char* name, void (*kernel)(Args), std::int64_t blocks, int threads, int shared_bytes,
           const Args& args, bool dependent = false) {
  // The shared memory of a block on 9.0; kernels for all GPUs assert less.
  if (shared_bytes > 227 * 1024) emulation::stop("%s: %d bytes of shared memory", name, shared_bytes);
  emulation::submit(stream(), [=] {
    emulation::run({name, blocks, threads, shared_bytes, reinterpret_cast<const void*>(kernel), &args,
                    sizeof args, dependent},
                   [&] { kernel(args); });
  });
}

}  // namespace eddy::cuda
