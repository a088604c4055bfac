// Working memory of the GPU's attention backward: numbers that one kernel leaves for the next, among them
// sums that are added in a fixed order. All f32 whatever the dtype; places are in elements.
#pragma once

#include "ops/attention.h"

namespace eddy {

// The gradients of the tables are summed in some so many parts, each a whole table: enough blocks for a GPU,
// and memory that does not grow with the batch.
inline constexpr std::int64_t kAttentionTableParts = 64;

struct AttentionPartials {
  std::int64_t deltas;       // [batch, heads, queries]: doutput . output of each row
  std::int64_t head_scales;  // [batch, heads, queries]: what each row adds to dhead_scale
  std::int64_t batch_parts;  // runs of sequences with a part of the tables each, `part_sequences` in a run
  std::int64_t part_sequences;
  std::int64_t bias;       // [heads, batch_parts, distances]
  std::int64_t positions;  // [heads, batch_parts, distances, head_size]
  std::int64_t elements;
};

inline AttentionPartials attention_partials(const AttentionBackwardArgs& gradient) {
  const AttentionArgs& args = gradient.forward;
  const std::int64_t rows = args.batch * args.heads * args.queries;
  AttentionPartials p{};
  const auto take = [&p](std::int64_t elements) {
    const std::int64_t at = p.elements;
    p.elements += elements;
    return at;
  };
  const std::int64_t wanted = (kAttentionTableParts + args.heads - 1) / args.heads;
  const std::int64_t runs = wanted < args.batch ? wanted : args.batch;
  p.part_sequences = (args.batch + runs - 1) / runs;
  p.batch_parts = (args.batch + p.part_sequences - 1) / p.part_sequences;
  const std::int64_t tables = args.heads * p.batch_parts * args.distances;
  p.deltas = take(rows);
  p.head_scales = take(gradient.dhead_scale != nullptr ? rows : 0);
  p.bias = take(gradient.dbias != nullptr ? tables : 0);
  p.positions = take(gradient.dpositions != nullptr ? tables * args.head_size : 0);
  return p;
}

}  // namespace eddy
