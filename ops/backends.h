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

// Runs a kernel on the GPU whose blocks wait for each other at so many grid barriers and do nothing else, to
// measure what a barrier of the fused recurrences costs. No effect in a build without CUDA.
void run_grid_barriers(int barriers);

struct GpuMemory {
  AllocatorStats stats;
  std::int64_t segments = 0;  // pieces of memory allocated from the GPU
};
// Returns the memory that tensors use on the GPU; nothing if this build has no CUDA or finds no GPU that it
// can use. Opens no GPU.
std::optional<GpuMemory> gpu_memory();

// Waits until the device has finished all enqueued work. On the CPU it returns at once.
void synchronize(Device device);

// Overrides the program's choice among a GPU's kernels, which cuda/README.md describes. `text` is a list with
// commas of "auto" or "plain" for all three, or of
//   attention=auto|plain|mma|wgmma
//   recurrence=auto|plain|fused
//   products=auto|plain|fused
// of which a later one overrides an earlier one; what is not named is "auto", the program's choice. A call that
// the kernel asked for does not support runs on another and adds a warning (ops/core/warnings.h). Earlier
// warnings are dropped. No effect on the CPU.
// errors: ValueError for another text; it lists these.
void set_gpu_kernels(std::string_view text);

struct GpuKernels {
  std::string attention, recurrence, products;
};
// Returns the three choices in force, or nothing before a GPU is opened.
std::optional<GpuKernels> gpu_kernels();
// Returns the choices as text: "attention auto, recurrence fused, products auto".
std::string describe(const GpuKernels& kernels);

// Fills the GPU's slots, allocator and transfer functions if this build has CUDA. Touches no GPU. Called by
// install_backends.
void install_cuda_backend();

// Returns "cpu" or "cpu, cuda", for errors.
const char* backend_names();

// For the backend: what set_gpu_kernels chose.
enum class KernelOp { attention, recurrence, products };
enum class Kernel { automatic, plain, mma, wgmma, fused };
Kernel kernel_choice(KernelOp op);
std::string_view kernel_name(Kernel kernel);

}  // namespace eddy
