// Defines every slot, and fills them: with the CPU's kernels, then those of the GPU where the build has them.
// Also the choice among a GPU's kernels, in every build.
#include "ops/backends.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "ops/core/warnings.h"
#include "ops/cpu/isa.h"
#include "ops/op_list.h"
#include "tensor/base/format.h"

namespace eddy {

#define EDDY_SLOT(Args, name) constinit Slot<Args> name##_slot{#name};
#define EDDY_CPU_SLOT(Args, name) constinit CpuSlot<Args> name##_slot{{#name}};
EDDY_ALL_GPU_KERNELS(EDDY_SLOT)
EDDY_CPU_KERNELS(EDDY_CPU_SLOT)

#define EDDY_DECLARE(Args, name) void install_##name();
EDDY_HOST_KERNELS(EDDY_DECLARE)

void install_backends() {
  static std::once_flag installed;
  std::call_once(installed, [] {
#define EDDY_INSTALL(Args, name) install_##name();
    EDDY_HOST_KERNELS(EDDY_INSTALL)
    install_cpu_kernels(best_isa_level());
    install_cuda_backend();
  });
}

namespace detail {
void empty_slot(const char* kernel, Device device) {
  fail<DeviceError>(
      "{}: this build has no kernel for {} (it has: {}; docs/gpu-status.md lists what a GPU runs)", kernel,
      to_string(device), backend_names());
}
}  // namespace detail

namespace {

struct Choices {
  const char *op, *kernels;
};
constexpr Choices kChoices[] = {{"attention", "auto|plain|mma|wgmma"},
                                {"recurrence", "auto|plain|fused"},
                                {"products", "auto|plain|fused"}};
constexpr std::string_view kKernels[] = {"auto", "plain", "mma", "wgmma", "fused"};  // as Kernel

std::atomic<Kernel> chosen[std::size(kChoices)];

// Applies an item of the list.
// errors: ValueError.
void choose(std::string_view item, Kernel (&wanted)[std::size(kChoices)]) {
  const std::size_t equals = item.find('=');
  const std::string_view op = item.substr(0, equals == item.npos ? 0 : equals),
                         name = item.substr(equals + 1);
  const auto* const kernel = std::find(std::begin(kKernels), std::end(kKernels), name);
  const bool known = kernel != std::end(kKernels),
             of_all = equals == item.npos && (name == "auto" || name == "plain");
  std::string allowed = "auto, plain";
  bool applied = false;
  for (std::size_t i = 0; i < std::size(kChoices); ++i) {
    const auto& [its_op, kernels] = kChoices[i];
    allowed += fmt::format(", {}={}", its_op, kernels);
    if (!known || !(of_all || op == its_op) || std::string_view(kernels).find(name) == name.npos) continue;
    wanted[i] = static_cast<Kernel>(kernel - kKernels);
    applied = true;
  }
  if (!applied)
    fail<ValueError>("set_gpu_kernels: unknown choice '{}' (a list with commas of {})", item, allowed);
}

}  // namespace

std::string describe(const GpuKernels& kernels) {
  return fmt::format("attention {}, recurrence {}, products {}", kernels.attention, kernels.recurrence,
                     kernels.products);
}

void set_gpu_kernels(std::string_view text) {
  Kernel wanted[std::size(kChoices)] = {};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    choose(text.substr(begin, end - begin), wanted);
    begin = end + 1;
  }
  std::copy(std::begin(wanted), std::end(wanted), std::begin(chosen));
  reset_warnings();
}

Kernel kernel_choice(KernelOp op) {
  return chosen[static_cast<int>(op)].load(std::memory_order_relaxed);
}

std::string_view kernel_name(Kernel kernel) {
  return kKernels[static_cast<int>(kernel)];
}

}  // namespace eddy
