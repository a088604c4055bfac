// Attention as the Block-Recurrent Transformer uses it everywhere: queries and keys are unit vectors, each
// head has a learned scale, and T5's bias by distance is added before the scale,
//
//   logit = (unit(q) . unit(k) + bias[head, bucket(distance)]) |s[head]|
//
// Without qk_norm the product is that of plain attention, q . k / sqrt(head_dim), as in the authors' code;
// the bias is still added before the learned scale, and the scale stays.
// source: D. Hutchins et al., "Block-Recurrent Transformers", 2022, section 3.4 and the authors' code; the
// buckets: C. Raffel et al., "Exploring the limits of transfer learning", 2020, with one direction only.
#pragma once

#include <cstdint>

#include "models/config.h"
#include "ops/attention/attention.h"
#include "tensor/tensor.h"

namespace eddy {

// The bucket of a distance: itself below buckets / 2, then logarithmic up to max_distance, from where all
// share the last one. distance >= 0, buckets >= 2, max_distance > buckets / 2.
std::int64_t relative_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance);

// The buckets of distances 0 to `window` for every head, [heads, window + 1] i64: what spread_bias gathers
// by.
Tensor bucket_index(const ModelConfig& config, Device device);

// The bias by distance, [heads, window + 1], of a table [heads, buckets].
// grad: for the table.
Tensor spread_bias(const Tensor& table, const Tensor& index);

// How a layer's rows become heads.
struct HeadRules {
  explicit HeadRules(const ModelConfig& config)
      : heads(config.heads),
        head_dim(config.head_dim),
        unit(config.qk_norm),
        eps(config.qk_eps),
        absolute(config.scale_abs) {}

  // Values: [batch, rows, heads head_dim] as [batch, rows, heads, head_dim], a view where possible.
  Tensor split(const Tensor& x) const;
  // The same of keys and of queries, each head's vector brought to length 1 when the config says so; else
  // queries are divided by sqrt(head_dim).
  Tensor split_keys(const Tensor& x) const;
  Tensor split_queries(const Tensor& x) const;
  // Heads side by side again.
  // shapes: [batch, rows, heads, head_dim] -> [batch, rows, heads head_dim].
  Tensor join(const Tensor& x) const;
  // What logits are multiplied by, [heads], of a learned scale [heads].
  Tensor scale(const Tensor& learned) const;

  std::int64_t heads, head_dim;
  bool unit;
  double eps;
  bool absolute;
};

}  // namespace eddy
