// Keys and values of a layer's tokens and of the tokens before them (the past).
//
//   | past_k, past_v | k, v |      one sequence of rows in two tensors, or all rows in k, v
//
// Where attention reads the past from a separate tensor nothing is copied. Elsewhere with_past concatenates the rows
// once, for all who attend to them.
#pragma once

#include <cstdint>

#include "ops/attention/attention.h"

namespace eddy {

struct KeysValues {
  Tensor k, v;                // [batch, rows, heads, head_dim]
  Tensor past_k{}, past_v{};  // the rows before them; undefined when k and v hold all rows

  // These rows, which must have no past yet, after earlier rows, which may be undefined.
  KeysValues with_past(const Tensor& before_k, const Tensor& before_v) const;
  // The number of rows, the past included.
  std::int64_t rows() const { return (past_k.defined() ? past_k.dim(1) : 0) + k.dim(1); }
  // The rows [first, first + count), the past included.
  KeysValues slice(std::int64_t first, std::int64_t count) const;
};

// Attention of q to all rows: attention, or with `literal` attention_bthd_composed (products and a softmax).
Tensor attend(const Tensor& q, const KeysValues& keys_values, AttentionOptions options, bool literal);

// The matrices [heads head_dim, dim] of queries, keys and values.
struct AttentionWeights {
  Tensor query, key, value;
};
// Returns attention of rows x to themselves and to the rows `past` before them: of the queries x Wq^T to the keys and
// values of {past, x}. On a GPU one product makes the queries, keys and values of x and one those of the past, which
// attention reads in place.
// shapes: x [batch, time, dim]; past [batch, p, dim] or undefined; result [batch, time, heads head_dim].
// dtypes: as attention_bthd.
// errors: those of linear and attention_bthd.
// grad: x, the past, the weights, and the tables of the options.
Tensor self_attention(const Tensor& x, const Tensor& past, const AttentionWeights& weights,
                      std::int64_t heads, const AttentionOptions& options);

}  // namespace eddy
