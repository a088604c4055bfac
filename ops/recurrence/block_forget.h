// The chain of block recurrence with forget, all of one layer that cannot leave the loop over blocks: the
// unit recurrence with blocks of several positions in place of one, and attention in place of its gate.
//
// Given rows x and q, kx, vx of LN1(x) (one product before the loop), for blocks i = 1..n, per sequence and
// head:
//
//   o_j = sum_t dropout(softmax_t(q_j k_t / sqrt(d))) v_t   t over all of kh, vh of the block before, then
//   over
//                                                           kx, vx of this block up to j
//   r = x + o Wo^T,  h = r + act(LN2(r) Wup^T) Wdown^T,  kh, vh = LN1(h) Wk^T, LN1(h) Wv^T
//
// There is one kernel for the whole chain, on a GPU; the CPU has none and needs none: composed of other ops
// (models/recurrent_transformer/block_forget.cpp) a block's rows are in the cache. That composition is the kernel's test.
//
// Source: Kausik, "Recurrent Transformers" (2025).
#pragma once

#include <vector>

#include "ops/recurrence/unit_recurrence.h"

namespace eddy {

struct BlockRecurrenceOptions {
  std::int64_t sequences = 1, block = 1;  // positions of a block; the last one may be shorter
  UnitRecurrenceOptions chain;            // but its three keys
  // With dropout, of every block: the key of the probabilities, where ((sequence heads + head) rows + j) keys
  // + t is an element, rows and keys being those of the block; of the attention's result, and of the MLP's,
  // [sequences, rows, dim] each.
  std::vector<RandomKey> keys;
};

// Whether x's device has the kernel, has been told to use it (set_recurrence_kernel), and it takes these
// sizes.
bool block_recurrence_fits(const Tensor& x, std::int64_t mlp, const BlockRecurrenceOptions& options);

// The chain over all blocks.
// shapes: x [rows, dim], qkv [rows, 3 dim], rows being block after block [sequences, positions of the block];
// results like x; key and value are those of LN1(h).
// dtypes: f32.
// grad: x, qkv and all weights.
// errors: ShapeError; ValueError for another number of keys; DeviceError where block_recurrence_fits is
// false.
UnitRecurrenceResult block_recurrence(const Tensor& x, const Tensor& qkv,
                                      const UnitRecurrenceWeights& weights,
                                      const BlockRecurrenceOptions& options);

// Asks for both directions. Of the unit recurrence block is 1.
struct BlockRecurrenceQuestion {
  std::int64_t dim, mlp, heads, sequences, block;
  Dtype products;
  bool* fits;
  bool spreads_output = true;  // of accumulate
};
extern Slot<BlockRecurrenceQuestion> unit_recurrence_question_slot, block_recurrence_question_slot;
extern Slot<UnitRecurrenceArgs> block_recurrence_forward_slot, block_recurrence_backward_slot;

}  // namespace eddy
