// Block recurrence with accumulate as one op: all of one layer T (models/recurrent_transformer/transformer_layer.h), over the
// windows t = 0..n of n blocks, one after the other. A window has an older half A_t, if t > 0, and a newer
// half B_t, if t < n, and T is causal over the whole of it:
//
//   B_0 = x_0     A_t = p/2 + h_{t-1}     B_t = p/2 + x_t     A_n = h_{n-1}
//   (y_{t-1}, h_t) = T(A_t || B_t)        p = x_0 in window 1, then y_{t-2}
//
// A short last block adds to the first rows of p alone. Blocks count from 0, so y_{t-1} is the output of
// block t - 1, as long as that block.
//
// All rows of all windows go through the same products, so that weights' gradients are one product over them
// and kernels know two kinds of rows and no more: newer halves, which lie as x does, and behind them older
// halves, which lie the same way, A_t at the place of block t - 1.
//
// There is one kernel for the whole chain, on a GPU; the CPU composes it of other ops
// (models/recurrent_transformer/block_accumulate.cpp), which is the kernel's test.
//
// Source: Kausik, "Recurrent Transformers" (2025).
#pragma once

#include "ops/recurrence/block_forget.h"

namespace eddy {

struct BlockAccumulateOptions : BlockRecurrenceOptions {
  // Outputs of the positions from here on are read. Where this cuts off rows of the last two windows' older
  // halves, masks are numbered as if those rows were not there.
  std::int64_t first_read = 0;
  // Whether p becomes y_{t-2}, as above. The other form (accumulate = "hidden") has no kernel: nothing fits
  // it.
  bool spreads_output = true;
  // With dropout, `keys` has three for each newer half B_0 .. B_{n-1}, then three for each older one A_1 ..
  // A_n, numbered within the half as BlockRecurrenceOptions says: queries are the half's rows that are read,
  // keys for B_t those of A_t and B_t.
};

// Whether x's device has the kernel, has been told to use it (set_recurrence_kernel), and it takes these
// sizes.
bool block_accumulate_fits(const Tensor& x, std::int64_t mlp, const BlockAccumulateOptions& options);

// y over all blocks; rows before first_read may have masks of no meaning.
// shapes: x [rows, dim], rows being block after block [sequences, positions of the block]; y like x.
// dtypes: f32, and bf16 by way of it with products in bf16.
// grad: x and all weights.
// errors: ShapeError; ValueError for another number of keys; DeviceError where block_accumulate_fits is
// false.
Tensor block_accumulate(const Tensor& x, const UnitRecurrenceWeights& weights,
                        const BlockAccumulateOptions& options);

// As UnitRecurrenceArgs, with these differences: arrays but x and dh have the rows of both kinds, twice those
// of x; qkv is made by the forward, for all rows; h is the result T of every row; wkv, key and value are not
// used. dqkv is working memory, and dproducts has it for all rows, stored as `kept`. dh is the gradient of
// the results y, and dx leaves as the gradient of the windows' rows, whose first half, that of B_t, is the
// gradient of x.
struct BlockAccumulateArgs : UnitRecurrenceArgs {
  const void *wqkv, *wqkv_bias;
  void *z, *made_qkv;  // the rows of the windows; qkv where it is written
};
extern Slot<BlockRecurrenceQuestion> block_accumulate_question_slot;
extern Slot<BlockAccumulateArgs> block_accumulate_forward_slot, block_accumulate_backward_slot;

}  // namespace eddy
