// The properties of the emulated GPU.
#include <cstdio>
#include <cstring>

#include "tests/emulation/include/cuda.h"
#include "tests/emulation/include/cuda_runtime_api.h"
#include "tests/emulation/tensor_map.h"

namespace {

int shown = 1, current = 0;
bool counting = false;

// One multiprocessor: grids are small, and kernels loop over their items.
constexpr cudaDeviceProp kEmulated{"Emulated GPU", 9, 0, std::size_t{16} << 30, 1, std::size_t{99} << 10};
constexpr cudaDeviceProp kCounting{"GPU that only counts", 9, 0, std::size_t{141} * 1000 * 1000 * 1000, 132,
                                   std::size_t{227} << 10};

}  // namespace

namespace emulation {

void show_devices(int count) {
  shown = count;
}
int current_device() {
  return current;
}
void only_count() {
  counting = true;
}
int multiprocessors() {
  return (counting ? kCounting : kEmulated).multiProcessorCount;
}
bool counts_only() {
  return counting;
}

}  // namespace emulation

cudaError_t cudaGetDeviceCount(int* count) {
  *count = shown;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = counting ? kCounting : kEmulated;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= shown) return cudaErrorNoDevice;
  current = index;
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  emulation::describe_blocks();  // leaks: there should be none
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  *unused = *total = (counting ? kCounting : kEmulated).totalGlobalMem;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  const std::size_t most = (counting ? kCounting : kEmulated).sharedMemPerBlockOptin;
  const bool fits = attribute != cudaFuncAttributeMaxDynamicSharedMemorySize ||
                    (value >= 0 && static_cast<std::size_t>(value) <= most);
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}
// A block for each multiprocessor.
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t* config) {
  const cudaLaunchAttribute* const cluster = config->attrs;
  if (config->numAttrs != 1 || cluster->id != cudaLaunchAttributeClusterDimension ||
      config->gridDim.x % cluster->val.clusterDim.x != 0)
    return cudaErrorInvalidValue;
  *clusters = emulation::multiprocessors() / static_cast<int>(cluster->val.clusterDim.x);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult*) {
  *function = std::strcmp(name, "cuTensorMapEncodeTiled") == 0
                  ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled)
                  : nullptr;
  return cudaSuccess;
}
// As the driver's documentation says.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t axes, void* start,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  emulation::EncodedMap encoded;
  encoded.start = reinterpret_cast<std::uintptr_t>(start);
  bool right = axes == 4 && encoded.start % 16 == 0 && 2 * box[0] <= 128 && 2 * box[0] % 16 == 0;
  for (int i = 0; i < 4 && right; ++i) {
    right =
        sizes[i] > 0 && sizes[i] <= std::uint64_t{1} << 32 && box[i] > 0 && box[i] <= 256 && steps[i] == 1;
    encoded.sizes[i] = static_cast<std::uint32_t>(sizes[i]);
    encoded.box[i] = box[i];
    if (i == 0) continue;
    encoded.strides[i - 1] = strides[i - 1];
    right = right && strides[i - 1] % 16 == 0 && strides[i - 1] < std::uint64_t{1} << 40;
  }
  if (!right) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &encoded, sizeof encoded);
  return CUDA_SUCCESS;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorIllegalState:
      return "cudaErrorIllegalState";
    default:
      return "an error of the emulated GPU";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
