// Band masks: in attention and softmax, a query sees the keys in a range of distances.
#pragma once

#include <cstdint>

namespace eddy {

// A query sees the keys at the distances least .. most, where
//
//   distance = (position of the query) - (position of the key)
//            = j + (K - Q) - t                                    query j of Q, key t of K
//
// The last query and the last key have the same position, so queries after cached keys need no offset. If the
// last query is n positions before the last key, use least + n and most + n.
struct AttentionBand {
  // Farther than any key.
  static constexpr std::int64_t kFar = std::int64_t{1} << 40;
  std::int64_t least = -kFar;  // 0: causal; 1: causal without the token itself
  std::int64_t most = kFar;    // W: at most W positions back
};

namespace detail {
// Returns the band without the keys after the query if `causal`, else the band.
inline AttentionBand apply_causal(AttentionBand band, bool causal) {
  if (causal && band.least < 0) band.least = 0;
  return band;
}
}  // namespace detail

}  // namespace eddy
