// The transformer layer of the staircase family, and its relative-position attention.
// Source: Ju, Roller, Sukhbaatar, Weston, "Staircase Attention for Recurrent Processing of Sequences" (2021);
// positions after P. Shaw et al. (2018), on the keys only.
//
// For queries x and a context c that may hold more tokens than x, d = (position of query) - (of key):
//
//   pre-norm    h = x + Attn(LN1(x), LN1(c)) Wo^T;   y = h + FFN(LN2(h))      one LN1 for queries and context
//   post-norm   h = LN1(x + Attn(x, c) Wo^T);        y = LN2(h + FFN(h))
//   score(i, j) = (q_i . k_j + q_i . positions[d]) / sqrt(head_dim);    FFN(z) = relu(z U^T + a) V^T + b
//
// The order of work is the model's: `normed` and `keys_values` are functions of their own, so that what does
// not change is computed once.
#pragma once

#include <cstdint>
#include <string>

#include "models/config.h"
#include "models/dropout_site.h"
#include "models/keys_values.h"
#include "models/layers.h"

namespace eddy {

// What a layer needs besides tensors of its own input.
struct LayerCall {
  AttentionOptions attention;  // band and position table
  DropoutSite drop;
  std::uint64_t index = 0;  // names the dropout masks of this call
  bool literal = false;     // attention from stored scores instead of the fused op
};

class StaircaseLayer {
 public:
  // With `shared`, keys and values come from that layer's matrices, and with pre-norm its norm too.
  StaircaseLayer(const ParamScope& scope, std::string path, const ModelConfig& config,
                 const StaircaseLayer* shared = nullptr);

  // What queries, keys and values are computed from: LN1(x) with pre-norm, x itself with post-norm.
  Tensor normed(const Tensor& x) const;
  // Keys and values of normed rows [batch, keys, dim].
  KeysValues keys_values(const Tensor& normed_context) const;
  // The layer's output [batch, time, dim] for x of that shape, normed(x) and the context's keys and values.
  Tensor operator()(const Tensor& x, const Tensor& normed_x, const KeysValues& context,
                    const LayerCall& call) const;
  // The layer as its equations stand: everything is computed from x and the context [batch, keys, dim].
  Tensor plain(const Tensor& x, const Tensor& context, const LayerCall& call) const;

  const std::string path;
  const std::int64_t heads, head_dim;

 private:
  const bool prenorm_;
  LayerNorm attn_norm_;
  Tensor wq_, wk_, wv_, wo_;
  LayerNorm mlp_norm_;
  Tensor up_, up_bias_, down_, down_bias_;
};

// The rows of `key_pe` [head_dim, span] by distance, [distances, head_dim]: row d is column `last - d`, with
// distances that have no column (they are never visible) given the nearest one.
// grad: flows to key_pe, exact zeros in columns that no visible distance uses.
Tensor position_rows(const Tensor& key_pe, std::int64_t distances, std::int64_t last);

}  // namespace eddy
