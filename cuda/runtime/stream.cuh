// The stream and the checks of CUDA's answers, for the sources of this folder. Host code: g++ reads it too.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/runtime/context.h"

namespace eddy::cuda {

// The stream of the open GPU, on the calling thread. Opens the GPU first.
// errors: see open.
cudaStream_t stream();
// How many multiprocessors the open GPU has.
int multiprocessors();

// Throws what CUDA answered to `call`.
// errors: DeviceError with the call, CUDA's name of the error and what can be done about it.
[[noreturn]] void throw_cuda_error(const char* call, cudaError_t error);
inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw_cuda_error(call, error);
}
// After a launch: what the launch itself answered, or, with launch checks on, the kernel's end.
void check_launch(const char* kernel);

}  // namespace eddy::cuda
