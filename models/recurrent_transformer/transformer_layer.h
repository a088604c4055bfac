// The base layer T of the recurrent transformers: one pre-norm causal transformer layer over a window.
//
//   a = LN1(z);  q, k, v = a Wqkv^T;  P = softmax(q k^T / sqrt(d)), causal
//   r = z + (P v) Wo^T;  T(z) = r + act(LN2(r) Wup^T) Wdown^T
//
// Source: Kausik, "Recurrent Transformers" (2025), whose layer is that of GPT-2 without biases.
#pragma once

#include <string>
#include <utility>

#include "models/dropout_site.h"
#include "models/layers.h"
#include "models/model.h"

namespace eddy {

class TransformerLayer {
 public:
  // `layers` scales the init of the two projections into the residual stream by 1/sqrt(2 layers).
  TransformerLayer(const ParamScope& scope, std::string path, const ModelConfig& config);

  // T(z) for windows [batch, positions, dim]; dropout masks are those of call `call`.
  Tensor operator()(const Tensor& z, const DropoutSite& drop, std::uint64_t call = 0) const;

  // The parts of T, for models that order the work differently.
  // r + act(LN2(r) Wup^T) Wdown^T for r = z + attended.
  Tensor mlp(const Tensor& z, const Tensor& attended, const DropoutSite& drop, std::uint64_t call) const;
  // act(rows Wup^T) Wdown^T.
  Tensor feed_forward(const Tensor& rows) const;

  const std::string path;
  LayerNorm attn_norm;
  Linear wqkv, wo;
  LayerNorm mlp_norm;
  Linear up, down;
  std::int64_t heads;
  bool gelu_activation;
};

// One layer T taken apart for one call: its weights cut into what makes queries and what makes keys and
// values.
class WindowLayer {
 public:
  WindowLayer(const TransformerLayer& layer, const DropoutSite& drop);

  // Queries, and keys and values side by side, of rows [batch, m, dim]: [batch, m, dim] and [batch, m, 2
  // dim].
  std::pair<Tensor, Tensor> query_key_value(const Tensor& rows) const;
  Tensor query(const Tensor& rows) const;
  Tensor key_value(const Tensor& rows) const;
  // T for the rows that gave `query`, the last ones of a window: over keys and values `past` (undefined:
  // none) and `own`, each [batch, keys, 2 dim]. `call` names the dropout masks.
  Tensor finish(const Tensor& rows, const Tensor& query, const Tensor& past, const Tensor& own,
                std::uint64_t call) const;
  // Rows from `skipped` on of T(h), for windows h [batch, m, dim] with their keys and values.
  Tensor output(const Tensor& h, const Tensor& key_value, std::int64_t skipped, std::uint64_t call) const;

  const DropoutSite& drop() const { return drop_; }

  const TransformerLayer& layer;

 private:
  const DropoutSite& drop_;
  Tensor query_weight_, query_bias_, key_value_weight_, key_value_bias_;
};

}  // namespace eddy
