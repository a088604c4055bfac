// Scaled dot-product attention, y = dropout(softmax(scale q k^T)) v, in blocks of queries and keys: the score
// matrix is never stored, so memory grows with the length and not with its square.
// source: A. Vaswani et al., Attention is all you need, 2017; online softmax: M. Milakov, N. Gimelshein,
// 2018; blocked forward and recomputing backward: T. Dao et al., FlashAttention, 2022.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/core/attention_band.h"
#include "ops/core/slot.h"
#include "tensor/base/dtype.h"
#include "tensor/random/philox.h"
#include "tensor/tensor.h"

namespace eddy {

// score(j, t) = scale * head_scale[h] * (q_j . k_t + q_j . positions[distance] + bias[h, distance])
struct AttentionOptions {
  bool causal = false;  // the same as band.least = 0
  AttentionBand band;
  double scale = 0;       // of the scores; 0 stands for 1 / sqrt(head_size)
  double dropout = 0;     // the share of probabilities set to 0; the others are divided by 1 - dropout
  RandomKey dropout_key;  // names the draws; probability ((b heads + h) queries + j) keys + t takes the word
                          // of that number
  // Optional, differentiable. The tables need band.least >= 0 (or causal) and one row or column for every
  // distance that a visible pair has.
  Tensor head_scale;  // [heads]
  Tensor bias;        // [heads, distances]: of a distance, T5's relative bias with its buckets spread out
  Tensor positions;   // [distances, head_size]: relative key positions, shared by all heads (P. Shaw et al.,
                      // 2018)
  // Optional, both or neither, differentiable: keys and values from before k and v, [batch, past, kv_heads,
  // head_size]. They mean what the joined keys {past_keys, k} and values mean, and `keys` above and below
  // counts them. On a GPU both places are read as they lie; the CPU joins them first.
  Tensor past_keys, past_values;
};

// The mixed values, [batch, queries, heads, head_size], contiguous. A query that sees no key gets zeros.
// shapes: q [batch, queries, heads, head_size]; k, v [batch, keys, kv_heads, head_size]; kv_heads divides
// heads, and head h uses key head h / (heads / kv_heads). Strides: any, without a copy while the last axis
// has stride 1.
// dtypes: f32, f64, and bf16, beside which the tables are f32.
// errors: ShapeError when sizes do not fit; ValueError for dropout outside [0, 1), a scale that is not
// finite, a table without a row for a visible distance, or one half of a past; DtypeError; DeviceError.
// grad: for q, k, v, the past, head_scale, bias and positions; P is recomputed from the saved log-sum-exp of
// each row.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});

// The same for q, k and v side by side in the rows of one projection; the result is [batch, time, dim].
// shapes: qkv [batch, time, 3 dim]: columns 0..dim-1 are q, then k, then v; head j owns columns j d .. (j+1)
// d - 1 of each, d = dim / heads. dtypes, errors: as attention, and ValueError for a past.
// grad: written once, as one [batch, time, 3 dim] tensor.
Tensor attention_packed(const Tensor& qkv, std::int64_t heads, const AttentionOptions& options = {});

// The same for keys and values side by side in rows, and for those before them; the result is [batch,
// queries, dim].
// shapes: q [batch, queries, dim]; past [batch, p, 2 dim] or undefined, own [batch, rows, 2 dim]: columns
// 0..dim-1 are keys, then values, head j's as in attention_packed. Options: the band, the scale and dropout.
// dtypes, errors: as attention, and ValueError for options with tensors.
// grad: those of past and own are written once each.
Tensor attention_packed_keys(const Tensor& q, const Tensor& past, const Tensor& own, std::int64_t heads,
                             const AttentionOptions& options = {});

// The same function as `attention` from plain loops that store all probabilities: the one to compare with and
// to read.
// grad: for all that attention has one for. Runs on the CPU only.
Tensor attention_composed(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options = {});

// Whether attention on this device reads a past where it lies. Where it does not, who attends to the same
// keys more than once does well to join them once.
bool attention_reads_past(const Device& device);

namespace detail {
// A call's keys and values behind those of its past, and the options without it.
struct JoinedPast {
  Tensor k, v;
  AttentionOptions options;
};
// By `concat`; nothing without a past.
// errors: as attention's of a past.
std::optional<JoinedPast> join_past(const char* op, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options);
// The options with tables of f32 where they are bf16, which no kernel reads.
AttentionOptions with_wide_tables(AttentionOptions options);
// Checks what all forms share.
// errors: see attention.
void check_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionOptions& options);
// The visible distances: the band, cut by causal.
AttentionBand attention_band(const AttentionOptions& options);
// The factor of the scores.
double attention_scale(const AttentionOptions& options, std::int64_t head_size);
// A probability is dropped when the upper 24 bits of its word lie below this; 0 drops nothing.
std::uint32_t attention_drop_below(const AttentionOptions& options);
}  // namespace detail

// Elements between neighbours of an axis; the last axis has stride 1.
struct AttentionStrides {
  std::int64_t batch, time, head;
};

// Sizes are at least 1, and some pair is visible. Of `dtype`: q, k, v, output [batch, queries, heads,
// head_size]. Of `dtype` too, but f32 where it is bf16: log_sum [batch, heads, queries], the logarithm of
// each row's sum of exponentials, -infinity for a query that sees no key; the tables and their gradients.
struct AttentionArgs {
  Dtype dtype;
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
  std::int64_t least, most;  // the visible distances, 1 - queries <= least <= most <= keys - 1
  double scale;
  std::uint32_t drop_below;
  double keep_scale;  // 1 / (1 - dropout)
  RandomKey dropout_key;
  const void *q, *k, *v;
  AttentionStrides q_strides, k_strides, v_strides;
  // The first `past` of the keys and values lie here; 0 on the CPU. k and v, and their gradients, point
  // `past` rows before their first one, so that it has its number among all keys there: nothing is read or
  // written below number `past`.
  std::int64_t past;
  const void *past_k, *past_v;
  AttentionStrides past_k_strides, past_v_strides;
  // Tables; null when absent. With bias or positions least is at least 0.
  const void* head_scale;                      // [heads]
  const void *bias, *positions;                // [heads, distances], [distances, head_size]
  std::int64_t bias_stride, positions_stride;  // between rows
  std::int64_t distances;                      // the first entries of the tables that can be met: most + 1
  void *output, *log_sum;
  // The CPU's working memory, laid out by ops/attention/attention_scratch.h: what the threads share, then one part
  // for each of `threads`. On other devices that of the backward, laid out by ops/attention/attention_partials.h.
  void* scratch;
  int threads;
};
// Writes dq, dk, dv and those of the past, each with its own strides, and the first `distances` entries of
// dbias and dpositions, whose rows have strides of their own; dhead_scale = head_scale_beta * dhead_scale +
// its gradient, not read when beta is 0. A null one is not wanted.
struct AttentionBackwardArgs {
  Dtype dtype;
  AttentionArgs forward;
  const void* doutput;
  AttentionStrides doutput_strides;
  void *dq, *dk, *dv;
  AttentionStrides dq_strides, dk_strides, dv_strides;
  void *past_dk, *past_dv;
  AttentionStrides past_dk_strides, past_dv_strides;
  void *dhead_scale, *dbias, *dpositions;
  float head_scale_beta;
  std::int64_t dbias_stride, dpositions_stride;
};
extern Slot<AttentionArgs> attention_forward_slot;
extern Slot<AttentionBackwardArgs> attention_backward_slot;

struct OpSpec;
std::vector<OpSpec> attention_specs();

}  // namespace eddy
