// Memory of the GPU for tensors: a caching allocator, or one that asks CUDA each time, for tools that watch
// every allocation. No CUDA header is needed to include this.
#pragma once

#include <cstddef>

#include "tensor/memory/allocator.h"

namespace eddy::cuda {

// The allocator of the GPU that is open. Installing it touches no GPU; its first allocation opens one.
Allocator& device_allocator();

// How many pieces of the GPU's memory it holds: segments of its pools, or in the plain form what is live.
std::int64_t device_segments();

// Chooses between the pool and plain calls of cudaMalloc and cudaFree. A checker such as compute-sanitizer
// sees an access behind a block, or to a freed one, only when blocks are not cut from larger segments.
// errors: ValueError while anything is live.
void set_plain_allocator(bool plain);

// Memory for the backend's own use, beside tensors and their counts: it stays where it is, captured or not,
// until it is given back. A request that the device refuses is tried again when what is cached has gone back.
// errors: OutOfMemoryError.
void* take_own_memory(std::size_t bytes);
void give_own_memory_back(void* memory, std::size_t bytes);

// While on, requests are served from the pool of captured work: a pool of its own, also where the allocator
// is plain. What is freed there goes back there at any time.
void serve_from_capture_pool(bool on);

// Keeps that pool's memory in place: while one of these lives, nothing of it goes back to the GPU, since
// captured work holds addresses of tensors that were freed long ago. All of it goes back when the last one
// and the last tensor there are gone.
class CapturePoolUse {
 public:
  CapturePoolUse();
  ~CapturePoolUse();
  CapturePoolUse(const CapturePoolUse&) = delete;
  CapturePoolUse& operator=(const CapturePoolUse&) = delete;
};

// How many of those live.
int captures_alive();

}  // namespace eddy::cuda
