// Positions by distance as products beside attention: with P the table of positions, rounded to bf16,
//
//   scores            = q P^T       [heads, batch, queries, distances], bf16
//   dq               += ds P
//   dpositions       += ds^T q      ds: the gradients of the scores, in the same places
//
// by cuBLASLt. Attention reads the score of query i and key j at (i, i + offset - j), offset = keys - queries, and in
// the backward pass it writes ds there (cuda/attention/attention_distances.cuh). So no tile of attention multiplies a
// window of positions that overlaps the next tile's, and no kernel computes the scores again for dpositions.
//
// Work: 2 H operations a query and distance for each of the three products and for the scores of the backward pass.
// Bytes: 2 a query and distance. The products write the scores twice, forward and backward, and read ds twice; the
// kernels of attention read the scores three times and write ds once, and a causal call reads only half of a row.
// With 256 queries and keys, 8 heads and 32 sequences scores are 33.5 MB, as much as a second-level cache holds.
//
// To be measured: dpositions by runs of sequences, where one product of each head has few tiles and a long sum; the
// table rounded once a step.
//
// No CUDA header is needed to include this.
#pragma once

#include "cuda/runtime/context.h"
#include "ops/attention/attention.h"
#include "tensor/tensor.h"

namespace eddy::cuda {

// With fewer queries the launches of the products take longer than what they save.
inline constexpr std::int64_t kFewestProductQueries = 16;
// The most memory for the scores of a call, 256 MiB; a backward call takes as much again for their gradients.
inline constexpr std::int64_t kMostPositionBytes = std::int64_t{1} << 28;

// Numbers in a row of scores, one for each distance: a multiple of 8, of which those without a distance are 0.
inline std::int64_t position_row(const AttentionArgs& args) {
  return (args.distances + 7) / 8 * 8;
}

// The scores of a call, or their gradients.
struct PositionScores {
  bf16* data;        // [heads, batch, queries, row]
  std::int64_t row;  // position_row
};

// The products of a call. Its memory lives as long.
class PositionProducts {
 public:
  // Enqueues the rounding of the table and the scores. takes_position_products(args) must hold.
  explicit PositionProducts(const AttentionArgs& args);

  PositionScores scores() const { return {scores_.mutable_data<bf16>(), row_}; }
  // Returns memory for the gradients of the scores.
  Tensor gradients() const;
  // Adds to dq, where it is wanted, and to dpositions, the first of its partial tables.
  void add_gradients(const AttentionBackwardArgs& args, const Tensor& gradients) const;

 private:
  std::int64_t row_;
  Tensor table_;   // [row, head_size], bf16, zeros behind the last distance
  Tensor scores_;  // [heads, batch queries, row], bf16
};

}  // namespace eddy::cuda
