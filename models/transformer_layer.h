// The base layer T of the recurrent transformers: one pre-norm causal transformer layer over a window.
//
//   a = LN1(z);  q, k, v = a Wqkv^T;  P = softmax(q k^T / sqrt(d)), causal
//   r = z + (P v) Wo^T;  T(z) = r + act(LN2(r) Wup^T) Wdown^T
//
// Source: Kausik, "Recurrent Transformers" (2025), whose layer is that of GPT-2 without biases.
#pragma once

#include <string>

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

  // The last `rows` rows of T(z), and no others: queries, and what comes behind the attention, of those
  // alone.
  Tensor last_rows(const Tensor& z, std::int64_t rows, const DropoutSite& drop) const;

  // The parts of T, for models that order the work differently.
  // r + act(LN2(r) Wup^T) Wdown^T for r = z + attended.
  Tensor mlp(const Tensor& z, const Tensor& attended, const DropoutSite& drop, std::uint64_t call) const;
  // act(rows Wup^T).
  Tensor activated(const Tensor& rows) const;

  const std::string path;
  LayerNorm attn_norm;
  Linear wqkv, wo;
  LayerNorm mlp_norm;
  Linear up, down;
  std::int64_t heads;
  bool gelu_activation;
};

}  // namespace eddy
