// A clock for a GPU, which runs kernels later than they are enqueued. CUDA events implement it
// (cuda/runtime/event_clock.cpp).
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/base/device.h"

namespace eddy {

class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  // Enqueues a time stamp after all work so far and does not wait. Returns its number: 0, 1, 2, ...
  virtual std::int64_t stamp() = 0;
  // Returns the seconds from one stamp to a later one; waits for the later one.
  // errors: DeviceError for a kernel that failed.
  virtual double seconds(std::int64_t from, std::int64_t to) = 0;
  // Drops all stamps: the next one is number 0 again.
  virtual void clear() = 0;
};

// Returns the clock of a GPU; null for the CPU, where work is done when a call returns, so that any clock
// works.
std::unique_ptr<DeviceClock> device_clock(Device device);

}  // namespace eddy
