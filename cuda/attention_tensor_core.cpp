// The choice between the plain attention kernels and those on tensor cores.
#include "cuda/attention_tensor_core.h"

#include <atomic>

#include "cuda/context.h"
#include "cuda/device.h"

namespace eddy::cuda {
namespace {

std::atomic<AttentionKernels> allowed{AttentionKernels::plain};

// The GPU does not change: one for a process.
bool gpu_has_wgmma() {
  static const bool has = [] {
    std::string why_none;
    for (const DeviceInfo& device : devices(&why_none))
      if (device.index == device_index()) return device.major == 9 && device.minor == 0;
    return false;
  }();
  return has;
}

}  // namespace

void set_attention_kernels(AttentionKernels kernels) {
  allowed.store(kernels);
}

bool on_tensor_cores(const AttentionArgs& args) {
  return allowed.load(std::memory_order_relaxed) != AttentionKernels::plain && args.dtype == Dtype::bf16 &&
         args.head_size % 16 == 0 && args.head_size >= 32 && args.head_size <= 128;
}

bool on_wgmma(const AttentionArgs& args) {
  return allowed.load(std::memory_order_relaxed) == AttentionKernels::wgmma && on_tensor_cores(args) &&
         gpu_has_wgmma();
}

}  // namespace eddy::cuda
