// Connects the library with the CUDA backend, or says that this build has none.
#include "ops/backends.h"

#include "ops/core/capture.h"
#include "ops/core/device_clock.h"
#include "ops/core/slot.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"

#if defined(EDDY_HAS_CUDA)
#include "cuda/attention/attention_tensor_core.h"
#include "cuda/core/install.h"
#include "cuda/recurrence/unit_recurrence_fused.h"
#include "cuda/runtime/allocator.h"
#include "cuda/runtime/context.h"
#include "cuda/runtime/device.h"
#include "cuda/runtime/event_clock.h"
#include "cuda/runtime/gemm.h"
#include "cuda/runtime/graph.h"
#include "cuda/runtime/measure.h"
#endif

namespace eddy {

namespace {
constexpr const char* kAttentionKernels[] = {"plain", "tensor_core", "wgmma"};
// The index of a name among these.
// errors: ValueError for another name.
int attention_kernel(std::string_view name) {
  for (int i = 0; i < 3; ++i)
    if (name == kAttentionKernels[i]) return i;
  fail<ValueError>("set_attention_kernel: unknown kernel '{}' (plain, tensor_core or wgmma)", name);
}
// Whether the name is "fused".
// errors: ValueError for a name other than "plain" and "fused"; the text begins with `set`.
bool is_fused(const char* set, std::string_view name) {
  if (name != "plain" && name != "fused")
    fail<ValueError>("{}: unknown kernel '{}' (plain or fused)", set, name);
  return name == "fused";
}
constexpr const char *kSetRecurrence = "set_recurrence_kernel", *kSetProduct = "set_product_kernel";
}  // namespace

std::string describe(const GpuKernels& kernels) {
  return fmt::format("attention {}, recurrence {}, products {}, TF32 {}", kernels.attention,
                     kernels.recurrence, kernels.products, kernels.tf32 ? "on" : "off");
}

#if defined(EDDY_HAS_CUDA)

std::string cuda_status() {
  return cuda::status() + "; cuBLASLt " + cuda::product_library_version();
}

Device cuda_device(int index) {
  install_backends();
  cuda::use_device(index);
  cuda::open();
  return {DeviceType::cuda, index};
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

void set_tf32(bool on) {
  cuda::set_tf32(on);
}

void set_attention_kernel(std::string_view name) {
  cuda::set_attention_kernels(static_cast<cuda::AttentionKernels>(attention_kernel(name)));
  reset_warnings();
}

void set_recurrence_kernel(std::string_view name) {
  cuda::set_fused_recurrences(is_fused(kSetRecurrence, name));
  reset_warnings();
}

void set_product_kernel(std::string_view name) {
  cuda::set_fused_products(is_fused(kSetProduct, name));
  reset_warnings();
}

std::optional<GpuKernels> gpu_kernels() {
  if (!cuda::is_open()) return {};
  return GpuKernels{kAttentionKernels[static_cast<int>(cuda::attention_kernels())],
                    cuda::fused_recurrences() ? "fused" : "plain", cuda::fused_products() ? "fused" : "plain",
                    cuda::tf32()};
}

void install_cuda_backend() {
  cuda::install();
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

#else

std::string cuda_status() {
  return "not in this build";
}

Device cuda_device(int index) {
  fail<DeviceError>(
      "cuda: GPU {} asked for and this build has no CUDA (configure with -DEDDY_CUDA=ON, or compute on "
      "the cpu)",
      index);
}

std::vector<std::string> measure_gpu() {
  return {};
}

std::optional<GpuMemory> gpu_memory() {
  return std::nullopt;
}

void synchronize(Device) {}

std::unique_ptr<DeviceClock> device_clock(Device) {
  return nullptr;
}

void set_tf32(bool) {}

void set_attention_kernel(std::string_view name) {
  attention_kernel(name);
}

void set_recurrence_kernel(std::string_view name) {
  is_fused(kSetRecurrence, name);
}

void set_product_kernel(std::string_view name) {
  is_fused(kSetProduct, name);
}

std::optional<GpuKernels> gpu_kernels() {
  return {};
}

void install_cuda_backend() {}

const char* backend_names() {
  return "cpu";
}

bool can_capture(Device) {
  return false;
}

std::unique_ptr<CapturedWork> capture(Device device, const std::function<void()>&) {
  fail<DeviceError>("capture: the {} records no work", to_string(device));
}

bool capturing() {
  return false;
}

void keep_for_capture(const Tensor&) {}

#endif

}  // namespace eddy
