// When a device was done with what it was asked for: the seam for times on a GPU, which runs its kernels
// later than they are asked for. Behind it are CUDA's events (cuda/runtime/event_clock.cpp).
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/base/device.h"

namespace eddy {

class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  // Asks for a mark behind all that was asked for so far, and does not wait. Returns its number: 0, 1, 2 ...
  virtual std::int64_t stamp() = 0;
  // Seconds from one mark to a later one; waits for that one.
  // errors: DeviceError for a kernel that failed.
  virtual double seconds(std::int64_t from, std::int64_t to) = 0;
  // Forgets the marks: the next one is number 0 again.
  virtual void clear() = 0;
};

// The clock of a GPU; null for the CPU, whose work is done when the call returns, so that any clock tells.
std::unique_ptr<DeviceClock> device_clock(Device device);

}  // namespace eddy
