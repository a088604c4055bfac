// Tokens for language modelling: splitting, random training batches and validation windows. A window has
// `sequence` inputs; its targets are the tokens one place later:
//
//   inputs    t[w] ... t[w + sequence - 1]
//   targets   t[w + 1] ... t[w + sequence]
#pragma once

#include <cstdint>
#include <span>

namespace eddy::training {

// How many of `length` tokens are for training: floor(train_fraction * length).
// errors: ValueError unless 0 < train_fraction < 1, or when a split has fewer than sequence + 1 tokens.
std::int64_t training_part(std::int64_t length, double train_fraction, std::int64_t sequence);

// Returns floor(fraction * all): how many of all tokens, files or rows a part has.
std::int64_t part_of(double fraction, std::int64_t all);

// Fills inputs and targets, both [batch, sequence], with windows that start at independent, uniformly drawn
// positions of `tokens`. The draw for row r is a pure function of (seed, step, micro * batch + r): a resumed
// run sees the same order, and a step of 2 micro-batches of 8 rows sees the same windows as one of 16.
// errors: ValueError when a size is not positive or tokens has fewer than sequence + 1 entries.
void sample_batch(std::span<const std::int32_t> tokens, std::uint64_t seed, std::uint64_t step,
                  std::uint64_t micro, std::int64_t batch, std::int64_t sequence, std::int32_t* inputs,
                  std::int32_t* targets);

// The number of non-overlapping windows: floor((tokens - 1) / sequence), 0 for an empty split.
// errors: ValueError when sequence < 1.
std::int64_t window_count(std::int64_t tokens, std::int64_t sequence);

// Fills inputs and targets, both [windows, sequence], with the windows first .. first + windows - 1. Window w
// starts at token w * sequence.
// errors: ValueError when they are not all among the window_count windows of `tokens`.
void read_windows(std::span<const std::int32_t> tokens, std::int64_t sequence, std::int64_t first,
                  std::int64_t windows, std::int32_t* inputs, std::int32_t* targets);

}  // namespace eddy::training
