// Linear, LayerNorm, Embedding.
#include "models/layers.h"

#include <cmath>

#include "ops/index/gather.h"
#include "ops/product/matmul.h"

namespace eddy {

double residual_deviation(const ModelConfig& config) {
  return config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers));
}

Linear::Linear(const ParamScope& scope, std::int64_t in, std::int64_t out, double deviation, bool with_bias)
    : weight(scope.param("weight", {out, in}, Init::normal(deviation))) {
  if (with_bias) bias = scope.param("bias", {out}, Init::zeros());
}
Tensor Linear::operator()(const Tensor& x) const {
  return linear(x, weight, bias);
}

LayerNorm::LayerNorm(const ParamScope& scope, std::int64_t width, double epsilon, bool with_bias)
    : weight(scope.param("weight", {width}, Init::ones())), eps(epsilon) {
  if (with_bias) bias = scope.param("bias", {width}, Init::zeros());
}
Tensor LayerNorm::operator()(const Tensor& x) const {
  return layer_norm(x, weight, bias, eps);
}
SumAndNorm LayerNorm::of_sum(const Tensor& x, const Tensor& delta) const {
  return add_layer_norm(x, delta, weight, bias, eps);
}

Embedding::Embedding(const ParamScope& scope, std::int64_t entries, std::int64_t width, double deviation)
    : weight(scope.param("weight", {entries, width}, Init::normal(deviation))) {}
Tensor Embedding::operator()(const Tensor& ids) const {
  return embedding(weight, ids);
}
Tensor Embedding::operator()(const Tensor& ids, Dtype dtype, const Tensor& rows) const {
  return embedding_sum(weight, ids, rows, dtype);
}

}  // namespace eddy
