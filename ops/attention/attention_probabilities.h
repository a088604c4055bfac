// The probabilities that attention mixes values with, for those who want to look at them: the kernels never store them.
#pragma once

#include "ops/attention/attention.h"

namespace eddy::detail {

// Returns the probabilities [batch, heads, queries, keys] of `attention` on the CPU, before dropout; keys are those of
// the past and k. A row sums to 1, or is 0 for a query that sees no key. They are computed in f64.
// shapes, options: those of attention; dropout and past_values are not read.
// dtypes: as q; f32 for bf16.
Tensor attention_probabilities(const Tensor& q, const Tensor& k, const AttentionOptions& options);

}  // namespace eddy::detail
