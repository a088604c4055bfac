// Dropout without a key of the caller's own.
#include "models/dropout_site.h"

#include <optional>

namespace eddy {

Tensor dropout(const Tensor& x, double p) {
  if (p == 0 && !detail::random_calls.given) return x;
  const std::optional<RandomKey> key = detail::next_call_key("dropout");
  const bool wrong = !(p >= 0 && p < 1);  // refused by the op, in evaluation too
  return dropout(x, key || wrong ? p : 0.0, key.value_or(RandomKey{}));
}

}  // namespace eddy
