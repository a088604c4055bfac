// Block recurrences (Kausik's recurrent transformers), fused into one op: all windows of one layer T
// (models/recurrent_transformer/transformer_layer.h).
//
// The sequence is cut into n blocks x_0 .. x_{n-1}. Windows t = 0 .. n follow one another. Window t has an
// older half A_t (if t > 0) and a newer half B_t (if t < n); T is causal over the whole window:
//
//   accumulate    B_0 = x_0
//                 A_t = p/2 + h_{t-1}              0 < t < n
//                 B_t = p/2 + x_t                  0 < t < n
//                 A_n = h_{n-1}
//                 (y_{t-1}, h_t) = T(A_t || B_t)
//                 p = x_0 in window 1, then y_{t-2}
//
//   forget        A_t = h_{t-1},  B_t = x_t,  h_t = T(A_t || B_t) at B_t      t < n
//
// y_{t-1} is the output of block t - 1 and has its length. A short last block receives only the first rows of
// p. Of forget's older halves only keys and values are computed: its outputs y_t = T(h_t) are left to the caller, who
// computes those that are read all at once.
//
// Each weight gradient is one product over the rows of all windows. Kernels know two kinds of rows: first the
// newer halves, with the layout of x, then the older halves in the same layout, where A_t takes the place of
// block t - 1.
//
// Only GPUs have a kernel for it. The CPU composes the recurrence from other ops
// (models/recurrent_transformer/block_accumulate.cpp, block_forget.cpp); that composition is also the kernel's test.
//
// Source: Kausik, "Recurrent Transformers" (2025).
#pragma once

#include <optional>
#include <vector>

#include "ops/recurrence/unit_recurrence.h"

namespace eddy {

// How blocks lie in the rows, and what is read and dropped.
struct BlockRecurrenceOptions {
  std::int64_t sequences = 1, block = 1;  // positions of a block; the last one may be shorter
  UnitRecurrenceOptions chain;            // the options of the layer; its three random keys are not used
  // Of accumulate the caller reads only the outputs from position first_read on. Rows of the older halves of the last
  // two windows that are not read do not count in the numbering of dropout masks.
  std::int64_t first_read = 0;
  // Whether p becomes y_{t-2}, as above. The other form (accumulate = "hidden") has no kernel.
  bool spreads_output = true;
  // With dropout, three random keys for each newer half B_0 .. B_{n-1}, then, of accumulate, three for each older half
  // A_1 .. A_n:
  //   of the probabilities        element ((sequence heads + head) rows + j) keys + t, with the half's rows that are
  //                               read, and the keys that they attend to: for B_t those of A_t and B_t
  //   of the attention's result   element of [sequences, rows, dim]
  //   of the MLP's result         element of [sequences, rows, dim]
  std::vector<RandomKey> keys;
};

// Capability query: whether x's device has the kernel for these sizes and is to use it (set_gpu_kernels). It has
// products in bf16: where x is not bf16, options.chain.products says that they may be.
bool block_recurrence_fits(const Tensor& x, std::int64_t mlp, const BlockRecurrenceOptions& options);

// Returns y of all blocks. Rows before first_read have arbitrary dropout masks.
// shapes: x [rows, dim], block after block, each [sequences, positions of the block]; y like x.
// dtypes: f32; bf16 is upcast to f32, with products in bf16.
// grad: x and all weights.
// errors: ShapeError; ValueError for another number of random keys; DeviceError where block_recurrence_fits
// is false.
Tensor block_accumulate(const Tensor& x, const UnitRecurrenceWeights& weights,
                        const BlockRecurrenceOptions& options);
// Returns h of all blocks: shapes, dtypes, gradients and errors as above.
Tensor block_forget(const Tensor& x, const UnitRecurrenceWeights& weights,
                    const BlockRecurrenceOptions& options);

// One of these for the rows of blocks. Returns nothing, and computes nothing, unless block_recurrence_fits.
// shapes: blocks [count, sequences, block, dim], a shorter last one [sequences, rest, dim], or both; y [rows, dim],
// block after block.
std::optional<Tensor> fused_blocks(decltype(block_accumulate)& recurrence, const std::vector<Tensor>& blocks,
                                   const UnitRecurrenceWeights& weights,
                                   const BlockRecurrenceOptions& options);

namespace detail {
// Rows of windows: those of newer halves, then those of older ones; of forget without A_n, of which nothing is
// computed. x and dh have the rows of newer halves. z, qkv, a1, its statistics, da1, dqkv and dx have the rows of
// windows, dx for their gradients, of which the first part is the gradient of x. All other arrays have the rows for
// which T is computed: of accumulate those of windows, of forget those of newer halves. h is T, and dh the gradient of
// what the op returns.
struct BlockRecurrenceArgs : RecurrenceArgs {
  bool accumulates;
  const void *wqkv, *wqkv_bias;
  void *z, *qkv_output;  // the rows of the windows; qkv as the forward writes it, of `kept`
  void* dqkv;            // backward only, of `kept`
};
extern Slot<RecurrenceSupportQuery> block_recurrence_supports_slot;
extern Slot<BlockRecurrenceArgs> block_recurrence_forward_slot, block_recurrence_backward_slot;
}  // namespace detail

}  // namespace eddy
