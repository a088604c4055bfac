// Choice of kernel, tiles and working memory of the CPU's attention: the layout of each thread's part and of what all
// threads share. Offsets and sizes are in elements; every part is 64-byte aligned.
#pragma once

#include "ops/attention/attention.h"
#include "ops/cpu/isa.h"

namespace eddy::detail {

// Query rows of the largest tile, and blocks of rows of the one with most of them (attention_products.h). Sizes
// measured at head_size 64 on a Xeon with 48 KiB L1 and 2 MiB L2.
inline constexpr std::int64_t kAttentionQueryTile = 64, kAttentionQueryBlocks = 8;
inline constexpr std::int64_t kAttentionKeyTile = 256;
// Query rows of one forward work item.
inline constexpr std::int64_t kAttentionForwardRows = 512;
// The gradient of positions is summed in parts over consecutive work items: one part for every 16 query rows,
// within these limits. More parts would keep more threads busy, but each is a whole table to zero and to add.
inline constexpr std::int64_t kAttentionLeastSums = 16, kAttentionMostSums = 64;

// Whether a CPU computes attention without tables for 16 queries side by side, and so reads past keys in place: heads
// of 4, 8 or 16 with AVX-512, in f32 (ops/attention/attention_narrow.h).
EDDY_INLINE bool attention_has_narrow_heads(Dtype dtype, std::int64_t queries, std::int64_t keys,
                                            std::int64_t head_size, MatmulPrecision precision) {
  constexpr std::int64_t kLeastQueries = 4;
  if (dtype != Dtype::f32 || (head_size != 4 && head_size != 8 && head_size != 16) ||
      queries < kLeastQueries || isa_level() < IsaLevel::avx512)
    return false;
  // Where products round, tiles are faster for heads of 16 from so many scores on (docs/choices.md). VDPBF16PS was not
  // compared.
  constexpr std::int64_t kLeastTileScores = 128 * 128;
  return !rounds_to_bf16(precision) ||
         (isa_level() == IsaLevel::amx && (head_size < 16 || queries * keys < kLeastTileScores));
}

// One thread's own part.
struct AttentionScratch {
  std::int64_t row;  // head_size rounded up to whole vectors
  // Row strides of a score tile (an odd number of cache lines, so that columns spread over cache sets) and of
  // a tile whose columns are distances.
  std::int64_t score_row, skew_row;
  std::int64_t keys_t, values_t, keys, values, dkeys, dvalues;  // of one key tile; _t is transposed
  std::int64_t q, doutput, output;                              // of one query tile
  std::int64_t scores, dscores, skewed, keep;
  // For factors in bf16: what products over rows read of q and doutput, and rows of rounded gradients.
  std::int64_t q_across, doutput_across, rounded, rounded_skewed;
  std::int64_t raw_scores;  // of one row
  std::int64_t sums;        // of the rows of a forward work item
  std::int64_t elements;
};

// What all threads share: the tables in the order of rising keys (column c is distance `distances` - 1 - c),
// and the partial sums of their gradients.
struct AttentionShared {
  std::int64_t positions_t;                  // packed by pack_transposed
  std::int64_t positions;                    // [distances, row]
  std::int64_t bias, bias_row;               // [heads, bias_row]
  std::int64_t dpositions, dpositions_part;  // [position_sums, dpositions_part]
  std::int64_t position_sums;
  std::int64_t dbias;        // [batch, heads, bias_row]
  std::int64_t dhead_scale;  // [batch, heads]
  std::int64_t elements;
};

struct AttentionParts {
  std::int64_t next = 0;
  EDDY_INLINE std::int64_t take(std::int64_t elements) {
    const std::int64_t at = next;
    next += (elements + 15) / 16 * 16;
    return at;
  }
};

EDDY_INLINE AttentionScratch attention_scratch(std::int64_t head_size) {
  AttentionScratch s{};
  s.row = (head_size + 15) / 16 * 16;
  s.score_row = kAttentionKeyTile + 16;
  // A tile covers the distances of its keys and queries, rounded to a whole vector and a whole register tile.
  s.skew_row = kAttentionKeyTile + kAttentionQueryTile + 64;
  const std::int64_t key_part = (kAttentionKeyTile + 16) * s.row, query_part = kAttentionQueryTile * s.row;
  const std::int64_t score_part = kAttentionQueryTile * s.score_row;
  AttentionParts parts;
  s.keys_t = parts.take(key_part);
  s.values_t = s.values = parts.take(key_part);  // forward needs the values as they are, backward transposed
  s.keys = parts.take(key_part);
  s.dkeys = parts.take(key_part);
  s.dvalues = parts.take(key_part);
  s.q = parts.take(query_part);
  s.doutput = parts.take(query_part);
  s.output = parts.take(query_part);
  s.scores = parts.take(score_part);
  s.dscores = parts.take(score_part);
  s.skewed = parts.take(kAttentionQueryTile * s.skew_row);
  s.q_across = parts.take(query_part);
  s.doutput_across = parts.take(query_part);
  s.rounded = parts.take(score_part);
  s.rounded_skewed = parts.take(kAttentionQueryTile * s.skew_row);
  s.keep = parts.take(kAttentionKeyTile + 128);
  s.raw_scores = parts.take(s.score_row);
  s.sums = parts.take(kAttentionForwardRows);
  s.elements = parts.next;
  return s;
}

// `gradient` is null for a forward call.
EDDY_INLINE AttentionShared attention_shared(const AttentionArgs& args,
                                             const AttentionBackwardArgs* gradient) {
  AttentionShared s{};
  const std::int64_t row = attention_scratch(args.head_size).row;
  s.bias_row = (args.distances + 31) / 16 * 16;  // a row may be read one vector past its end
  AttentionParts parts;
  if (args.positions != nullptr) {
    s.positions_t = parts.take((args.distances + 64) * row);
    if (gradient != nullptr) s.positions = parts.take((args.distances + 32) * row);
  }
  if (args.bias != nullptr) s.bias = parts.take(args.heads * s.bias_row);
  if (gradient != nullptr && gradient->dpositions != nullptr) {
    const std::int64_t items = args.batch * args.kv_heads;
    s.position_sums = args.batch * args.heads * args.queries / 16;
    if (s.position_sums < kAttentionLeastSums) s.position_sums = kAttentionLeastSums;
    if (s.position_sums > kAttentionMostSums) s.position_sums = kAttentionMostSums;
    if (s.position_sums > items) s.position_sums = items;
    s.dpositions_part = (args.distances + 32) * row;
    s.dpositions = parts.take(s.position_sums * s.dpositions_part);
  }
  if (gradient != nullptr && gradient->dbias != nullptr)
    s.dbias = parts.take(args.batch * args.heads * s.bias_row);
  if (gradient != nullptr && gradient->dhead_scale != nullptr)
    s.dhead_scale = parts.take(args.batch * args.heads);
  s.elements = parts.next;
  return s;
}

}  // namespace eddy::detail
