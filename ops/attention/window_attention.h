// The kernel behind attention_packed_keys for many short windows, as block recurrences have them: the rows of the
// previous block (`past`), which are all visible, and the block's own rows, which are visible up to the query itself.
//
// The kernels of `attention_bthd` put the keys of one window into vector lanes; with 8 numbers per head and 32 rows per
// block most of each vector would be idle. Here the lanes are sequences of the batch: 16 of them run through the same
// window side by side, no sum runs across lanes, and no head size or causal edge wastes work. The two parts are read in
// place, without concatenation, and have separate gradients.
#pragma once

#include <cstdint>

#include "ops/attention/attention.h"
#include "ops/core/matmul_precision.h"
#include "ops/core/slot.h"
#include "tensor/random/philox.h"
#include "tensor/tensor.h"

namespace eddy {

namespace detail {
// Whether the CPU is faster with sequences in its lanes: causal attention over many small windows with narrow heads.
bool is_window(const Tensor& q, const Tensor& past, const Tensor& own, std::int64_t heads,
               const AttentionOptions& options);
// attention_packed_keys where is_window, of checked inputs.
Tensor window_attention(const Tensor& q, const Tensor& past, const Tensor& own, std::int64_t heads,
                        const AttentionOptions& options);

// Sequences side by side in the CPU's kernel: the f32 lanes of the widest register. Narrower registers
// process a group in parts.
inline constexpr std::int64_t kWindowLanes = 16;

// Rows of [batch, time, width] tensors; the last axis has stride 1.
struct WindowRows {
  const void* data;
  std::int64_t batch_stride, time_stride;
};

// Sizes are at least 1, except for `past`. Dropout: the probability of sequence b, head h, query j and key t
// is element ((b heads + h) queries + j) keys + t.
struct WindowAttentionArgs {
  Dtype dtype;
  std::int64_t batch, queries, past, own, heads, head_size;
  double scale;
  std::uint32_t drop_below;  // a probability is dropped if the upper 24 bits of its word lie below this
  double keep_scale;
  RandomKey dropout_key;
  WindowRows q, past_rows, own_rows;
  void* output;   // [batch, queries, dim]
  void* log_sum;  // ceil(batch / 16) * heads * queries * 16 elements, in the kernel's order
  // Backward only: contiguous, shaped like the output, q, past and own; a null gradient is not needed.
  const void* doutput;
  void *dq, *dpast, *down;
  // Working memory of the CPU's kernels: `threads` times window_attention_scratch elements.
  void* scratch;
  int threads;
  MatmulPrecision precision;
};
extern CpuSlot<WindowAttentionArgs> window_attention_forward_slot, window_attention_backward_slot;

// Heads of one work item: as many as fill a vector if heads are narrow.
EDDY_INLINE std::int64_t window_attention_span(std::int64_t heads, std::int64_t head_size) {
  const std::int64_t span = (kWindowLanes + head_size - 1) / head_size;
  return span < heads ? span : heads;
}
// Elements of one thread's working memory.
EDDY_INLINE std::int64_t window_attention_scratch(const WindowAttentionArgs& args) {
  const std::int64_t width = window_attention_span(args.heads, args.head_size) * args.head_size;
  const std::int64_t keys = (args.past + args.own + 3) / 4 * 4;
  return kWindowLanes *
         (3 * (args.queries + 1) * width + 4 * keys * width + 2 * args.queries * keys + 3 * keys + 4);
}
}  // namespace detail

}  // namespace eddy
