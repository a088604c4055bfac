// Captured work: the one place that knows CUDA graphs. No CUDA header is needed to include this.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "ops/core/capture.h"

namespace eddy::cuda {

// As eddy::capture, on the GPU that is open.
// errors: those, and DeviceError inside another capture.
std::unique_ptr<CapturedWork> capture(const std::function<void()>& work);

// Whether work is being captured now.
bool capturing();
void keep_for_capture(const Tensor& tensor);
// A copy of `bytes` bytes in pinned memory that lives as long as the work being captured.
const void* keep_bytes(const void* from, std::size_t bytes);
// Throws the DeviceError of something that waits for the GPU while work is being captured.
[[noreturn]] void refuse_wait(const char* what);

}  // namespace eddy::cuda
