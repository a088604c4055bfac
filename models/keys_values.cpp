// Keys and values in two tensors or in one.
#include "models/keys_values.h"

#include <algorithm>

#include "ops/views/views.h"

namespace eddy {

KeysValues KeysValues::with_past(const Tensor& before_k, const Tensor& before_v) const {
  if (!before_k.defined()) return *this;
  if (attention_reads_past(k.device())) return {k, v, before_k, before_v};
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
  return literal ? attention_composed(q, keys_values.k, keys_values.v, options)
                 : attention(q, keys_values.k, keys_values.v, options);
}

}  // namespace eddy
