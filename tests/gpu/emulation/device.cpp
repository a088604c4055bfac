// What the emulated GPU says of itself.
#include <cstdio>

#include "tests/gpu/emulation/include/cuda_runtime_api.h"

namespace {

int shown = 1, current = 0;

}  // namespace

namespace emulation {

void show_devices(int count) {
  shown = count;
}
int current_device() {
  return current;
}

}  // namespace emulation

cudaError_t cudaGetDeviceCount(int* count) {
  *count = shown;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  // One multiprocessor: grids are small, and their threads walk.
  *properties = {"Emulated GPU", 9, 0, std::size_t{16} << 30, 1, std::size_t{99} << 10};
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= shown) return cudaErrorNoDevice;
  current = index;
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  emulation::describe_blocks();  // there should be none
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  *unused = *total = std::size_t{16} << 30;
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
