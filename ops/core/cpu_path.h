// Which device's path an op takes. Ops choose by the device: what is fused, how long a chunk is, what is cast. A
// counting device (ops/cost/counting.h) counts for one of the two: its ops choose as they would there.
#pragma once

#include "tensor/base/device.h"

namespace eddy {

// The counting device that counts for the CPU; the other one counts for a GPU.
inline constexpr Device kCountingForCpu{DeviceType::counting, 1};

// Whether ops on a device choose as on the CPU. Only the CPU itself has values that the host can read.
constexpr bool uses_cpu_path(const Device& device) {
  return device.type == DeviceType::cpu ||
         (device.type == kCountingForCpu.type && device.index == kCountingForCpu.index);
}

}  // namespace eddy
