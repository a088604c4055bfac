// The base layer T of the recurrent transformers: one pre-norm causal transformer layer over a window.
//
//   a       = LN1(z)
//   q, k, v = a Wqkv^T                            with rotary positions q and k of row t are turned by t (rotary.h)
//   P       = softmax(q k^T / sqrt(head_dim)), causal, per head
//   r       = z + (P v) Wo^T
//   T(z)    = r + act(LN2(r) Wup^T) Wdown^T
//
// Source: Kausik, "Recurrent Transformers" (2025), whose layer is that of GPT-2 without biases.
#pragma once

#include <string>
#include <utility>

#include "models/dropout_site.h"
#include "models/layers.h"
#include "models/model.h"
#include "models/recurrent_transformer/config.h"
#include "ops/recurrence/unit_recurrence.h"

namespace eddy {

class TransformerLayer {
 public:
  // The two projections into the residual stream are initialised with a deviation smaller by 1/sqrt(2
  // layers).
  TransformerLayer(const ParamScope& scope, std::string path, const recurrent_transformer::Config& config);

  // T(z) for windows [batch, positions, dim]; dropout masks are those of call `call`.
  Tensor operator()(const Tensor& z, const DropoutSite& drop, std::uint64_t call = 0) const;

  // The parts of T, for the fast forms:
  // r + act(LN2(r) Wup^T) Wdown^T for r = z + attended,
  Tensor mlp(const Tensor& z, const Tensor& attended, const DropoutSite& drop, std::uint64_t call) const;
  // The same from z + attended and its norm.
  Tensor mlp(const SumAndNorm& read, const DropoutSite& drop, std::uint64_t call) const;
  // The same as h, and LN1(h).
  SumAndNorm mlp_and_norm(const SumAndNorm& read, const DropoutSite& drop, std::uint64_t call) const;

  // Rows [batch, m, n] of positions from `first` on, of which the first `count` heads are turned by their positions
  // where these are rotary.
  Tensor placed(const Tensor& rows, std::int64_t count, std::int64_t first) const;

  // Names h, the state that a recurrence carries.
  void name_state(const Tensor& h) const;

  // The weights as the recurrences of ops/recurrence/ take them.
  UnitRecurrenceWeights weights() const;

  const std::string path;
  LayerNorm attn_norm;
  Linear wqkv, wo;
  LayerNorm mlp_norm;
  FeedForward feed_forward;
  std::int64_t heads;
  bool rotary;
};

// The layer T in parts, for one call: its packed weight is split into the weight of queries and that of keys
// and values.
class WindowLayer {
 public:
  WindowLayer(const TransformerLayer& layer, const DropoutSite& drop);

  // Queries [batch, m, dim], and keys and values side by side [batch, m, 2 dim], of rows [batch, m, dim].
  std::pair<Tensor, Tensor> query_key_value(const Tensor& rows) const;
  Tensor query(const Tensor& rows) const;
  Tensor key_value(const Tensor& rows) const;
  // T(window) at `rows`, the last rows of a window, whose queries are `query`. The window's keys and values
  // are `past` (undefined: none) followed by `own`, each [batch, keys, 2 dim]. `call` names the dropout
  // masks.
  Tensor finish(const Tensor& rows, const Tensor& query, const Tensor& past, const Tensor& own,
                std::uint64_t call) const;
  // The same as h, and keys and values of h.
  std::pair<Tensor, Tensor> finish_and_key_value(const Tensor& rows, const Tensor& query, const Tensor& past,
                                                 const Tensor& own, std::uint64_t call) const;
  // The rows of T(h) from `skipped` on, for windows h [batch, m, dim] with their keys and values, whose positions
  // begin at 0.
  Tensor output(const Tensor& h, const Tensor& key_value, std::int64_t skipped, std::uint64_t call) const;

  const DropoutSite& drop() const { return drop_; }

  const TransformerLayer& layer;

 private:
  // What attention adds to `rows`, as `finish` reads it.
  Tensor attended(const Tensor& query, const Tensor& past, const Tensor& own, std::uint64_t call) const;

  const DropoutSite drop_;
  Tensor query_weight_, query_bias_, key_value_weight_, key_value_bias_;
};

}  // namespace eddy
