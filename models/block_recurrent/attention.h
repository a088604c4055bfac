// The attention of the Block-Recurrent Transformer: queries and keys are unit vectors, each head has a
// learned scale s, and T5's bias by distance is added before the scale:
//
//   logit = (unit(q) . unit(k) + bias[head, bucket(distance)]) |s[head]|
//
// Without qk_norm there is no scale, as in the authors' code:
//
//   logit = q . k / sqrt(head_dim) + bias[head, bucket(distance)]
//
// Source: D. Hutchins et al., "Block-Recurrent Transformers", 2022, section 3.4 and the authors' code; the
// buckets: C. Raffel et al., "Exploring the limits of transfer learning", 2020, with only one direction.
#pragma once

#include <cstdint>
#include <string>

#include "models/block_recurrent/config.h"
#include "models/params.h"
#include "ops/attention/attention.h"
#include "ops/norm/unit_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"

namespace eddy {

// The bucket of a distance: below buckets / 2 the distance itself, then logarithmic. All distances from
// max_distance on share the last bucket. Needs distance >= 0, buckets >= 2, max_distance > buckets / 2.
std::int64_t relative_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance);

// The buckets of distances 0 to `window` for every head, [heads, window + 1] i64: the index of distance_bias.
Tensor bucket_index(const block_recurrent::Config& config, Device device);

// The bias by distance, [heads, window + 1], from a table [heads, buckets].
// grad: for the table.
Tensor distance_bias(const Tensor& table, const Tensor& index);

// How rows of a layer are split into heads, and normed.
struct HeadRules {
  explicit HeadRules(const block_recurrent::Config& config)
      : heads(config.heads),
        head_dim(config.head_dim),
        unit(config.qk_norm),
        eps(config.qk_eps),
        absolute(config.scale_abs) {}

  // Values: x [batch, rows, heads head_dim] as [batch, rows, heads, head_dim], a view where possible.
  Tensor split(const Tensor& x) const { return reshape(x, {x.dim(0), x.dim(1), heads, head_dim}); }
  // Keys and queries: the same, each head's vector scaled to length 1. With qk_norm = false only queries
  // change: they are divided by sqrt(head_dim).
  Tensor split_keys(const Tensor& x) const { return unit ? unit_norm(split(x), eps) : split(x); }
  Tensor split_queries(const Tensor& x) const;
  // The heads side by side, the inverse of split.
  // shapes: [batch, rows, heads, head_dim] -> [batch, rows, heads head_dim].
  Tensor join(const Tensor& x) const { return reshape(x, {x.dim(0), x.dim(1), heads * head_dim}); }
  // Declares a learned scale [heads], all 1 at the start; undefined without qk_norm.
  Tensor learned_scale(const ParamScope& scope, const std::string& name) const;
  // The factor of the logits, [heads], from a learned scale [heads]: the scale or its absolute value.
  // Undefined without qk_norm.
  Tensor scale(const Tensor& learned) const { return absolute && unit ? abs(learned) : learned; }

  std::int64_t heads, head_dim;
  bool unit;
  double eps;
  bool absolute;
};

}  // namespace eddy
