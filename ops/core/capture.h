// Work that a device records once and repeats at the cost of one call: a CUDA graph, where there is a GPU.
// This is the seam; what it stands on is in cuda/runtime/graph.cpp. On the CPU there is nothing to record.
//
// What is recorded are addresses and numbers given to kernels, not the decisions of the host: a replay reads
// its inputs where they lay while it was recorded, and repeats every other number. What changes from replay
// to replay must therefore lie in the device's memory and be overwritten there.
#pragma once

#include <functional>
#include <memory>

#include "tensor/tensor.h"

namespace eddy {

class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // Asks the device for all of it again, after what was asked before, and does not wait.
  // errors: DeviceError.
  virtual void replay() = 0;
};

// Whether a device can record work.
bool can_capture(Device device);

// Records what `work` asks of the device, which computes nothing of it until it is replayed. Tensors made
// meanwhile get memory of their own: results keep their address while they are held, and the rest is reused
// within the work and by other captured work, never by anything else while one is left. Tables that go up to
// the device meanwhile are kept and go up at every replay. The same work should have run twice before, so
// that nothing has to be set up.
// errors: DeviceError when the device cannot record, when something waits for the device meanwhile (reading a
// value), or when the recording fails; OutOfMemoryError; those of `work`. Nothing is left behind then.
std::unique_ptr<CapturedWork> capture(Device device, const std::function<void()>& work);

// Whether work is being captured now: what is uploaded or computed is in place only when it is replayed.
bool capturing();

// While work is being captured: keeps a tensor alive as long as the work. For tensors that were made earlier
// and that someone else, such as a cache, may let go of. Otherwise does nothing.
void keep_for_capture(const Tensor& tensor);

}  // namespace eddy
