// Which backends this build has, and how a program gets at the GPU. backends.cpp is the one file with an
// #ifdef for CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/base/device.h"
#include "tensor/memory/allocator.h"

namespace eddy {

// "not in this build", or what the CUDA backend says of this machine's devices.
std::string cuda_status();

// The GPU with this number as the device of tensors; it is opened, and checked to run this build's code. One
// GPU per process.
// errors: DeviceError when this build has no CUDA, or there is no such GPU, or it needs another build, or
// another GPU is in use; the text says what to install or rebuild.
Device cuda_device(int index = 0);

// "name: value" lines with the rates of products and copies on the GPU. Without a GPU one line with the
// reason, and none in a build without CUDA. Takes some tenths of a second.
// errors: OutOfMemoryError.
std::vector<std::string> measure_gpu();

// The memory that tensors have on the GPU, and in how many pieces it was taken from there. Nothing where this
// build has no CUDA, or no GPU that it runs on. Opens no GPU.
struct GpuMemory {
  AllocatorStats stats;
  std::int64_t segments = 0;
};
std::optional<GpuMemory> gpu_memory();

// Waits until the device has done all it was asked for. The CPU never lags behind.
void synchronize(Device device);

// Whether f32 products on a GPU may round their inputs to TF32, which has 10 bits of mantissa: several times
// as fast, with relative errors of up to 1e-3. Off unless set. Without effect on the CPU.
void set_tf32(bool on);

// Chooses the kernels of attention in bf16 on a GPU: "plain", as at the start, or "tensor_core" for heads of
// 32 to 128 in steps of 16, or "wgmma" for these on GPUs of compute capability 9.0; other calls stay with the
// plain ones, and with "wgmma" other GPUs with "tensor_core", and say so (ops/core/warnings.h; this forgets
// what was said). Without effect on the CPU.
// errors: ValueError for another name.
void set_attention_kernel(std::string_view name);

// Chooses the kernels of the unit recurrence and of the block recurrence with forget on a GPU: "plain", as at
// the start, or "fused", one kernel for all steps, for widths that are multiples of 32 and weights that fit
// on the GPU's multiprocessors; other calls stay with the plain ones, and say so as above. Without effect on
// the CPU.
// errors: ValueError for another name.
void set_recurrence_kernel(std::string_view name);

// Chooses what products on a GPU do besides: "plain", as at the start, multiplies and adds biases, or
// "fused", where the gradient of a bias is summed by the product that makes the weight's, and a ReLU between
// two linear layers (ops/product/relu_mlp.h) leaves bits that the product of its gradient reads. Products that
// cuBLASLt does not have so stay with kernels of their own, and say so as above. Without effect on the CPU.
// errors: ValueError for another name.
void set_product_kernel(std::string_view name);

// These four choices as they stand, or nothing before a GPU is opened.
struct GpuKernels {
  std::string attention, recurrence, products;
  bool tf32 = false;
};
std::optional<GpuKernels> gpu_kernels();
// "attention plain, recurrence fused, products plain, TF32 off".
std::string in_words(const GpuKernels& kernels);

// Fills the slots, the allocator and the transfer of the GPU where this build has CUDA. Touches no GPU.
// Called by install_backends.
void install_cuda_backend();

// "cpu" or "cpu, cuda", for errors.
const char* backend_names();

}  // namespace eddy
