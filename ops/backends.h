// The backends of this build: functions that open the GPU and choose its kernels. A build with CUDA compiles
// cuda/backends.cpp, any other build backends_cpu.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/core/kernel_choices.h"
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

// The memory of a GPU.
struct GpuMemory {
  AllocatorStats stats;       // of tensors
  std::int64_t segments = 0;  // pieces of memory allocated from the GPU
};
// Returns the memory that tensors use on the GPU; nothing if this build has no CUDA or finds no GPU that it
// can use. Opens no GPU.
std::optional<GpuMemory> gpu_memory();

// Waits until the device has finished all enqueued work. On the CPU it returns at once.
void synchronize(Device device);

// Overrides the choice among a GPU's kernels, which cuda/README.md describes. `text` is a list with commas of
// "auto" or "plain" for all, or of items like "attention=mma", with the names in ops/core/kernel_choices.h or "auto". A
// later item overrides an earlier one; what is not named is "auto", what set_automatic_kernels says. A call that the
// kernel asked for does not support runs on another and adds a warning (ops/core/warnings.h). Earlier warnings are
// dropped. No effect on the CPU.
// errors: ValueError for another text; it lists these.
void set_gpu_kernels(std::string_view text);

// Sets what "auto" stands for, by such a list. What is not named, or "auto" itself, is what an H200 has measured as the
// fastest, on a GPU of compute capability 9.0; on any other it is mma for attention, and plain for all else.
// errors: ValueError for another text; DeviceError if it names a kernel that is refused, and nothing is changed.
void set_automatic_kernels(std::string_view text);
// Keeps set_automatic_kernels from these kernels, "attention=wgmma,products=fused"; "" allows all. `why` has a line for
// each, for gpu_kernels.
// errors: ValueError.
void refuse_gpu_kernels(std::string_view text, std::vector<std::string> why = {});
// Returns whether a choice is left to "auto".
bool has_automatic_kernels();

// Which kernels a GPU runs.
struct GpuKernels {
  std::vector<std::pair<std::string, std::string>> chosen;  // the kernel of each choice: "attention", "wgmma"
  std::vector<std::string> refused{};                       // lines on the kernels that are refused

  // The kernel of the choice of this name.
  // errors: ValueError for another name.
  std::string of(std::string_view choice) const;
};
// Returns the kernels in force, or nothing before a GPU is opened.
std::optional<GpuKernels> gpu_kernels();
// Returns the kernels as set_gpu_kernels takes them.
std::string describe(const GpuKernels& kernels);

// Returns what kernels are checked for: the name, sizes and driver of the GPU that cuda_device() would open, and the
// version of its library of products. "" in a build without CUDA and without a GPU. Opens no GPU.
std::string gpu_identity();

// Returns what must be alike where GPUs compute one run together, so that their bits are: the name, the capability and
// the multiprocessors of the GPU that is open, and the version of its library of products. "" before one is opened.
std::string gpu_kind();

// Fills the GPU's slots, allocator and transfer functions if this build has CUDA. Touches no GPU. Called by
// install_backends.
void install_cuda_backend();

// Returns "cpu" or "cpu, cuda", for errors.
const char* backend_names();

namespace detail {
// For the backend: the kernel to use, and whether set_gpu_kernels named it.
struct KernelChoice {
  Kernel kernel;  // never automatic
  bool asked;     // by set_gpu_kernels
};
// For the backend: the kernel for an op, and those for all.
KernelChoice kernel_choice(KernelOp op);
GpuKernels chosen_kernels();
// For the backend: a GPU is opened, one on which the fastest kernels were measured, or another. Without a choice of the
// program this says what "auto" is.
void expect_gpu(bool measured);
}  // namespace detail

}  // namespace eddy
