// Memory of the GPU for tensors: a caching allocator, or one that asks CUDA each time, for tools that watch
// every allocation. No CUDA header is needed to include this.
#pragma once

#include "tensor/allocator.h"

namespace eddy::cuda {

// The allocator of the GPU that is open. Installing it touches no GPU; its first allocation opens one.
Allocator& device_allocator();

// Chooses between the pool and plain calls of cudaMalloc and cudaFree. A checker such as compute-sanitizer
// sees an access behind a block, or to a freed one, only when blocks are not cut from larger segments.
// errors: ValueError while anything is live.
void set_plain_allocator(bool plain);

}  // namespace eddy::cuda
