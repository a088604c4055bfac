// The GPUs of this machine, as the CUDA runtime sees them. No CUDA header is needed to include this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

// One line for `eddy info`: the devices, or why there is none, or what to rebuild. Opens none of them, and
// leaves the thread's current one.
std::string status();

// Whether code for these architectures, as CMake lists them ("80 90-real"), runs on a device: machine code on
// those of the same generation that are not older, and intermediate code on all that are not older. Code for
// features of one device ("90a") runs on that one.
bool runs_on(std::string_view architectures, int major, int minor);

// "" when this build has code for the device, else what to rebuild. It is told from the capability: asking
// CUDA would make the device the thread's current one, in the middle of a run on another, and take memory on
// it.
std::string mismatch(const DeviceInfo& device);

// "" when a kernel of this build is found on `device`, which must be the thread's current one, else why not:
// what a capability does not tell, such as a driver that is older than the code.
std::string probe(const DeviceInfo& device);

}  // namespace eddy::cuda
