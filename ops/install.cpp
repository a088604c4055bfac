// Fills every slot: the CPU's kernels, then those of the GPU where the build has them.
#include <mutex>

#include "ops/backends.h"
#include "ops/core/slot.h"
#include "ops/cpu/install.h"
#include "ops/cpu/isa.h"
#include "tensor/base/format.h"

namespace eddy {

namespace {
std::once_flag installed;
}

void install_backends() {
  std::call_once(installed, [] {
    install_cpu_products();
    install_cpu_memory_search();
    install_cpu_memory_write();
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
