// Draws one token from logits l: softmax at a temperature, restricted to the most probable tokens.
//
//   p_i = exp((l_i - max l) / temperature) / sum
//   keep the top_k largest p
//   of these keep the fewest, largest first, whose sum reaches top_p of theirs
//   draw from what is left
//
// Draws are counter-based: the token drawn at a position depends on (seed, position), not on earlier draws.
// Source of top-p: Holtzman et al., "The Curious Case of Neural Text Degeneration" (2020), section 3.1.
#pragma once

#include <cstdint>

namespace eddy {

struct SampleOptions {
  double temperature = 1.0;  // 0: the most probable token
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;        // in (0, 1]; 1: all
  std::uint64_t seed = 1337;
};

// Checks the options.
// errors: ValueError for a temperature that is negative or not finite, a negative top_k, a top_p outside
// (0, 1].
void validate(const SampleOptions& options);

// The index drawn from `count` logits for a position in a sequence. Of equal logits the lower index ranks
// first, in the greedy choice and in both restrictions. Arithmetic is f64.
// errors: as validate; ValueError when there are no logits or more than an i32 can number; NonFiniteError
// naming the first logit that is a NaN or infinite.
std::int32_t sample_token(const float* logits, std::int64_t count, const SampleOptions& options,
                          std::uint64_t position);

}  // namespace eddy
