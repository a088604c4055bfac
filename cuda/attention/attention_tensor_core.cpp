// The choice between the plain attention kernels, those on tensor cores and those with wgmma.
#include "cuda/attention/attention_tensor_core.h"

#include <atomic>

#include "cuda/runtime/context.h"
#include "cuda/runtime/device.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

std::atomic<AttentionKernels> allowed{AttentionKernels::plain};

// Computed once: the GPU of a process does not change.
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

AttentionKernels attention_kernels() {
  return allowed.load(std::memory_order_relaxed);
}

bool uses_tensor_cores(const AttentionArgs& args) {
  if (attention_kernels() == AttentionKernels::plain) return false;
  if (args.dtype == Dtype::bf16 && args.head_size % 16 == 0 && args.head_size >= 32 && args.head_size <= 128)
    return true;
  add_warning(
      fmt::format("attention in {} with heads of {} goes by the plain kernels: those on tensor cores take "
                  "bf16 with heads of 32 to 128 in steps of 16",
                  dtype_name(args.dtype), args.head_size));
  return false;
}

bool uses_wgmma(const AttentionArgs& args) {
  if (attention_kernels() != AttentionKernels::wgmma || !uses_tensor_cores(args)) return false;
  if (gpu_has_wgmma()) return true;
  add_warning(
      "attention goes by tensor_core in place of wgmma, which is for GPUs of compute capability 9.0 alone");
  return false;
}

bool sums_bias_with_queries(const AttentionBackwardArgs& args, std::int64_t blocks, int warps,
                            int free_shared_bytes) {
  if (args.dbias == nullptr || args.dpositions != nullptr) return false;
  const std::int64_t bytes = 4 * (args.forward.most - args.forward.least + 1);  // of one table
  return bytes <= free_shared_bytes / warps && bytes <= kMostBiasSliceBytes / blocks;
}

}  // namespace eddy::cuda
