// The backends of this build: functions that open the GPU and choose its kernels. A build with CUDA compiles
// cuda/backends.cpp, any other build backends_cpu.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/base/device.h"
#include "tensor/memory/allocator.h"

namespace eddy {

// Returns "not in this build", or the CUDA backend's description of this machine's devices.
std::string cuda_status();

// Opens the GPU with this number, checks that it can run the code of this build, and returns it as a device
// for tensors. A process uses one GPU.
// errors: DeviceError if this build has no CUDA, there is no such GPU, it needs another build, or another GPU
// is in use; the text says what to install or rebuild.
Device cuda_device(int index = 0);

// Measures the GPU's rates of products and copies, which takes some tenths of a second. Returns lines of the
// form "name: value", one line with the reason if there is no GPU, or none in a build without CUDA.
// errors: OutOfMemoryError.
std::vector<std::string> measure_gpu();

struct GpuMemory {
  AllocatorStats stats;
  std::int64_t segments = 0;  // pieces of memory allocated from the GPU
};
// Returns the memory that tensors use on the GPU; nothing if this build has no CUDA or finds no GPU that it
// can use. Opens no GPU.
std::optional<GpuMemory> gpu_memory();

// Waits until the device has finished all enqueued work. On the CPU it returns at once.
void synchronize(Device device);

// Sets whether f32 products on a GPU may round their inputs to TF32, which has 10 bits of mantissa. They are
// then several times as fast, with relative errors of up to 1e-3. Off by default; no effect on the CPU.
void set_tf32(bool on);

// Chooses the kernels of bf16 attention on a GPU. No effect on the CPU.
//   plain         the default
//   tensor_core   for head sizes of 32 to 128 in steps of 16
//   wgmma         for the same head sizes on GPUs of compute capability 9.0; on other GPUs as tensor_core
// Other calls use the plain kernels and add a warning (ops/core/warnings.h). Earlier warnings are dropped.
// errors: ValueError for another name.
void set_attention_kernel(std::string_view name);

// Chooses the kernels of the unit recurrence and of the block recurrences on a GPU. No effect on the CPU.
//   plain   the default
//   fused   one kernel for all steps, for widths that are multiples of 32 and weights that fit on the GPU's
//           multiprocessors
// Other calls use the plain kernels and add a warning, as above.
// errors: ValueError for another name.
void set_recurrence_kernel(std::string_view name);

// Chooses what is fused into products on a GPU. No effect on the CPU.
//   plain   the default: only adding a bias and ReLU
//   fused   also the gradient of a bias, which the product of the weight's gradient sums, and the bit mask of
//           a ReLU between two linear layers (ops/product/relu_mlp.h), which the product of its gradient
//           applies
// If cuBLASLt does not support a fusion, separate kernels do the work and add a warning, as above.
// errors: ValueError for another name.
void set_product_kernel(std::string_view name);

struct GpuKernels {
  std::string attention, recurrence, products;
  bool tf32 = false;
};
// Returns the four choices in force, or nothing before a GPU is opened.
std::optional<GpuKernels> gpu_kernels();
// Returns the choices as text: "attention plain, recurrence fused, products plain, TF32 off".
std::string describe(const GpuKernels& kernels);

// Fills the GPU's slots, allocator and transfer functions if this build has CUDA. Touches no GPU. Called by
// install_backends.
void install_cuda_backend();

// Returns "cpu" or "cpu, cuda", for errors.
const char* backend_names();

// The names that set_attention_kernel takes.
inline constexpr std::string_view kAttentionKernels[] = {"plain", "tensor_core", "wgmma"};
namespace detail {
// Choose kernels after their names were checked; `kernel` is an index into kAttentionKernels.
void choose_attention_kernel(int kernel);
void choose_fused_recurrences(bool on);
void choose_fused_products(bool on);
}  // namespace detail

}  // namespace eddy
