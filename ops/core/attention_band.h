// Which keys a query sees, in the terms of attention and softmax.
#pragma once

#include <cstdint>

namespace eddy {

// By distance = (position of the query) - (position of the key). The last query and the last key stand at the
// same position: query j of Q and key t of K have distance j + (K - Q) - t, so that a block of queries behind
// cached keys needs no offset of its own. One n positions earlier has it added to both: least + n, most + n.
struct AttentionBand {
  static constexpr std::int64_t kFar = std::int64_t{1} << 40;
  std::int64_t least = -kFar;  // 0: causal; 1: causal without the token itself
  std::int64_t most = kFar;    // W: no further back than W positions
};

// The band without the keys behind the query, where `causal`.
inline AttentionBand cut_band(AttentionBand band, bool causal) {
  if (causal && band.least < 0) band.least = 0;
  return band;
}

}  // namespace eddy
