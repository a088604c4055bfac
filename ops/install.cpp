// Defines every slot, and fills them: with the CPU's kernels, then those of the GPU where the build has them.
#include <mutex>

#include "ops/backends.h"
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
}  // namespace eddy
