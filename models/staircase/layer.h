// The transformer layer of the staircase family, and its relative-position attention.
// Source: Ju, Roller, Sukhbaatar, Weston, "Staircase Attention for Recurrent Processing of Sequences" (2021);
// positions after P. Shaw et al. (2018), on the keys only.
//
// For queries x and a context c that may hold more tokens than x, d = (position of query) - (of key):
//
//   pre-norm      h = x + Attn(LN1(x), LN1(c)) Wo^T            one LN1 for queries and context
//                 y = h + FFN(LN2(h))
//
//   post-norm     h = LN1(x + Attn(x, c) Wo^T)
//                 y = LN2(h + FFN(h))
//
//   score(i, j) = (q_i . k_j + q_i . positions[d]) / sqrt(head_dim)
//   FFN(z)      = relu(z U^T + a) V^T + b
//
// `normed` and `keys_values` are separate functions, so that a model computes once what does not change;
// `literal` computes everything from x and c.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/dropout_site.h"
#include "models/layers.h"
#include "models/staircase/config.h"
#include "ops/attention/keys_values.h"

namespace eddy {

// What a call of a layer needs besides its input.
struct LayerCall {
  AttentionOptions attention;  // band and position table
  DropoutSite drop;
  std::uint64_t index = 0;  // names the dropout masks of this call
  bool literal = false;     // attention from stored scores instead of the fused op
  // For name_place: the token of the call at which the first query stands (negative: no place is named), and how many
  // tokens the last key stands behind the last query.
  std::int64_t first = -1, behind = 0;
};

class StaircaseLayer {
 public:
  // With `shared`, keys and values come from that layer's matrices, and with pre-norm its norm too.
  StaircaseLayer(const ParamScope& scope, std::string path, const staircase::Config& config,
                 const StaircaseLayer* shared = nullptr);

  // The input of queries, keys and values: LN1(x) with pre-norm, x itself with post-norm.
  Tensor normed(const Tensor& x) const;
  // Keys and values of normed rows [batch, keys, dim], and of earlier ones before them if `normed_past` has these.
  KeysValues keys_values(const Tensor& normed_rows, const Tensor& normed_past = {}) const;
  // The layer's output [batch, time, dim] for x of that shape, normed(x) and the context's keys and values.
  // Without a context x attends to itself, and to earlier rows if `normed_past` has their normed(...).
  Tensor operator()(const Tensor& x, const Tensor& normed_x, const KeysValues& context, const LayerCall& call,
                    const Tensor& normed_past = {}) const;
  // The literal form: everything is computed from x and the context [batch, keys, dim] (literal.cpp).
  Tensor literal(const Tensor& x, const Tensor& context, const LayerCall& call) const;

  const std::string path;
  const std::int64_t heads, head_dim;

 private:
  // What the position table adds to a score, [heads, distances], in the mean over the queries of a call: for
  // name_value.
  Tensor mean_bias(const Tensor& normed_x, const AttentionOptions& options) const;

  const bool prenorm_;
  LayerNorm attn_norm_;
  Tensor wq_, wk_, wv_, wo_;
  LayerNorm mlp_norm_;
  std::optional<FeedForward> mlp_;
};

// The position table by distance, [distances, head_dim]: row d is column `last - d` of `key_pe` [head_dim,
// span]. Distances without a column are never visible; they get the nearest column.
// grad: for key_pe; exact zeros in columns that no visible distance uses.
Tensor position_rows(const Tensor& key_pe, std::int64_t distances, std::int64_t last);

}  // namespace eddy
