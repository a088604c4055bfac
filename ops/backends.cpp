// Defines every slot, and fills them: with the CPU's kernels, then those of the GPU where the build has them.
// Also the choice among a GPU's kernels, in every build.
#include "ops/backends.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "ops/core/warnings.h"
#include "ops/cpu/isa.h"
#include "ops/op_list.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

#define EDDY_SLOT(Args, name) constinit Slot<Args> name##_slot{#name};
#define EDDY_CPU_SLOT(Args, name) constinit CpuSlot<Args> name##_slot{{#name}};
namespace detail {
EDDY_ALL_GPU_KERNELS(EDDY_SLOT)
EDDY_CPU_KERNELS(EDDY_CPU_SLOT)
}  // namespace detail

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
  fail<DeviceError>("{}: this build has no kernel for {} (it has: {}; docs/gpu.md lists what a GPU runs)",
                    kernel, to_string(device), backend_names());
}
}  // namespace detail

namespace {

constexpr std::size_t kOps = std::size(kKernelRecords);

using Kernels = std::array<Kernel, kOps>;

std::atomic<Kernel> asked[kOps], automatic[kOps];
std::atomic<bool> measured_gpu = true;
std::mutex refused_mutex;
std::vector<std::pair<std::size_t, Kernel>> refused;
std::vector<std::string> refused_why;

// Applies an item of the list.
// errors: ValueError.
void choose(std::string_view item, Kernels& wanted) {
  const std::size_t equals = item.find('=');
  const std::string_view op = item.substr(0, equals == item.npos ? 0 : equals),
                         name = item.substr(equals + 1);
  const auto* const kernel = std::find(std::begin(kKernelNames), std::end(kKernelNames), name);
  const bool of_all = equals == item.npos && (name == "auto" || name == "plain");
  std::string allowed = "auto, plain";
  bool applied = false;
  for (std::size_t i = 0; i < kOps; ++i) {
    const KernelRecord& record = kKernelRecords[i];
    const std::string kernels = fmt::format("auto|{}", record.kernels);
    allowed += fmt::format(", {}={}", record.name, kernels);
    const std::vector<std::string> names = kernels_in(kernels);
    const bool is_meant = of_all || op == record.name || op == record.part_of;
    if (!is_meant || std::find(names.begin(), names.end(), name) == names.end()) continue;
    wanted[i] = static_cast<Kernel>(kernel - kKernelNames);
    applied = true;
  }
  if (!applied)
    fail<ValueError>("set_gpu_kernels: unknown choice '{}' (a list with commas of {})", item, allowed);
}

// The choices of a list.
// errors: ValueError.
Kernels kernels_of(std::string_view text) {
  Kernels wanted{};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    choose(text.substr(begin, end - begin), wanted);
    begin = end + 1;
  }
  return wanted;
}

}  // namespace

std::string GpuKernels::of(std::string_view choice) const {
  for (const auto& [name, kernel] : chosen)
    if (name == choice) return kernel;
  fail<ValueError>("gpu kernels: there is no choice '{}'", choice);
}

std::string describe(const GpuKernels& kernels) {
  std::string text;
  for (const auto& [name, kernel] : kernels.chosen)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, kernel);
  return text;
}

void set_gpu_kernels(std::string_view text) {
  const Kernels wanted = kernels_of(text);
  std::copy(wanted.begin(), wanted.end(), std::begin(asked));
  reset_warnings();
}

void set_automatic_kernels(std::string_view text) {
  const Kernels wanted = kernels_of(text);
  {
    const std::lock_guard lock(refused_mutex);
    for (const auto& [op, kernel] : refused)
      if (wanted[op] == kernel)
        fail<DeviceError>("set_automatic_kernels: {}={} is refused on this GPU", kKernelRecords[op].name,
                          kernel_name(kernel));
  }
  std::copy(wanted.begin(), wanted.end(), std::begin(automatic));
}

void refuse_gpu_kernels(std::string_view text, std::vector<std::string> why) {
  std::vector<std::pair<std::size_t, Kernel>> wanted;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const Kernels kernels = kernels_of(text.substr(begin, end - begin));
    for (std::size_t op = 0; op < kOps; ++op)
      if (kernels[op] != Kernel::automatic) wanted.emplace_back(op, kernels[op]);
    begin = end + 1;
  }
  const std::lock_guard lock(refused_mutex);
  refused = std::move(wanted);
  refused_why = std::move(why);
}

bool has_automatic_kernels() {
  return std::find(std::begin(asked), std::end(asked), Kernel::automatic) != std::end(asked);
}

void detail::expect_gpu(bool measured) {
  measured_gpu = measured;
}

KernelChoice detail::kernel_choice(KernelOp op) {
  const auto i = static_cast<std::size_t>(op);
  if (const Kernel kernel = asked[i].load(std::memory_order_relaxed); kernel != Kernel::automatic)
    return {kernel, true};
  if (const Kernel kernel = automatic[i].load(std::memory_order_relaxed); kernel != Kernel::automatic)
    return {kernel, false};
  const KernelRecord& record = kKernelRecords[i];
  return {measured_gpu.load(std::memory_order_relaxed) ? record.measured : record.elsewhere(), false};
}

GpuKernels detail::chosen_kernels() {
  GpuKernels kernels;
  for (std::size_t i = 0; i < kOps; ++i)
    kernels.chosen.emplace_back(kKernelRecords[i].name,
                                kernel_name(kernel_choice(static_cast<KernelOp>(i)).kernel));
  const std::lock_guard lock(refused_mutex);
  kernels.refused = refused_why;
  return kernels;
}

}  // namespace eddy
