// Unbiased random integers below a bound. The result is a pure function of (key, element, bound). The first
// 2^64 mod bound values are rejected, because `word % bound` would favour small results. A rejected value is
// replaced by one far away in the same stream, not by the value of the next element.
#pragma once

#include <cstdint>

#include "tensor/random/philox.h"

namespace eddy {

// Returns a uniform integer in [0, bound). bound must be > 0 and element < 2^48.
inline std::uint64_t uniform_below(const RandomKey& key, std::uint64_t element, std::uint64_t bound) {
  const std::uint64_t rejected = (0 - bound) % bound;  // 2^64 mod bound
  for (std::uint64_t attempt = 0;; ++attempt) {
    const Philox4 words = key.words(element | (attempt << 48));
    for (int half = 0; half < 4; half += 2) {
      const std::uint64_t candidate =
          (static_cast<std::uint64_t>(words.word[half + 1]) << 32) | words.word[half];
      if (candidate >= rejected) return candidate % bound;
    }
  }
}

}  // namespace eddy
