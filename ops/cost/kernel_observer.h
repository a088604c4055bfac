// Observes kernels. While an observer is installed, the slots of a device (ops/core/slot.h) hold wrappers
// that call the observer before and after each kernel, with the least work of the kernel. Otherwise the slots
// hold the kernels themselves, so observing costs nothing when it is off.
#pragma once

#include <memory>

#include "ops/core/cost.h"
#include "tensor/base/device.h"
#include "tensor/transfer.h"

namespace eddy {

class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  // Called on the calling thread before and after a kernel; on a GPU it may not have run yet. Kernels that a
  // kernel calls are part of it.
  virtual void kernel_begins() = 0;
  virtual void kernel_done(const char* name, const Cost& cost) = 0;
};

// While alive, reports the kernels that the calling thread launches on a device to `observer`; on a GPU also
// copies, fills and casts. Copies on the CPU do not count as kernels. Only one may exist in the process, and
// no other thread may launch kernels while it is constructed or destroyed.
// aliasing: the observer must outlive it.
class ObserveKernels {
 public:
  ObserveKernels(KernelObserver& observer, Device device);
  ~ObserveKernels();

 private:
  Device device_;
  std::unique_ptr<Transfer> transfer_;
  Transfer* original_transfer_ = nullptr;
};

}  // namespace eddy
