// The GPUs of this machine, as the CUDA runtime sees them. No CUDA header is needed to include this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eddy::cuda {

struct DeviceInfo {
  int index = 0;  // CUDA's number
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::int64_t memory_bytes = 0;
  int multiprocessors = 0;
};

// What is there, or an empty list with the reason in `why_none` (no driver, no device).
std::vector<DeviceInfo> devices(std::string* why_none);

// The architectures this build holds code for: "80 90".
const char* built_architectures();

// One line for `eddy info`: the devices, or why there is none, or what to rebuild.
std::string status();

// "" when this build runs on the device, else what to rebuild. Makes the device the current one of the
// thread.
std::string mismatch(const DeviceInfo& device);

}  // namespace eddy::cuda
