// Keys and values of a layer's tokens and of the tokens before them (the past).
//
//   | past_k, past_v | k, v |      one sequence of rows in two tensors, or all rows in k, v
//
// If attention can read the past from a separate tensor (attention_reads_past), nothing is copied. Otherwise
// with_past concatenates the rows once, for all who attend to them.
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

// Attention of q to all rows: attention, or with `literal` attention_composed (products and a softmax).
Tensor attend(const Tensor& q, const KeysValues& keys_values, AttentionOptions options, bool literal);

}  // namespace eddy
