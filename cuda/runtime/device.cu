// Queries to the CUDA runtime about devices. The only kernel here shows whether this build's code runs on a
// device, and how clusters of its blocks fit: it has one thread and moves no bytes.
#include "cuda/runtime/device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace eddy::cuda {
namespace {

// Grid: one thread. It makes a device without matching code fail at start-up and not during a run.
__global__ void probe_kernel() {}

// 13000 becomes "13.0".
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// "8.6".
std::string capability_text(const DeviceInfo& device) {
  return std::to_string(device.major) + "." + std::to_string(device.minor);
}

// Returns how many clusters of so many blocks the current device holds at once, or the error in words.
std::string active_clusters(unsigned blocks, int shared_bytes) {
  const void* const kernel = reinterpret_cast<const void*>(probe_kernel);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = blocks;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(256);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int count = 0;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  // More than 8 blocks are for GPUs that say so.
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&count, kernel, &config);
  if (error == cudaSuccess) return std::to_string(count);
  cudaGetLastError();  // handled
  return std::string("unknown (") + cudaGetErrorString(error) + ")";
}

}  // namespace

std::string driver_text(const std::string& file, int cuda_version) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module 580.159.04 Release Build ..."
  std::ifstream words(file);
  std::string word, release;
  while (release.empty() && words >> word)
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos)
      release = " " + word;
  return "driver" + release + " for CUDA " + version_text(cuda_version);
}

std::vector<DeviceInfo> devices(std::string* why_none) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();  // handled: a later call must not report it
    *why_none = error != cudaSuccess ? cudaGetErrorString(error) : "no device";
    return {};
  }
  std::vector<DeviceInfo> found;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
      cudaGetLastError();
      continue;
    }
    found.push_back({i, properties.name, properties.major, properties.minor,
                     static_cast<std::int64_t>(properties.totalGlobalMem), properties.multiProcessorCount});
  }
  if (found.empty()) *why_none = "no device tells its properties";
  return found;
}

const char* built_architectures() {
  return EDDY_CUDA_ARCHITECTURES;
}

bool runs_on(std::string_view architectures, int major, int minor) {
  const int wanted = major * 10 + minor;
  while (!architectures.empty()) {
    const std::string word(architectures.substr(0, architectures.find(' ')));
    architectures.remove_prefix(std::min(word.size() + 1, architectures.size()));
    const int built = std::atoi(word.c_str());
    if (built == wanted) return true;
    if (built == 0 || built > wanted || word.find('a') < word.find('-')) continue;
    const bool of_generation = word.find('f') < word.find('-');
    if (!word.ends_with("-virtual") && built / 10 == major) return true;
    if (!word.ends_with("-real") && !of_generation) return true;
  }
  return false;
}

std::string kind(int index) {
  std::string why_none;
  for (const DeviceInfo& device : devices(&why_none))
    if (device.index == index)
      return device.name + ", " + std::to_string(device.major) + "." + std::to_string(device.minor) + ", " +
             std::to_string(device.multiprocessors) + " multiprocessors";
  return "";
}

std::string identity(int index) {
  std::string why_none;
  int driver = 0;
  cudaDriverGetVersion(&driver);
  for (const DeviceInfo& device : devices(&why_none))
    if (device.index == index)
      return device.name + ", " + capability_text(device) + ", " + std::to_string(device.memory_bytes >> 20) +
             " MiB, " + std::to_string(device.multiprocessors) + " multiprocessors, " +
             driver_text("/proc/driver/nvidia/version", driver);
  return "";
}

bool is_measured(int index) {
  std::string why_none;
  for (const DeviceInfo& device : devices(&why_none))
    if (device.index == index) return device.major == 9 && device.minor == 0;
  return false;
}

std::string mismatch(const DeviceInfo& device) {
  if (device.major < 8)
    return device.name + " has compute capability " + capability_text(device) +
           ", and Eddy's kernels need 8.0 or later (A100, RTX 30 and what came after them): compute on the cpu";
  if (runs_on(built_architectures(), device.major, device.minor)) return "";
  const std::string wanted = std::to_string(device.major * 10 + device.minor);
  return "this build has code for " + std::string(built_architectures()) + " and " + device.name + " needs " +
         wanted +
         " (build on this machine by cmake --preset cuda, or for it with -DEDDY_CUDA_ARCHITECTURES=" +
         wanted + ")";
}

std::string probe(const DeviceInfo& device) {
  // CUDA 12.4 has no form of this that takes the kernel's own type.
  cudaError_t error =
      cudaLaunchKernel(reinterpret_cast<const void*>(probe_kernel), 1, 1, nullptr, 0, nullptr);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return "";
  cudaGetLastError();
  return device.name + " cannot run what this build has for " + built_architectures() + ": " +
         cudaGetErrorString(error) +
         " (install a driver that is as new as the toolkit; the command info of Eddy's program shows both)";
}

std::string clusters(const DeviceInfo& device) {
  if (device.major < 9) return "gpu clusters: none (compute capability 9.0 and later have them)";
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device.index); error != cudaSuccess) {
    cudaGetLastError();
    return std::string("gpu clusters: unknown (") + cudaGetErrorString(error) + ")";
  }
  const auto shared = static_cast<int>(properties.sharedMemPerBlockOptin);
  std::string line = "gpu clusters:", between = " ";
  for (const unsigned blocks : {2U, 4U, 8U, 16U}) {
    line += between + active_clusters(blocks, shared) + " of " + std::to_string(blocks) + " blocks";
    between = ", ";
  }
  return line + " at once (a block has " + std::to_string(shared >> 10) + " KiB of shared memory)";
}

std::string status() {
  std::string text = "built for " + std::string(built_architectures()), why_none;
  int runtime = 0, driver = 0;
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) text += " with CUDA " + version_text(runtime);
  const std::vector<DeviceInfo> found = devices(&why_none);
  if (found.empty()) return text + "; no GPU here (" + why_none + ")";
  if (cudaDriverGetVersion(&driver) == cudaSuccess) text += ", driver for " + version_text(driver);
  for (const DeviceInfo& device : found) {
    text += "; " + device.name + ", " + std::to_string(device.memory_bytes >> 30) + " GiB, " +
            std::to_string(device.multiprocessors) + " multiprocessors";
    if (const std::string problem = mismatch(device); !problem.empty()) text += ": " + problem;
  }
  return text;
}

}  // namespace eddy::cuda
