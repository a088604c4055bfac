// Keys and values in two tensors or in one.
#include "ops/attention/keys_values.h"

#include <algorithm>

#include "ops/product/linear.h"
#include "ops/views/views.h"

namespace eddy {

KeysValues KeysValues::with_past(const Tensor& before_k, const Tensor& before_v) const {
  if (!before_k.defined()) return *this;
  if (detail::attention_reads_past(k.device())) return {k, v, before_k, before_v};
  return {concat({before_k, k}, 1), concat({before_v, v}, 1)};
}

KeysValues KeysValues::slice(std::int64_t first, std::int64_t count) const {
  const std::int64_t past = rows() - k.dim(1), before = std::clamp<std::int64_t>(past - first, 0, count),
                     own = std::max<std::int64_t>(first - past, 0);
  KeysValues result{narrow(k, 1, own, count - before), narrow(v, 1, own, count - before)};
  if (before == 0) return result;
  result.past_k = narrow(past_k, 1, first, before);
  result.past_v = narrow(past_v, 1, first, before);
  return result;
}

Tensor attend(const Tensor& q, const KeysValues& keys_values, AttentionOptions options, bool literal) {
  options.past_keys = keys_values.past_k;
  options.past_values = keys_values.past_v;
  return literal ? detail::attention_bthd_composed(q, keys_values.k, keys_values.v, options)
                 : attention_bthd(q, keys_values.k, keys_values.v, options);
}

Tensor self_attention(const Tensor& x, const Tensor& past, const AttentionWeights& weights,
                      std::int64_t heads, const AttentionOptions& options) {
  const auto& [query, key, value] = weights;
  if (detail::attention_reads_past(x.device())) {
    const Tensor past_rows = past.defined() ? linear(past, {key, value}) : Tensor();
    return attention_packed(linear(x, {query, key, value}), heads, options, past_rows);
  }
  // attention_packed would have to split the rows.
  const Tensor context = past.defined() ? concat({past, x}, 1) : x;
  const auto by_head = [heads](const Tensor& rows) {
    return reshape(rows, {rows.dim(0), rows.dim(1), heads, rows.dim(2) / heads});
  };
  const Tensor keys = by_head(linear(context, key)), values = by_head(linear(context, value)),
               y = attention_bthd(by_head(linear(x, query)), keys, values, options);
  return reshape(y, {x.dim(0), x.dim(1), query.dim(0)});
}

}  // namespace eddy
