// A device that counts: its tensors have shapes and no bytes, and its kernels add their cost and compute
// nothing. An op, a model or a whole training step runs on it unchanged and in little time:
//
//   const Tensor x = Tensor::empty({8, 512}, Dtype::f32, counting_device());
//   const Cost cost = counted([&] { layer.forward(x); });
//
// What depends on values has a bound in place of them: a search in a memory (memory_search) finds as many
// entries as it may take. Reading a value on the host is a DeviceError.
#pragma once

#include <functional>

#include "ops/core/cost.h"
#include "tensor/base/device.h"

namespace eddy {

// Returns the device, with its kernels installed. It counts for a GPU without fused kernels, or for the CPU: ops are
// composed, and their chunks cut, as there (ops/core/cpu_path.h). allocator(device) then has the statistics that the
// CPU's would have (ops/cost/counting_allocator.h).
Device counting_device(DeviceType counted_for = DeviceType::cuda);

// Returns the cost of all kernels and copies that `run` calls on counting tensors, on the calling thread.
// errors: those of `run`; DeviceError for a value that is read on the host.
Cost counted(const std::function<void()>& run);

}  // namespace eddy
