// The interface to captured work: kernels that a device records once and replays at the cost of one launch (a
// CUDA graph, cuda/runtime/graph.cpp). The CPU does not support it.
//
// A capture records the arguments of kernels, addresses and numbers, and no decisions of the host. A replay
// reads its inputs at the recorded addresses and repeats every number. Whatever changes from replay to replay
// must therefore be in device memory and be overwritten there.
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
// capture come from a separate pool: results keep their address as long as they are alive, and freed blocks
// are reused only by captured work as long as any exists. Tables uploaded during the capture are kept and
// uploaded again by every replay. Run the same work twice before, so that nothing needs to be set up.
// errors: DeviceError when the device does not support capture, when something waits for the device meanwhile
// (reading a value), or when the capture fails; OutOfMemoryError; those of `work`. No state is left behind.
std::unique_ptr<CapturedWork> capture(Device device, const std::function<void()>& work);

// Whether work is being captured now: uploads and kernels take effect only at a replay.
bool capturing();

// During a capture, keeps a tensor alive as long as the captured work; otherwise does nothing. For tensors
// that were made earlier and that another owner, such as a cache, may free.
void keep_for_capture(const Tensor& tensor);

}  // namespace eddy
