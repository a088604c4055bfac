// The choice between the plain attention kernels and those on tensor cores.
#include "cuda/attention_tensor_core.h"

#include <atomic>

namespace eddy::cuda {
namespace {
std::atomic<bool> allowed{false};
}

void set_tensor_core_attention(bool on) {
  allowed.store(on);
}

bool on_tensor_cores(const AttentionArgs& args) {
  return allowed.load(std::memory_order_relaxed) && args.dtype == Dtype::bf16 && args.head_size % 16 == 0 &&
         args.head_size >= 32 && args.head_size <= 128;
}

}  // namespace eddy::cuda
