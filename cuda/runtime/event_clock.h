// The GPU's clock for profiles. No CUDA header is needed to include this.
#pragma once

#include <memory>

#include "ops/core/device_clock.h"

namespace eddy::cuda {

// Returns a clock whose marks are events on the stream. Events are created once and reused after clear().
// Resolution: half a microsecond, as CUDA documents it.
// errors: DeviceError when there is no GPU.
std::unique_ptr<DeviceClock> make_event_clock();

}  // namespace eddy::cuda
