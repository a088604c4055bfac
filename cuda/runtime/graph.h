// Captured work: the one place that uses CUDA graphs. No CUDA header is needed to include this.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "ops/core/capture.h"

namespace eddy::cuda {

// As eddy::capture, on the open GPU. Memory that was cached for the same work without a graph is freed before, unless
// the work allocates none.
// errors: those of eddy::capture, and DeviceError inside another capture.
std::unique_ptr<CapturedWork> capture(const std::function<void()>& work, bool allocates = true);

// Returns whether work is being captured now.
bool capturing();
void keep_for_capture(const Tensor& tensor);
// Returns a copy of `bytes` bytes in pinned memory that lives as long as the work being captured.
const void* keep_bytes(const void* from, std::size_t bytes);
// Throws the DeviceError of a call that would wait for the GPU during a capture.
[[noreturn]] void refuse_wait(const char* what);

}  // namespace eddy::cuda
