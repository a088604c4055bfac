// Asking the CUDA runtime about devices. No kernel here but the one that shows that this build's code runs on
// a device.
#include "cuda/device.h"

#include <cuda_runtime.h>

namespace eddy::cuda {
namespace {

// Grid: one thread. Exists so that a device without matching code answers with an error at start-up, not in a
// run.
__global__ void probe_kernel() {}

}  // namespace

std::vector<DeviceInfo> devices(std::string* why_none) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    *why_none = error != cudaSuccess ? cudaGetErrorString(error) : "no device";
    return {};
  }
  std::vector<DeviceInfo> found;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    found.push_back({properties.name, properties.major, properties.minor,
                     static_cast<std::int64_t>(properties.totalGlobalMem), properties.multiProcessorCount});
  }
  return found;
}

const char* built_architectures() {
  return EDDY_CUDA_ARCHITECTURES;
}

std::string mismatch(const DeviceInfo& device) {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, probe_kernel) == cudaSuccess) return "";
  const std::string wanted = std::to_string(device.major * 10 + device.minor);
  return "this build has code for " + std::string(built_architectures()) + " and " + device.name + " needs " +
         wanted + " (configure with -DEDDY_CUDA_ARCHITECTURES=" + wanted + ")";
}

std::string status() {
  std::string text = "built for " + std::string(built_architectures()), why_none;
  const std::vector<DeviceInfo> found = devices(&why_none);
  if (found.empty()) return text + "; no GPU here (" + why_none + ")";
  for (const DeviceInfo& device : found) {
    text += "; " + device.name + ", " + std::to_string(device.memory_bytes >> 30) + " GiB";
    if (const std::string problem = mismatch(device); !problem.empty()) text += ": " + problem;
  }
  return text + "; no training kernels yet";
}

}  // namespace eddy::cuda
