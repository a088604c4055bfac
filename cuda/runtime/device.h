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

// Returns the devices, or an empty list with the reason in `why_none` (no driver, no device).
std::vector<DeviceInfo> devices(std::string* why_none);

// Returns the architectures that this build holds code for: "80 90".
const char* built_architectures();

// Returns one line for `eddy info`: the devices, or why there is none, or what to rebuild. It opens no device
// and keeps the thread's current one.
std::string status();

// Returns "driver 580.159.04 for CUDA 13.0" with the release in the driver's file, the first number with points there.
// Where there is no such file, as in WSL, it is "driver for CUDA 13.0". cuda_version: 13000.
std::string driver_text(const std::string& file, int cuda_version);

// Returns what tells devices of this kind from others: name, capability, multiprocessors. "" without such a device. It
// opens none.
std::string kind(int index);

// Returns what tells this device, with its driver, from others: name, capability, sizes, versions. "" without such a
// device. It opens none.
std::string identity(int index);

// Returns whether the fastest kernels were measured on a device of this kind: compute capability 9.0.
bool is_measured(int index);

// Returns whether code for these architectures, as CMake lists them ("80 90-real"), runs on a device of this
// capability: machine code on devices of the same generation that are not older, intermediate code on all
// that are not older. Code for the features of one device ("90a") runs on that one only.
bool runs_on(std::string_view architectures, int major, int minor);

// Returns a line for `eddy info --measure`: how many clusters of 2, 4, 8 and 16 blocks `device`, which must be the
// thread's current one, holds at once. A block has 256 threads and the most shared memory, so it has a
// multiprocessor for itself. It launches nothing.
std::string clusters(const DeviceInfo& device);

// Returns "" when this build has code for the device, else what to rebuild, or that Eddy has no kernels for it: they
// need 8.0. It compares capabilities: a call to CUDA would make the device the thread's current one, perhaps during a
// run on another, and allocate memory on it.
std::string mismatch(const DeviceInfo& device);

// Returns "" when a kernel of this build runs on `device`, which must be the thread's current one, else why not. This
// finds what a capability does not tell, such as a driver that is older than the code.
std::string probe(const DeviceInfo& device);

}  // namespace eddy::cuda
