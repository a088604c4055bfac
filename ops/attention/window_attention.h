// Causal attention over a short window in two parts, as block recurrences have it: the rows of the block
// before (`past`), all visible, and the block's own rows, visible up to the query itself.
//
//   y_j = dropout(softmax_t(q_j . k_t / sqrt(d))) v_t      t over all rows of past, then own rows up to that
//   of j
//
// For a batch of small windows. Kernels for attention deal out one window's keys to vector lanes; with 8
// numbers a head and 32 rows a block that leaves most of each vector idle. Here the lanes are sequences of
// the batch: 16 of them walk through the same window side by side, no sum runs across lanes, and every head
// size and causal edge is exact work. The two parts stay where they are: no concatenation, and gradients of
// their own. So they do on a GPU, where all calls go by attention_packed_keys; on the CPU the calls that go
// by it join them.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/random/philox.h"
#include "tensor/tensor.h"

namespace eddy {

// Sequences side by side in the CPU's kernel: as many as f32 lanes in the widest register; narrower ones take
// a group in parts.
inline constexpr std::int64_t kWindowLanes = 16;

struct WindowAttentionOptions {
  std::int64_t heads = 1;
  double dropout = 0;     // of probabilities
  RandomKey dropout_key;  // names the draws, which are those of `attention` over past and own laid end to end
};

// The mixed values, [batch, queries, dim].
// shapes: q [batch, queries, dim]; past [batch, p, 2 dim] or undefined; own [batch, rows, 2 dim], whose last
// `queries` rows belong to the queries; rows of past and own are keys of all heads, then values. Any strides;
// without a copy while the last axis has stride 1.
// dtypes: f32, f64.
// errors: ShapeError when sizes do not fit or there are more queries than own rows; ValueError for dropout
// outside [0, 1); DtypeError; DeviceError.
// grad: q, past and own; probabilities are recomputed from each row's logarithm of the sum of exponentials.
// Large windows and small batches go through `attention`.
Tensor window_attention(const Tensor& q, const Tensor& past, const Tensor& own,
                        const WindowAttentionOptions& options);

// Rows of [batch, time, width] tensors; the last axis has stride 1.
struct WindowRows {
  const void* data;
  std::int64_t batch_stride, time_stride;
};

// Sizes are at least 1 but for `past`. Dropout: the probability of sequence b, head h, query j and key t goes
// by the word of element ((b heads + h) queries + j) keys + t.
struct WindowAttentionArgs {
  Dtype dtype;
  std::int64_t batch, queries, past, own, heads, head_size;
  double scale;
  std::uint32_t drop_below;  // a probability goes when the upper 24 bits of its word lie below
  double keep_scale;
  RandomKey dropout_key;
  WindowRows q, past_rows, own_rows;
  void* output;   // [batch, queries, dim]
  void* log_sum;  // ceil(batch / 16) heads queries 16 elements, in an order of the kernel's own
  // Backward only: contiguous, like q, past and own; a null one is not wanted.
  const void* doutput;
  void *dq, *dpast, *down;
  // Working memory of the CPU's kernels: `threads` times window_attention_scratch elements.
  void* scratch;
  int threads;
};
extern CpuSlot<WindowAttentionArgs> window_attention_forward_slot, window_attention_backward_slot;

// Heads that one work item takes: as many as fill a vector when heads are narrow.
EDDY_INLINE std::int64_t window_attention_span(std::int64_t heads, std::int64_t head_size) {
  const std::int64_t span = (kWindowLanes + head_size - 1) / head_size;
  return span < heads ? span : heads;
}
// Elements of one thread's working memory.
EDDY_INLINE std::int64_t window_attention_scratch(const WindowAttentionArgs& args) {
  const std::int64_t width = window_attention_span(args.heads, args.head_size) * args.head_size;
  const std::int64_t keys = (args.past + args.own + 3) / 4 * 4;
  return kWindowLanes *
         (3 * args.queries * width + 4 * keys * width + 2 * args.queries * keys + 3 * keys + 4);
}

struct OpSpec;
std::vector<OpSpec> window_attention_specs();

}  // namespace eddy
