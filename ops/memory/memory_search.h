// Search in an external memory of keys and values. For each query it finds the `topk` entries whose keys have
// the largest dot products with the query.
//
// Source: Y. Wu et al., "Memorizing Transformers", 2022. The search by buckets is from the published code of
// D. Hutchins et al. ("Block-Recurrent Transformers", 2022), which has no exact search.
#pragma once

#include <cstdint>

#include "ops/core/matmul_precision.h"
#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// How entries are chosen.
//   exact    the topk best of all entries, in the order of the memory; among equal scores, the first entries
//   bucket   entry m is in bucket m mod topk, and result b is the best entry of bucket b. More exactly, it is
//            the mean of the bucket with weights softmax(1e6 score): entries with equal scores are averaged
enum class MemorySearch { bucket, exact };

// The keys and values found, [batch, time, topk, heads, head_dim] each; zeros where there is no entry.
struct MemoryMatches {
  Tensor keys, values;  // side by side, best first with `exact`
};

// Returns the best entries for each query and head. An entry whose key is zero is empty: it ranks below all
// others, and entries after the last nonempty one are never returned. A NaN score ranks above all others:
// `exact` returns its entry; with `bucket` the result of its bucket is NaN.
// shapes: q [batch, time, heads, head_dim]; keys, values [batch, size, heads, head_dim]; 1 <= topk <= size.
// Tensors that are not row-major are copied.
// dtypes: f32, f64, bf16; one for all.
// precision: of the scores.
// errors: ShapeError, DtypeError, DeviceError; ValueError for topk.
// grad: none; the entries and their choice are constants.
MemoryMatches memory_search(const Tensor& q, const Tensor& keys, const Tensor& values, std::int64_t topk,
                            MemorySearch search, MatmulPrecision precision = MatmulPrecision::f32);

namespace detail {
// Marks the empty entries of a memory, and finds one past the last that is not empty.
struct MemoryMarkArgs {
  Dtype dtype;
  std::int64_t batch, size, heads, head_dim;
  const void* keys;     // [batch, size, heads, head_dim]
  std::uint8_t* blank;  // [batch, heads, size]: 1 for an empty entry
  std::int32_t* ends;   // [batch, heads]
};
extern Slot<MemoryMarkArgs> memory_mark_slot;

// Copies the best entries for some queries of one head of one sequence. Entry m of `keys` and `values` begins
// at m * stride; result p of query r begins at (r * topk + p) * stride of `taken_*`.
struct MemoryTakeArgs {
  Dtype dtype;
  bool exact;
  std::int64_t queries, topk, head_dim, stride;
  const void* scores;  // [queries, score_stride]; the first *end of a row are used
  std::int64_t score_stride;
  const std::uint8_t* blank;
  const std::int32_t* end;
  const void *keys, *values;
  void *taken_keys, *taken_values;
  std::int32_t* chosen;  // [queries, topk]: working memory
  float* best;           // [queries, topk, 2]: working memory
};
extern Slot<MemoryTakeArgs> memory_take_slot;

// An entry whose score is `gap` below the best of its bucket has weight exp(-kMemorySharpness gap). A weight
// below exp(-kMemoryNegligible) is lost in rounding and counts as 0.
inline constexpr double kMemorySharpness = 1e6;
inline constexpr double kMemoryNegligible = 60;
// The score of an empty entry.
inline constexpr double kMemoryEmptyScore = -1e6;
}  // namespace detail

}  // namespace eddy
