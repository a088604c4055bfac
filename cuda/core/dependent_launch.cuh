// Programmatic dependent launch, on GPUs of 9.0 and later: a kernel started by launch_dependent may begin
// before the kernel ahead of it on the stream has ended. Elsewhere the functions of kernels do nothing, and such
// a launch is a plain one. tests/emulation/include/ replaces this file by its path, so it lies here though
// cuda/recurrence/ alone includes it.
// source: CUDA C++ Programming Guide, "Programmatic Dependent Launch"; PTX ISA, "griddepcontrol".
#pragma once

#include <mutex>
#include <unordered_map>

#include "cuda/core/launch.cuh"

namespace eddy::cuda {

// Waits until the kernel ahead has ended and what it wrote is seen. Every thread of a kernel started by
// launch_dependent calls it before it reads what such a kernel wrote, and before it writes anything.
__device__ inline void wait_for_launch_ahead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel begin, once every block has called it or ended.
__device__ inline void begin_next_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether a kernel's code for this GPU waits for the launch ahead of it: what was compiled for 9.0 and later. Asked for
// once a kernel, and again after the GPU was closed.
inline bool waits_for_launch_ahead(const char* name, const void* kernel) {
  struct Asked {
    std::uint64_t opening;
    bool waits;
  };
  static std::mutex mutex;
  static std::unordered_map<const void*, Asked> of_kernels;
  const std::lock_guard lock(mutex);
  Asked& asked = of_kernels[kernel];
  if (asked.opening != times_opened()) {
    cudaFuncAttributes now{};
    check(cudaFuncGetAttributes(&now, kernel), name);
    asked = {times_opened(), now.ptxVersion >= 90 && now.binaryVersion >= 90};
  }
  return asked.waits;
}

// As start, as a dependent launch where the kernel's code waits for the launch ahead.
template <class Args>
void start_dependent(const char* name, void (*kernel)(Args), std::int64_t blocks, int threads,
                     int shared_bytes, const Args& args) {
  const void* const address = reinterpret_cast<const void*>(kernel);
  const cudaStream_t queue = stream();
  if (!waits_for_launch_ahead(name, address)) return start(name, kernel, blocks, threads, shared_bytes, args);
  if (shared_bytes > 0) allow_shared(name, address, shared_bytes);
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = queue;
  config.attrs = &dependent;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, args), name);
}

// As launch (launch.cuh), of a kernel that waits for the one ahead of it itself.
template <class Args>
void launch_dependent(const char* name, void (*kernel)(Args), std::int64_t blocks, int threads,
                      const std::type_identity_t<Args>& args, int shared_bytes) {
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= 4096);
  if (blocks <= 0) return;
  if (blocks > kMostBlocks) refuse_launch(name, blocks);
  start_dependent(name, kernel, blocks, threads, shared_bytes, args);
  check_launch(name);
}

}  // namespace eddy::cuda
