// Scaled dot-product attention in blocks of queries and keys, in two layouts:
//
//   y = dropout(softmax(scale q k^T)) v
//
//   attention_bthd                  [batch, time, heads, size], as a projection's rows give it; all options
//   scaled_dot_product_attention    [batch, heads, time, size], as PyTorch's function of that name
//
// The score matrix is never stored, so memory grows linearly with the length, not with its square.
//
// Source: A. Vaswani et al., Attention is all you need, 2017. Online softmax: M. Milakov, N. Gimelshein,
// 2018. Blocked forward and recomputing backward: T. Dao et al., FlashAttention, 2022.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/core/attention_band.h"
#include "ops/core/matmul_precision.h"
#include "ops/core/slot.h"
#include "tensor/base/dtype.h"
#include "tensor/random/philox.h"
#include "tensor/tensor.h"

namespace eddy {

// Options of the scores:
//
//   score(j, t) = scale * head_scale[h] * (q_j . k_t + q_j . positions[distance] + bias[h, distance])
struct AttentionOptions {
  bool causal = false;  // hides the keys after the query, like band.least = 0
  AttentionBand band;   // the distances that are visible
  double scale = 0;     // of the scores; 0 stands for 1 / sqrt(head_size)
  // Cosine attention: first each vector of q and k is scaled to length 1, as by unit_norm with this eps.
  // Past keys are unit vectors already. Only for attention_bthd.
  std::optional<double> unit_eps;
  double dropout = 0;  // rate: this share of probabilities becomes 0, the rest is divided by 1 - dropout
  RandomKey
      dropout_key;  // dropout needs one; probability ((b heads + h) queries + j) keys + t takes the word of that number
  // Optional differentiable tables. bias and positions need band.least >= 0 (or causal), and an entry for
  // each distance of a visible pair.
  Tensor head_scale;  // [heads]
  Tensor bias;        // [heads, distances]: T5's relative bias, one entry for each distance, not bucket
  Tensor positions;   // [distances, head_size]: relative key positions, shared by all heads (P. Shaw et al.,
                      // 2018)
  // Optional (both or neither) and differentiable: keys and values that precede k and v, [batch, past,
  // kv_heads, head_size]. The result is as for the concatenated keys {past_keys, k} and values; `keys` above
  // and below counts all of them. A GPU reads both in place; the CPU concatenates them first.
  Tensor past_keys, past_values;
  // To what products may round f32 factors, on a GPU where its kernels do (ops/core/kernel_choices.h, tf32_attention);
  // if parameters among the inputs have a coarser one, they take theirs.
  MatmulPrecision precision = MatmulPrecision::f32;
};

// Returns attention in the layout [batch, time, heads, size]: the output [batch, queries, heads, head_size],
// contiguous; zeros for a query that sees no key.
// shapes: q [batch, queries, heads, head_size]; k, v [batch, keys, kv_heads, head_size]; kv_heads divides
// heads, and head h uses key head h / (heads / kv_heads). Any strides; a tensor is copied only if its last
// axis has a stride other than 1; with unit_eps, q and k become new tensors.
// dtypes: f32, f64, bf16; with bf16 the tables are f32.
// errors: ShapeError if sizes do not match; ValueError for dropout outside [0, 1) or without a key, a scale that is
// not finite, unit_eps below 0 or not finite, a table without an entry for a visible distance, or past keys
// without past values; DtypeError; DeviceError.
// grad: for q, k, v, the past, head_scale, bias and positions; the probabilities are recomputed from the
// saved log-sum-exp of each row. A query that sees a single key gives exactly 0 to all but v.
Tensor attention_bthd(const Tensor& q, const Tensor& k, const Tensor& v,
                      const AttentionOptions& options = {});

// Options of scaled_dot_product_attention, with the names and the defaults of PyTorch's arguments.
struct ScaledDotProductAttentionOptions {
  // Broadcasts to [batch, heads, queries, keys]. u8: 1 = the key takes part; of q's dtype: added to the scores, and
  // differentiable. Stores all probabilities.
  Tensor attn_mask = {};
  double dropout_p = 0;  // rate: this share of probabilities becomes 0, the rest is divided by 1 - dropout_p
  bool is_causal = false;                     // query j sees the keys 0 .. j, however many there are
  std::optional<double> scale = {};           // of the scores; none stands for 1 / sqrt(head_size)
  bool enable_gqa = false;                    // k and v may have fewer heads than q
  std::optional<RandomKey> dropout_key = {};  // as in AttentionOptions; none: as dropout(x, p) without one
};

// Returns attention in PyTorch's layout [batch, heads, time, size]: the output [batch, heads, queries, head_size];
// zeros for a query that sees no key. Without attn_mask views alone change the layout: the numbers are those of
// attention_bthd to the bit, and the output is a view of its output.
// shapes: q [batch, heads, queries, head_size]; k, v [batch, kv_heads, keys, head_size], kv_heads being heads, or with
// enable_gqa a divisor of it. Any strides, as in attention_bthd.
// dtypes: f32, f64, bf16; beside bf16 attn_mask may be f32.
// errors: ShapeError if sizes do not match, or attn_mask does not broadcast; ValueError for dropout_p outside [0, 1),
// or without a key and a DropoutScope where a graph is recorded, a scale that is 0 or not finite, or attn_mask with
// is_causal; DtypeError; DeviceError.
// grad: for q, k, v, and attn_mask of a floating dtype.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const ScaledDotProductAttentionOptions& options = {});

// Returns attention [batch, time, dim] for q, k and v side by side in the rows of one projection. Keys and
// values of earlier rows may be given as `past`, side by side too.
// shapes: qkv [batch, time, 3 dim]: columns 0 .. dim - 1 are q, then k, then v; head j has the columns
// j d .. (j + 1) d - 1 of each, d = dim / heads. past [batch, p, 2 dim]: keys, then values.
// dtypes: as attention_bthd.
// errors: as attention_bthd; ValueError for options with a past or unit_eps.
// grad: one [batch, time, 3 dim] tensor and one for the past, each written once on a GPU.
Tensor attention_packed(const Tensor& qkv, std::int64_t heads, const AttentionOptions& options = {},
                        const Tensor& past = {});

// Returns attention [batch, queries, dim] for keys and values side by side in rows; the rows of `past` come
// first. Of the options, the band, the scale and dropout apply. Where many short sequences lie side by side, as in
// block recurrences, each lane of the CPU's vectors takes one.
// shapes: q [batch, queries, dim]; past [batch, p, 2 dim] or undefined; own [batch, rows, 2 dim]: columns
// 0 .. dim - 1 are keys, then values, with heads as in attention_packed.
// dtypes: as attention_bthd.
// errors: as attention_bthd; ValueError for options with tensors or unit_eps.
// grad: for q, past and own; those of past and own are written once each.
Tensor attention_packed_keys(const Tensor& q, const Tensor& past, const Tensor& own, std::int64_t heads,
                             const AttentionOptions& options = {});

namespace detail {
// Returns the same as `attention_bthd`, but stores all probabilities: the form to read first and to compare with.
// Runs on the CPU only.
// grad: as attention_bthd.
Tensor attention_bthd_composed(const Tensor& q, const Tensor& k, const Tensor& v,
                               const AttentionOptions& options = {});

// For those who look inside a run, since the kernels never store them (attention_reference.cpp):
//
// Returns the probabilities [batch, heads, queries, keys] of `attention_bthd` on the CPU, before dropout; keys are
// those of the past and k. A row sums to 1, or is 0 for a query that sees no key. They are computed in f64.
// shapes, options: those of attention_bthd; dropout and past_values are not read.
// dtypes: as q; f32 for bf16.
Tensor attention_probabilities(const Tensor& q, const Tensor& k, const AttentionOptions& options);

// Whether attention on this device reads past keys in place. If not, a caller that attends to the same keys
// several times should concatenate them once.
bool attention_reads_past(const Device& device);
// Whether the options have past keys or values.
bool has_past(const AttentionOptions& options);
// Keys and values with the past in front of them, and the options without the past.
struct ConcatenatedPast {
  Tensor k, v;
  AttentionOptions options;
};
// Concatenates the past with k and v, on the tape; does nothing without a past.
// errors: those of attention_bthd for past keys and values.
std::optional<ConcatenatedPast> concat_past(const char* op, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options);
// The options for q and k that are unit vectors already.
AttentionOptions without_unit(AttentionOptions options);
// The options with bf16 tables cast to f32, because no kernel reads bf16 tables.
AttentionOptions with_upcast_tables(AttentionOptions options);
// The options with past keys and values, which must be of q's kind, cast like q.
AttentionOptions with_wide_past(const char* op, const Tensor& q, AttentionOptions options);
// The checks that all forms of attention share.
// errors: those of attention_bthd, naming `op`.
void check_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionOptions& options);
// The checks of dropout, scale and band.
// errors: ValueError, naming `op`.
void check_numbers(const char* op, const AttentionOptions& options);
// The checks of q and of keys and values side by side in rows, `past` (which may be undefined) and `own`.
// errors: ShapeError, DtypeError and DeviceError, naming `op`.
void check_packed_keys(const char* op, const Tensor& q, const Tensor& past, const Tensor& own,
                       std::int64_t heads);
// The check of keys and values side by side in rows, beside queries [batch, rows, dim] of the kind of `like`.
// errors: ShapeError, DtypeError and DeviceError, naming `op`.
void check_packed_rows(const char* op, const Tensor& like, const char* name, const Tensor& rows,
                       const Shape& queries);
// errors: ValueError for options with unit_eps, which only `attention_bthd` takes.
void refuse_unit(const char* op, const AttentionOptions& options);
// x, or a copy whose last axis has stride 1.
Tensor readable(const Tensor& x);
// The visible distances: the band, limited by `causal`.
AttentionBand attention_band(const AttentionOptions& options);
// The factor of the scores.
double attention_scale(const AttentionOptions& options, std::int64_t head_size);
// A probability is dropped if the upper 24 bits of its word are below this; 0 drops nothing.
std::uint32_t attention_drop_below(const AttentionOptions& options);

// Elements between neighbours of an axis; the last axis has stride 1.
struct AttentionStrides {
  std::int64_t batch, time, head;
};

// Sizes are at least 1, and at least one pair is visible.
//   output    [batch, queries, heads, head_size]; of `dtype`, like q, k, v
//   log_sum   [batch, heads, queries], the logarithm of each row's sum of exponentials, -infinity for a query
//             that sees no key; of `dtype`, but f32 with bf16, like the tables and their gradients
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
  // The first `past` keys and values are in past_k and past_v; on the CPU past is 0 but for narrow heads. k and v, and
  // their gradients, point `past` rows before their first row, so that one index counts all keys; their rows below
  // `past` are never read or written.
  std::int64_t past;
  const void *past_k, *past_v;
  AttentionStrides past_k_strides, past_v_strides;
  // Tables; null when absent. With bias or positions least is at least 0.
  const void* head_scale;                      // [heads]
  const void *bias, *positions;                // [heads, distances], [distances, head_size]
  std::int64_t bias_stride, positions_stride;  // between rows
  std::int64_t distances;                      // entries of the tables that can be used: the first most + 1
  void *output, *log_sum;
  // Working memory. On the CPU attention_scratch.h describes it: one shared part, then one part for each of
  // `threads`. Other devices need it only for the backward; attention_partials.h describes it.
  void* scratch;
  int threads;
  MatmulPrecision precision;  // of products of f32
};
// Writes dq, dk, dv and the gradients of the past, each with its own strides. Adds to the first `distances`
// entries of dbias and dpositions, with their row strides. A null gradient is not needed. For dhead_scale:
//
//   dhead_scale = head_scale_beta * dhead_scale + its gradient      (not read if head_scale_beta is 0)
//
// On the CPU dbias [heads, *] and dpositions [*, head_size] are the gradients themselves. On other devices they
// are partial tables, one for each run of sequences and head (ops/attention/attention_partials.h), whose sum
// over runs, for positions also over heads, is the gradient: dbias [runs, heads, *] and dpositions [runs,
// heads, *, head_size], contiguous. Calls with as many runs that share a table add to the same parts.
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
  std::int64_t dpositions_part;  // between partial tables of positions; not used on the CPU
  // The factors r of unit_norm with which q and the own keys became unit vectors, [batch, queries, heads]
  // and [batch, keys - past, kv_heads], f32; null if they did not, as always on the CPU. Then q and k are
  // contiguous, and dq and dk are the gradients of the vectors before:
  //
  //   dx = r (dy - y sum(dy y))
  const float *q_unit, *k_unit;
};
extern Slot<AttentionArgs> attention_forward_slot;
extern Slot<AttentionBackwardArgs> attention_backward_slot;
}  // namespace detail

}  // namespace eddy
