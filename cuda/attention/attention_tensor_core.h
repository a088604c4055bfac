// Attention on tensor cores: which calls it takes, and its kernels as the files of the plain ones
// call them. No CUDA header is needed to include this.
#pragma once

#include "cuda/runtime/context.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_partials.h"
#include "ops/backends.h"

namespace eddy::cuda {

// The largest heads with which calls of f32 on tensor cores take positions: with larger ones the tiles of backward
// leave them no shared memory.
inline constexpr std::int64_t kMostTf32PositionsHead = 64;

// Returns the kernel of this call: plain, mma or wgmma. Those on tensor cores take bf16 and a head_size
// that is a multiple of 16 up to 128; wgmma needs a GPU of compute capability 9.0. Calls with up to 64
// queries have a choice of their own; where that is mma by itself and longer calls run by wgmma, those with
// positions as products do too. Calls of f32 whose precision is TF32 or coarser also have one of their own: mma takes
// such heads of them, with positions up to kMostTf32PositionsHead. Gives a warning (ops/core/warnings.h) if the kernel
// that was asked for does not support the call.
Kernel attention_kernel(const AttentionArgs& args);

// Returns whether a call that runs on `kernel` takes positions by distance as products (PositionProducts). It does
// where that is chosen, the kernel is wgmma, there is no bias, and q has enough rows, at even distances. A backward
// call that made unit vectors (AttentionBackwardArgs::q_unit) does not. Gives a warning if it was asked for and does
// not apply.
bool takes_position_products(const AttentionArgs& args, Kernel kernel, bool made_unit = false);

// Enqueues the whole forward pass, of bf16, or of f32 with products in TF32.
void tensor_core_forward(const AttentionArgs& args);

// The same with wgmma; products: what takes_position_products says.
void wgmma_forward(const AttentionArgs& args, bool products);

// Enqueues the forward pass of a call that runs on wgmma with loads by TMA, and returns true, where that is chosen
// (KernelOp::wide_attention) and the call has heads of more than 64 numbers and no positions. Else it returns false.
// Gives a warning if it was asked for and does not take such heads.
bool wide_forward(const AttentionArgs& args);
// The same of every call without positions whose rows are at multiples of 16 bytes, in tensors with strides above 0, by
// at most so many blocks; returns false for others. The result has the bits of wgmma_forward.
bool wgmma_tma_forward(const AttentionArgs& args, int most_blocks);

// The parts of the backward pass, each as the plain kernel of that name. Those for the queries leave the
// deltas in the scratch memory, where the others read them. They also add to dbias if they can, and return
// whether they did.
bool tensor_core_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void tensor_core_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials);
// Of bf16 alone: for f32 the plain kernel makes the tables.
void tensor_core_tables(const AttentionBackwardArgs& args, const AttentionPartials& partials);
// Those with wgmma take the scores of positions, or null for positions in their tiles. With scores that for the
// queries also adds to dpositions.
class PositionProducts;
bool wgmma_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                   const PositionProducts* positions);
void wgmma_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                const PositionProducts* positions);

// dq, dk and dv by one kernel with wgmma, and dbias with sums_bias. Returns whether a call on `kernel` that wants both
// dq and gradients of keys or values goes that way: where it is chosen, the kernel is wgmma and there are no positions;
// the gradients of the bias and of head_scale are for calls with a key head for each head, where the first fits
// (sums_bias_with_queries), and the second wants the first. Sets sums_bias. Gives a warning if it was asked for and
// does not apply.
bool takes_fused_backward(const AttentionBackwardArgs& args, Kernel kernel, bool* sums_bias);
void wgmma_fused_backward(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                          bool sums_bias);
// The keys of one of its blocks, and the shared memory that it leaves to the gradient of the bias.
inline constexpr std::int64_t kFusedBackwardKeys = 128;
inline constexpr int kFusedBackwardWarps = 8;
int fused_backward_free_bytes(std::int64_t head_size);

// The most memory for the slices in which the blocks for dq leave the gradient of the bias, 128 MiB: with 8
// heads enough for 128 sequences of 4096 tokens and a band of 512, with wgmma and heads of 128 for 256.
inline constexpr std::int64_t kMostBiasSliceBytes = std::int64_t{1} << 27;
// Returns whether a kernel for dq with so many blocks sums the gradient of the bias. It does if that gradient
// is wanted and that of positions is not (tensor_core_tables makes both from the same gradients of scores),
// if a table of the band's distances for each warp fits into the free shared memory, and if the blocks'
// slices fit into kMostBiasSliceBytes. Else tensor_core_tables does.
bool sums_bias_with_queries(const AttentionBackwardArgs& args, std::int64_t blocks, int warps,
                            int free_shared_bytes);
// Adds the slices [batch, heads, tiles, distances least .. most], in a fixed order, to dbias.
void add_bias_slices(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                     const float* slices, std::int64_t tiles);

}  // namespace eddy::cuda
