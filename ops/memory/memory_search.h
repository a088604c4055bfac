// The search in an external memory of keys and values: for every query the `topk` entries whose keys agree
// with it best, by dot product.
// source: Y. Wu et al., "Memorizing Transformers", 2022; the search by buckets is that of D. Hutchins et
// al.'s code ("Block-Recurrent Transformers", 2022), which has no exact one.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// exact: the best topk of all entries, in the order of the memory; of equal ones those that lie in front.
// bucket: entry m is in bucket m mod topk, and place b gets the best of bucket b, with weights
// softmax(1e6 score) over the bucket: equal ones are averaged.
enum class MemorySearch { bucket, exact };

// The pairs taken, [batch, time, topk, heads, head_dim] each; zeros at places for which there is no entry.
struct TakenPairs {
  Tensor keys, values;
};

// For every query and head, pairs of the entries that agree with it best. An entry whose key is zero is
// empty: it comes after all others, and what lies behind the last entry that is not empty is not taken.
// shapes: q [batch, time, heads, head_dim]; keys, values [batch, size, heads, head_dim]; what is not
// row-major is copied once. A score that is NaN is above all others: exact takes its entry, and the pair of
// its bucket is NaN. 1 <= topk <= size.
// dtypes: f32, f64, bf16; one for all.
// errors: ShapeError, DtypeError, DeviceError; ValueError for topk.
// grad: none; which entries are taken, and the entries, are constants.
TakenPairs memory_search(const Tensor& q, const Tensor& keys, const Tensor& values, std::int64_t topk,
                         MemorySearch search);

// Which entries of a memory are empty, and one more than the last that is not.
struct MemoryMarkArgs {
  Dtype dtype;
  std::int64_t batch, size, heads, head_dim;
  const void* keys;     // [batch, size, heads, head_dim]
  std::uint8_t* blank;  // [batch, heads, size]: 1 for an empty one
  std::int32_t* ends;   // [batch, heads]
};
extern Slot<MemoryMarkArgs> memory_mark_slot;

// Takes pairs for some queries of one head of one sequence. Entry m of `keys` and `values` begins at m *
// stride; place p of query r of `taken_*` at (r * topk + p) * stride.
struct MemoryTakeArgs {
  Dtype dtype;
  bool exact;
  std::int64_t queries, topk, head_dim, stride;
  const void* scores;  // [queries, score_stride], of which *end count
  std::int64_t score_stride;
  const std::uint8_t* blank;
  const std::int32_t* end;
  const void *keys, *values;
  void *taken_keys, *taken_values;
  std::int32_t* chosen;  // [queries, topk]: working memory
  float* best;           // [queries, topk, 2]: likewise
};
extern Slot<MemoryTakeArgs> memory_take_slot;

// The weight of an entry whose score is below its bucket's best by `gap` is exp(-kMemorySharpness gap); where
// that is less than exp(-kMemoryForgotten) it is lost in rounding, and counts as 0.
inline constexpr double kMemorySharpness = 1e6, kMemoryForgotten = 60;
// The score of an empty entry.
inline constexpr double kMemoryBlankScore = -1e6;

struct OpSpec;
std::vector<OpSpec> memory_search_specs();

}  // namespace eddy
