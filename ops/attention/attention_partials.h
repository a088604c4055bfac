// Working memory of the attention backward on a GPU: numbers that one kernel passes to the next, such as
// partial sums that are added in a fixed order. All of it is f32 for every dtype; offsets are in elements.
// The memory of the tables' gradients is separate. Partial tables (AttentionBackwardArgs) outlive a call; the
// tensor-core kernels for dq also leave slices (cuda/attention/attention_tensor_core_bias.cuh).
#pragma once

#include "ops/attention/attention.h"

namespace eddy::detail {

// About this many partial tables in a call: enough blocks for a GPU, and memory that does not grow with the
// batch.
inline constexpr std::int64_t kAttentionTableParts = 64;

// The runs of sequences with a partial table each, `sequences` in a run but the last.
struct AttentionTableRuns {
  std::int64_t runs, sequences;
};
// batch and heads: at least 1.
inline AttentionTableRuns attention_table_runs(std::int64_t batch, std::int64_t heads) {
  const std::int64_t wanted = (kAttentionTableParts + heads - 1) / heads;
  const std::int64_t runs = wanted < batch ? wanted : batch;
  const std::int64_t sequences = (batch + runs - 1) / runs;
  return {(batch + sequences - 1) / sequences, sequences};
}

// The gradient of a head's scale is summed over rows in at most kMostHeadScaleParts parts of at least
// kHeadScaleRows rows: few rows are one part and one launch.
inline constexpr std::int64_t kHeadScaleRows = 4096, kMostHeadScaleParts = 64;

struct AttentionPartials {
  std::int64_t deltas;            // [batch, heads, queries]: doutput . output of each row, or kNoGradient
  std::int64_t head_scales;       // [batch, heads, queries]: each row's term of dhead_scale
  std::int64_t head_scale_parts;  // runs of a head's [batch, queries] rows, `part_rows` in a run
  std::int64_t part_rows;
  std::int64_t head_scale_sums;  // [heads, head_scale_parts], if there is more than one part
  AttentionTableRuns tables;
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
  p.tables = attention_table_runs(args.batch, args.heads);
  const std::int64_t head_rows = args.batch * args.queries,
                     head_runs = (head_rows + kHeadScaleRows - 1) / kHeadScaleRows;
  const std::int64_t head_parts = head_runs < kMostHeadScaleParts ? head_runs : kMostHeadScaleParts;
  p.part_rows = head_parts > 0 ? (head_rows + head_parts - 1) / head_parts : 0;
  p.head_scale_parts = head_parts > 0 ? (head_rows + p.part_rows - 1) / p.part_rows : 0;
  p.deltas = take(rows);
  p.head_scales = take(gradient.dhead_scale != nullptr ? rows : 0);
  p.head_scale_sums = take(gradient.dhead_scale != nullptr ? args.heads * p.head_scale_parts : 0);
  return p;
}

// The elements of the working memory of a call (AttentionArgs::scratch) on any device: of the call's dtype on the
// CPU, else f32. `gradient` is null for a forward call.
std::int64_t attention_workspace(const AttentionArgs& args, const AttentionBackwardArgs* gradient,
                                 const Device& device);

}  // namespace eddy::detail
