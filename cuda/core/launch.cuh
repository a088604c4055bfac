// Launching kernels. A kernel takes one trivially copyable argument and runs on the library's stream; errors
// name the kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cuda/core/start.cuh"
#include "cuda/runtime/stream.cuh"

namespace eddy::cuda {

inline constexpr int kThreads = 256;  // threads of a block, unless a kernel says otherwise

// Returns the number of blocks for `items` items at `per_block` each, but no more than fill the GPU `waves`
// times over: such kernels use grid-stride loops.
inline unsigned grid_for(std::int64_t items, std::int64_t per_block, int waves = 16) {
  const std::int64_t wanted = (items + per_block - 1) / per_block;
  const std::int64_t most = std::int64_t{multiprocessors()} * waves;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

inline constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;  // the first axis of a grid

// Launches a kernel. A grid of 0 blocks does nothing.
// errors: DeviceError for more than kMostBlocks.
template <class Args>
void launch(const char* name, void (*kernel)(Args), std::int64_t blocks, int threads,
            const std::type_identity_t<Args>& args, int shared_bytes = 0) {
  static_assert(std::is_trivially_copyable_v<Args>);
  if (blocks <= 0) return;
  if (blocks > kMostBlocks) refuse_launch(name, blocks);
  start(name, kernel, blocks, threads, shared_bytes, args);
  check_launch(name);
}

// The first item of this thread in a grid-stride loop, and the distance to its next one.
__device__ inline std::int64_t first_item() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t item_step() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

// Four neighbouring elements, loaded and stored as 16 bytes.
struct alignas(16) Four {
  float at[4];
};

inline bool aligned(const void* pointer, std::uintptr_t bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

}  // namespace eddy::cuda
