// Who wants to see kernels at work: while someone watches, the slots of a device (ops/core/slot.h) hold functions
// that say when a kernel begins, what it must do at least, and when it is done, and call it in between. When
// nobody does, the slots hold the kernels themselves: it costs nothing then.
#pragma once

#include <memory>

#include "tensor/base/device.h"
#include "tensor/transfer.h"
#include "train/bench/kernel_costs.h"

namespace eddy {

class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  // A kernel is called on this thread, and has been: on a GPU it may not have run yet. Kernels that a kernel
  // calls are part of it.
  virtual void kernel_begins() = 0;
  virtual void kernel_done(const char* name, const KernelCost& cost) = 0;
};

// While alive, `observer` is told of the kernels that the calling thread asks a device for; on a GPU of its
// copies, fills and casts as well. The CPU's copies are no kernels. One at a time in the process, and no
// other thread may ask for kernels while it comes and goes.
// aliasing: the observer must outlive it.
class ObserveKernels {
 public:
  ObserveKernels(KernelObserver& observer, Device device);
  ~ObserveKernels();
  ObserveKernels(const ObserveKernels&) = delete;
  ObserveKernels& operator=(const ObserveKernels&) = delete;

 private:
  Device device_;
  std::unique_ptr<Transfer> transfer_;
  Transfer* own_transfer_ = nullptr;
};

}  // namespace eddy
