// Scaled dot-product attention, y = dropout(softmax(scale q k^T)) v, in blocks of queries and keys: the score
// matrix is never stored, so memory grows with the length and not with its square. source: A. Vaswani et al.,
// Attention is all you need, 2017; online softmax: M. Milakov, N. Gimelshein, 2018; blocked forward and
// recomputing backward: T. Dao et al., FlashAttention, 2022.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/slot.h"
#include "tensor/dtype.h"
#include "tensor/host_device.h"
#include "tensor/philox.h"
#include "tensor/tensor.h"

namespace eddy {

struct AttentionOptions {
  bool causal = false;    // query j sees the keys t <= j + (keys - queries)
  double scale = 0;       // of the scores; 0 stands for 1 / sqrt(head_size)
  double dropout = 0;     // the share of probabilities set to 0; the others are divided by 1 - dropout
  RandomKey dropout_key;  // names the draws; probability ((b heads + h) queries + j) keys + t takes the word
                          // of that number
};

// The mixed values, [batch, queries, heads, head_size], contiguous. A query that sees no key gets zeros.
// shapes: q [batch, queries, heads, head_size]; k, v [batch, keys, kv_heads, head_size]; kv_heads divides
// heads, and head h uses key head h / (heads / kv_heads). Strides: any, without a copy while the last axis
// has stride 1. dtypes: f32, f64. errors: ShapeError when sizes do not fit; ValueError for dropout outside
// [0, 1) or a scale that is not finite; DtypeError; DeviceError. grad: for q, k and v; P is recomputed from
// the saved log-sum-exp of each row.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});

// The same for q, k and v side by side in the rows of one projection; the result is [batch, time, dim].
// shapes: qkv [batch, time, 3 dim]: columns 0..dim-1 are q, then k, then v; head j owns columns j d .. (j+1)
// d - 1 of each, d = dim / heads. dtypes, errors: as attention. grad: written once, as one [batch, time, 3
// dim] tensor.
Tensor attention_packed(const Tensor& qkv, std::int64_t heads, const AttentionOptions& options = {});

// The same function as `attention` from plain loops that store all probabilities: the one to compare with and
// to read. grad: for q, k and v. Runs on the CPU only.
Tensor attention_composed(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options = {});

namespace detail {
// Checks what all forms share. errors: see attention.
void check_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionOptions& options);
// The factor of the scores.
double attention_scale(const AttentionOptions& options, std::int64_t head_size);
// A probability is dropped when the upper 24 bits of its word lie below this; 0 drops nothing.
std::uint32_t attention_drop_below(const AttentionOptions& options);
}  // namespace detail

// Elements between neighbours of an axis; the last axis has stride 1.
struct AttentionStrides {
  std::int64_t batch, time, head;
};

// Sizes are at least 1. Of `dtype`: q, k, v, output [batch, queries, heads, head_size] and log_sum [batch,
// heads, queries], the logarithm of each row's sum of exponentials, -infinity for a query that sees no key.
struct AttentionArgs {
  Dtype dtype;
  bool causal;
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
  double scale;
  std::uint32_t drop_below;
  double keep_scale;  // 1 / (1 - dropout)
  RandomKey dropout_key;
  const void *q, *k, *v;
  AttentionStrides q_strides, k_strides, v_strides;
  void *output, *log_sum;
  // The CPU's working memory: `threads` times attention_scratch(head_size).elements. Null on other devices.
  void* scratch;
  int threads;
};
// Writes dq, dk, dv, each with its own strides; a null one is not wanted. doutput is contiguous.
struct AttentionBackwardArgs {
  AttentionArgs forward;
  const void* doutput;
  void *dq, *dk, *dv;
  AttentionStrides dq_strides, dk_strides, dv_strides;
};
extern Slot<AttentionArgs> attention_forward_slot;
extern Slot<AttentionBackwardArgs> attention_backward_slot;

// Tiles of the CPU kernels; sizes measured at head_size 64 on a Xeon with 48 KiB L1 and 2 MiB L2.
inline constexpr std::int64_t kAttentionQueryTile = 48;
inline constexpr std::int64_t kAttentionKeyTile = 256;
// Query rows of one forward work item.
inline constexpr std::int64_t kAttentionForwardRows = 512;

// Where one thread's working memory has what, in elements from its start; every part is 64-byte aligned.
struct AttentionScratch {
  std::int64_t row;        // head_size rounded up to whole vectors
  std::int64_t score_row;  // a row of a score tile: an odd number of cache lines, so that columns spread over
                           // cache sets
  std::int64_t keys_t, values_t, keys, values, dkeys, dvalues;  // of one key tile; _t is transposed
  std::int64_t q, doutput, output;                              // of one query tile
  std::int64_t scores, dscores, keep;
  std::int64_t sums;  // of the rows of a forward work item
  std::int64_t elements;
};
EDDY_INLINE AttentionScratch attention_scratch(std::int64_t head_size) {
  AttentionScratch s{};
  s.row = (head_size + 15) / 16 * 16;
  s.score_row = kAttentionKeyTile + 16;
  const std::int64_t key_part = (kAttentionKeyTile + 16) * s.row, query_part = kAttentionQueryTile * s.row;
  const std::int64_t score_part = kAttentionQueryTile * s.score_row;
  std::int64_t next = 0;
  const auto take = [&next](std::int64_t elements) {
    const std::int64_t at = next;
    next += elements;
    return at;
  };
  s.keys_t = take(key_part);
  s.values_t = s.values = take(key_part);  // forward needs the values as they are, backward transposed
  s.keys = take(key_part);
  s.dkeys = take(key_part);
  s.dvalues = take(key_part);
  s.q = take(query_part);
  s.doutput = take(query_part);
  s.output = take(query_part);
  s.scores = take(score_part);
  s.dscores = take(score_part);
  s.keep = take(kAttentionKeyTile + 128);
  s.sums = take(kAttentionForwardRows);
  s.elements = next;
  return s;
}

struct OpSpec;
std::vector<OpSpec> attention_specs();

}  // namespace eddy
