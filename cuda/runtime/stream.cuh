// The stream and error checks for the sources of cuda/. Host code: g++ reads it too.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/runtime/context.h"

namespace eddy::cuda {

// Returns the stream of the GPU, which is opened first and made current on the calling thread.
// errors: those of open.
cudaStream_t stream();
// While an object of this class lives, stream() is this one on its thread.
class OnStream {
 public:
  explicit OnStream(cudaStream_t stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  cudaStream_t before_;
};
// Returns the number of multiprocessors of the open GPU.
int multiprocessors();
// Returns how often this process has opened the GPU, at least once.
std::uint64_t times_opened();

// Throws the error that CUDA returned from `call`.
// errors: DeviceError with the call, CUDA's name of the error and what a user can do about it.
[[noreturn]] void throw_cuda_error(const char* call, cudaError_t error);
inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw_cuda_error(call, error);
}
// Checks a launch: whether it succeeded or, with launch checks on, whether the kernel did.
void check_launch(const char* kernel);

}  // namespace eddy::cuda
