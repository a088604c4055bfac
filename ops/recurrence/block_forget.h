// Block recurrence with forget (Kausik's recurrent transformers), fused into one op: the sequential part of
// one layer, the loop over blocks. It generalizes the unit recurrence (unit_recurrence.h) from single
// positions to blocks; attention over two blocks replaces the gate. It is not part of the Block-Recurrent
// Transformer of Hutchins et al., whose gates are in gates.h.
//
// Inputs: rows x, and q, kx, vx of LN1(x), computed by one product before the loop. For blocks i = 1 .. n,
// per sequence and head, with kh, vh of the previous block:
//
//   o_j = sum_t dropout(softmax_t(q_j k_t / sqrt(d))) v_t
//   r   = x + o Wo^T
//   h   = r + act(LN2(r) Wup^T) Wdown^T
//   kh  = LN1(h) Wk^T
//   vh  = LN1(h) Wv^T
//
// where t runs over all rows kh, vh of the previous block, then over the rows kx, vx of this block up to j.
//
// Only GPUs have a kernel for it. On the CPU a block's rows stay in the cache, so the recurrence composed
// from other ops (models/recurrent_transformer/block_forget.cpp) is as fast; that composition is also the
// kernel's test.
//
// Source: Kausik, "Recurrent Transformers" (2025).
#pragma once

#include <optional>
#include <vector>

#include "ops/recurrence/unit_recurrence.h"

namespace eddy {

struct BlockForgetOptions {
  std::int64_t sequences = 1, block = 1;  // positions of a block; the last one may be shorter
  UnitRecurrenceOptions chain;            // the options of the layer; its three random keys are not used
  // With dropout, three random keys for each block:
  //   of the probabilities        element ((sequence heads + head) rows + j) keys + t, with the rows and keys
  //                               of that block
  //   of the attention's result   element of [sequences, rows, dim]
  //   of the MLP's result         element of [sequences, rows, dim]
  std::vector<RandomKey> keys;
};

// Capability query: whether x's device has the kernel for these sizes and is to use it (set_gpu_kernels).
bool block_forget_fits(const Tensor& x, std::int64_t mlp, const BlockForgetOptions& options);

// Returns h, and the keys and values of LN1(h), of all blocks.
// shapes: x [rows, dim], qkv [rows, 3 dim], block after block, each [sequences, positions of the block];
// results like x.
// dtypes: f32.
// grad: x, qkv and all weights.
// errors: ShapeError; ValueError for another number of random keys; DeviceError where block_forget_fits
// is false.
UnitRecurrenceResult block_forget(const Tensor& x, const Tensor& qkv, const UnitRecurrenceWeights& weights,
                                  const BlockForgetOptions& options);

// The same for rows of any dtype whose queries, keys and values are still to be made by LN1 and the projection `wqkv`
// of `weights`; the products are bf16 if the rows are. Returns nothing, and computes nothing, unless block_forget_fits.
// shapes: blocks [count, sequences, block, dim], a shorter last one [sequences, rest, dim], or both; results [rows, dim],
// block after block, of the rows' dtype.
std::optional<UnitRecurrenceResult> fused_block_forget(const std::vector<Tensor>& blocks,
                                                       const UnitRecurrenceWeights& weights,
                                                       BlockForgetOptions options);

namespace detail {
struct BlockForgetArgs : StateRecurrenceArgs {};
extern Slot<RecurrenceSupportQuery> block_forget_supports_slot;
extern Slot<BlockForgetArgs> block_forget_forward_slot, block_forget_backward_slot;
}  // namespace detail

}  // namespace eddy
