// Keys and values of a layer's tokens, with those of the tokens before them.
//
// Where attention reads a past where it lies, nothing is joined: what is remembered stays in one place and
// the layer's own rows in another. Elsewhere the rows are joined once for all who attend to them.
#pragma once

#include <cstdint>

#include "ops/attention/attention.h"

namespace eddy {

struct KeysValues {
  Tensor k, v;                // [batch, rows, heads, head_dim]
  Tensor past_k{}, past_v{};  // the rows before them; undefined when none lie apart

  // These rows, which have none apart yet, after earlier ones, which may be undefined.
  KeysValues after(const Tensor& before_k, const Tensor& before_v) const;
  std::int64_t rows() const;  // of both places
  // `count` rows from number `first` on, of both places.
  KeysValues part(std::int64_t first, std::int64_t count) const;
};

// attention, or with `literal` attention_composed, to all rows.
Tensor attend(const Tensor& q, const KeysValues& to, AttentionOptions options, bool literal);

}  // namespace eddy
