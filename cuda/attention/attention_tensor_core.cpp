// The choice between the plain attention kernels, those with mma.sync and those with wgmma.
#include "cuda/attention/attention_tensor_core.h"

#include "cuda/attention/position_products.h"
#include "cuda/runtime/context.h"
#include "cuda/runtime/stream.cuh"
#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

// A block of the kernels with wgmma has 128 queries (64 in some), one of those with mma.sync 64. With no more of them
// half of a block of 128 has nothing to do, so that the choice is one of its own.
constexpr std::int64_t kShort = 64;

// Whether positions are products in such a call, if it runs by wgmma.
bool fit_products(const AttentionArgs& args) {
  if (args.positions == nullptr || kernel_choice(KernelOp::positions).kernel != Kernel::products)
    return false;
  const AttentionStrides& q = args.q_strides;
  const bool even = (args.batch == 1 || q.batch == args.queries * q.time) && q.time % 8 == 0 &&
                    q.head % 8 == 0 && reinterpret_cast<std::uintptr_t>(args.q) % 16 == 0;
  const std::int64_t bytes = 2 * args.batch * args.heads * args.queries * position_row(args);
  return even && args.bias == nullptr && args.queries >= kFewestProductQueries && bytes <= kMostPositionBytes;
}

bool takes_head(const AttentionArgs& args) {
  return args.head_size % 16 == 0 && args.head_size >= 16 && args.head_size <= 128;
}

// Whether the choice of TF32 applies to a call.
bool may_be_tf32(const AttentionArgs& args) {
  return args.dtype == Dtype::f32 && args.precision != MatmulPrecision::f32;
}
Kernel tf32_kernel(const AttentionArgs& args) {
  const auto [wanted, asked] = kernel_choice(KernelOp::tf32_attention);
  if (wanted == Kernel::plain) return Kernel::plain;
  if (takes_head(args) && (args.positions == nullptr || args.head_size <= kMostTf32PositionsHead))
    return Kernel::mma;
  if (asked)
    add_warning(fmt::format(
        "attention in TF32 with heads of {}{} goes by the plain kernels: those on tensor cores take "
        "heads of 16 to 128 in steps of 16, with positions of up to {}",
        args.head_size, args.positions == nullptr ? "" : " and positions", kMostTf32PositionsHead));
  return Kernel::plain;
}

// Whether a call that mma was taken for runs by wgmma, which has positions as products: its blocks have 64 queries
// where heads have at most 64 numbers.
bool moves_to_products(const AttentionArgs& args) {
  return has_wgmma() && kernel_choice(KernelOp::attention).kernel == Kernel::wgmma && args.head_size <= 64 &&
         fit_products(args);
}

}  // namespace

Kernel attention_kernel(const AttentionArgs& args) {
  if (may_be_tf32(args)) return tf32_kernel(args);
  const auto [wanted, asked] =
      kernel_choice(args.queries > kShort ? KernelOp::attention : KernelOp::short_attention);
  if (wanted == Kernel::plain) return Kernel::plain;
  if (args.dtype != Dtype::bf16 || !takes_head(args)) {
    if (asked)
      add_warning(fmt::format(
          "attention in {} with heads of {} goes by the plain kernels: those on tensor "
          "cores take bf16 with heads of 16 to 128 in steps of 16 (of f32 in TF32: tf32_attention)",
          dtype_name(args.dtype), args.head_size));
    return Kernel::plain;
  }
  if (!asked && wanted == Kernel::mma && moves_to_products(args)) return Kernel::wgmma;
  const Kernel kernel = wanted == Kernel::wgmma && has_wgmma() ? Kernel::wgmma : Kernel::mma;
  if (asked && kernel != wanted)
    add_warning("attention goes by mma in place of wgmma, which is for GPUs of compute capability 9.0 alone");
  return kernel;
}

bool takes_position_products(const AttentionArgs& args, Kernel kernel, bool made_unit) {
  if (args.positions == nullptr) return false;
  if (kernel == Kernel::wgmma && !made_unit && fit_products(args)) return true;
  if (const auto [wanted, asked] = kernel_choice(KernelOp::positions); asked && wanted == Kernel::products)
    add_warning(
        "positions by distance are multiplied in attention's tiles in some calls: products are for wgmma, at "
        "least 16 queries at even distances, no bias and scores of up to 256 MiB");
  return false;
}

bool wide_forward(const AttentionArgs& args) {
  const auto [wanted, asked] = kernel_choice(KernelOp::wide_attention);
  if (wanted != Kernel::tma || args.head_size <= 64) return false;
  if (args.positions == nullptr && wgmma_tma_forward(args, multiprocessors())) return true;
  if (asked)
    add_warning(
        "attention with heads of 80 to 128 by wgmma loads with all threads in some calls: loads by TMA are for calls "
        "without positions whose rows are at multiples of 16 bytes");
  return false;
}

bool takes_fused_backward(const AttentionBackwardArgs& args, Kernel kernel, bool* sums_bias) {
  *sums_bias = false;
  const auto [wanted, asked] = kernel_choice(KernelOp::attention_backward);
  const bool dkeys =
      args.dk != nullptr || args.dv != nullptr || args.past_dk != nullptr || args.past_dv != nullptr;
  if (wanted != Kernel::fused || args.dq == nullptr || !dkeys) return false;
  const AttentionArgs& forward = args.forward;
  const std::int64_t items =
      forward.batch * forward.heads * ((forward.keys + kFusedBackwardKeys - 1) / kFusedBackwardKeys);
  const bool one_head = forward.heads == forward.kv_heads,
             sums = one_head && sums_bias_with_queries(args, items, kFusedBackwardWarps,
                                                       fused_backward_free_bytes(forward.head_size));
  const bool tables = args.dbias == nullptr || sums,
             scales = args.dhead_scale == nullptr || (one_head && (forward.bias == nullptr || sums));
  if (kernel == Kernel::wgmma && forward.positions == nullptr && tables && scales) {
    *sums_bias = sums;
    return true;
  }
  if (asked)
    add_warning(
        "the gradients of some calls of attention come from two kernels: one for all is for wgmma without positions, "
        "and for a bias or scales of heads to learn it takes heads that share no keys and a band that fits");
  return false;
}

bool sums_bias_with_queries(const AttentionBackwardArgs& args, std::int64_t blocks, int warps,
                            int free_shared_bytes) {
  if (args.dbias == nullptr || args.dpositions != nullptr) return false;
  const std::int64_t bytes = 4 * (args.forward.most - args.forward.least + 1);  // of one table
  return bytes <= free_shared_bytes / warps && bytes <= kMostBiasSliceBytes / blocks;
}

}  // namespace eddy::cuda
