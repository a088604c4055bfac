// The choice between the plain attention kernels, those with mma.sync and those with wgmma.
#include "cuda/attention/attention_tensor_core.h"

#include "cuda/runtime/context.h"
#include "cuda/runtime/device.h"
#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

// A block of the kernels with wgmma has 128 queries (64 in some), one of those with mma.sync 64, and wgmma multiplies
// for 64 queries at least: with no more of them, half of a block of 128 has nothing to do.
constexpr std::int64_t kMostQueriesOfMma = 64;

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

Kernel attention_kernel(const AttentionArgs& args) {
  const Kernel asked = kernel_choice(KernelOp::attention);
  const bool automatic = asked == Kernel::automatic;
  if (asked == Kernel::plain) return Kernel::plain;
  if (args.dtype != Dtype::bf16 || args.head_size % 16 != 0 || args.head_size < 32 || args.head_size > 128) {
    if (!automatic)
      add_warning(
          fmt::format("attention in {} with heads of {} goes by the plain kernels: those on tensor "
                      "cores take bf16 with heads of 32 to 128 in steps of 16",
                      dtype_name(args.dtype), args.head_size));
    return Kernel::plain;
  }
  const bool wgmma = asked == Kernel::wgmma || (automatic && args.queries > kMostQueriesOfMma);
  const Kernel kernel = wgmma && gpu_has_wgmma() ? Kernel::wgmma : Kernel::mma;
  if (!automatic && kernel != asked)
    add_warning("attention goes by mma in place of wgmma, which is for GPUs of compute capability 9.0 alone");
  return kernel;
}

bool sums_bias_with_queries(const AttentionBackwardArgs& args, std::int64_t blocks, int warps,
                            int free_shared_bytes) {
  if (args.dbias == nullptr || args.dpositions != nullptr) return false;
  const std::int64_t bytes = 4 * (args.forward.most - args.forward.least + 1);  // of one table
  return bytes <= free_shared_bytes / warps && bytes <= kMostBiasSliceBytes / blocks;
}

}  // namespace eddy::cuda
