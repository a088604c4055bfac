// The GPU backend: installs its memory and a kernel for every slot, and defines what ops/backends.h,
// ops/core/capture.h, ops/core/peers.h and ops/core/device_clock.h promise (runtime/product_algorithms.cpp defines
// ops/core/product_algorithms.h). In a build without CUDA ops/backends_cpu.cpp stands in the place of both.
#include "ops/backends.h"
#include "cuda/runtime/allocator.h"
#include "cuda/runtime/context.h"
#include "cuda/runtime/device.h"
#include "cuda/runtime/event_clock.h"
#include "cuda/runtime/gemm.h"
#include "cuda/runtime/graph.h"
#include "cuda/runtime/measure.h"
#include "cuda/runtime/peers.h"
#include "cuda/views/transfer.h"
#include "ops/core/capture.h"
#include "ops/core/device_clock.h"
#include "ops/op_list.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

std::string cuda_status() {
  return cuda::status() + "; cuBLASLt " + cuda::product_library_version();
}

Device cuda_device(int index) {
  install_backends();
  cuda::use_device(index);
  cuda::open();
  expect_gpu(cuda::is_measured(index));
  return {DeviceType::cuda, index};
}

std::string gpu_identity() {
  const std::string gpu = cuda::identity(0);
  return gpu.empty() ? "" : gpu + ", cuBLASLt " + cuda::product_library_version();
}

std::string gpu_kind() {
  if (!cuda::is_open()) return "";
  return fmt::format("{}, cuBLASLt {}", cuda::kind(cuda::device_index()), cuda::product_library_version());
}

std::vector<std::string> measure_gpu() {
  install_backends();
  try {
    return cuda::measure();
  } catch (const DeviceError& error) {
    return {error.what()};
  }
}

std::optional<GpuMemory> gpu_memory() {
  if (!cuda::can_open()) return std::nullopt;
  return GpuMemory{cuda::device_allocator().stats(), cuda::device_segments()};
}

void synchronize(Device device) {
  if (device.type == DeviceType::cuda) cuda::synchronize();
}

std::unique_ptr<DeviceClock> device_clock(Device device) {
  return device.type == DeviceType::cuda ? cuda::make_event_clock() : nullptr;
}

std::optional<GpuKernels> gpu_kernels() {
  if (!cuda::is_open()) return {};
  return chosen_kernels();
}

namespace cuda {
#define EDDY_DECLARE(Args, name) void name(const Args& args);
EDDY_ALL_GPU_KERNELS(EDDY_DECLARE)
}  // namespace cuda

void install_cuda_backend() {
  set_allocator(DeviceType::cuda, &cuda::device_allocator());
  set_transfer(DeviceType::cuda, &cuda::device_transfer());
#define EDDY_INSTALL(Args, name) name##_slot.function[static_cast<int>(DeviceType::cuda)] = cuda::name;
  EDDY_ALL_GPU_KERNELS(EDDY_INSTALL)
}

const char* backend_names() {
  return "cpu, cuda";
}

bool can_capture(Device device) {
  return device.type == DeviceType::cuda;
}

std::unique_ptr<CapturedWork> capture(Device device, const std::function<void()>& work) {
  if (!can_capture(device)) fail<DeviceError>("capture: the {} records no work", to_string(device));
  return cuda::capture(work);
}

bool capturing() {
  return cuda::capturing();
}

void keep_for_capture(const Tensor& tensor) {
  cuda::keep_for_capture(tensor);
}

std::string why_no_peers() {
  return cuda::why_no_peers();
}

PeersId make_peers_id() {
  return cuda::make_peers_id();
}

std::unique_ptr<Peers> join_peers(const PeersId& id, int rank, int size, double timeout,
                                  std::function<std::string(int)> name) {
  return cuda::join_peers(id, rank, size, timeout, std::move(name));
}

}  // namespace eddy
