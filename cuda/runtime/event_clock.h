// The GPU's clock. No CUDA header is needed to include this.
#pragma once

#include <memory>

#include "ops/core/device_clock.h"

namespace eddy::cuda {

// Marks are events on the stream; they are made once and used again after clear(). Resolution: half a
// microsecond, as CUDA documents it.
// errors: DeviceError when there is no GPU.
std::unique_ptr<DeviceClock> make_event_clock();

}  // namespace eddy::cuda
