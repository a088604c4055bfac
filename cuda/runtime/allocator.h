// GPU memory for tensors: a caching allocator, or, for tools that watch every allocation, one that calls CUDA
// each time. No CUDA header is needed to include this.
#pragma once

#include <cstddef>

#include "tensor/memory/allocator.h"

namespace eddy::cuda {

// Returns the allocator of the open GPU. Installing it touches no GPU; its first allocation opens one.
Allocator& device_allocator();

// Returns how many pieces of GPU memory it holds: segments of its pools, or, unpooled, live allocations.
std::int64_t device_segments();

// Chooses between the pool and plain calls of cudaMalloc and cudaFree. A checker such as compute-sanitizer
// detects an access past the end of a block, or to a freed one, only when blocks are not parts of segments.
// errors: ValueError while anything is live.
void set_plain_allocator(bool plain);

// Allocates memory for the backend itself; it is not part of the tensor statistics. It stays in place,
// captured or not, until it is given back. If the device refuses, cached memory is freed and the request
// repeated.
// errors: OutOfMemoryError.
void* allocate_backend_memory(std::size_t bytes);
void free_backend_memory(void* memory, std::size_t bytes);

// While on, requests are served from a separate pool for captured work, also when the allocator is unpooled.
// Memory freed there returns to that pool at any time.
void serve_from_capture_pool(bool on);

// Keeps the memory of that pool in place. While an object of this class lives, none of it is freed, since
// captured work contains addresses of tensors that were freed long ago. All of it is freed when the last such
// object and the last tensor in that pool are gone.
class CapturePoolUse {
 public:
  CapturePoolUse();
  ~CapturePoolUse();
  CapturePoolUse(const CapturePoolUse&) = delete;
  CapturePoolUse& operator=(const CapturePoolUse&) = delete;
};

// Returns how many CapturePoolUse objects live.
int captures_alive();

}  // namespace eddy::cuda
