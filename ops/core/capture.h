// Captured work: kernels that a device records once and then replays at the cost of one launch (a CUDA graph,
// cuda/runtime/graph.cpp). The CPU does not support it.
//
// A capture records the arguments of kernels (addresses and numbers), but no decisions of the host. A replay
// reads its inputs at the recorded addresses and repeats every number. So whatever changes from replay to
// replay must be in device memory, and be overwritten there.
#pragma once

#include <functional>
#include <memory>

#include "tensor/tensor.h"

namespace eddy {

class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // Enqueues all of the work again and does not wait.
  // errors: DeviceError.
  virtual void replay() = 0;
};

// Whether a device supports capture.
bool can_capture(Device device);

// Records what `work` enqueues on the device; nothing runs until it is replayed. Tensors allocated during the
// capture come from a separate pool: results keep their address while they are alive, and while any captured
// work exists, only captured work reuses freed blocks. Tables uploaded during the capture are kept, and every
// replay uploads them again. Run the same work twice before, so that nothing needs to be set up.
// errors: DeviceError if the device does not support capture, if something waits for the device meanwhile
// (for example to read a value), or if the capture fails; OutOfMemoryError; those of `work`.
std::unique_ptr<CapturedWork> capture(Device device, const std::function<void()>& work);

// Whether work is being captured now. Then uploads and kernels take effect only at a replay.
bool capturing();

// Stores a table that was just made in the caller's cache, except during a capture: then the table exists only after a
// replay.
template <class T>
void store_unless_capturing(T& cache, const T& made) {
  if (!capturing()) cache = made;
}

// During a capture, keeps a tensor alive as long as the captured work; otherwise does nothing. Call it for
// tensors that were made earlier and that their owner, such as a cache, may free.
void keep_for_capture(const Tensor& tensor);

}  // namespace eddy
