// Linear, LayerNorm, Embedding.
#include "models/layers.h"

#include <cmath>

#include "ops/product/fused_product.h"

namespace eddy {

double residual_deviation(const CommonKeys& config) {
  return config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers));
}

Linear::Linear(const ParamScope& scope, std::int64_t in, std::int64_t out, double deviation, bool with_bias)
    : weight(scope.param("weight", {out, in}, Init::normal(deviation))) {
  if (with_bias) bias = scope.param("bias", {out}, Init::zeros());
}

LayerNorm::LayerNorm(const ParamScope& scope, std::int64_t width, double epsilon, bool with_bias)
    : weight(scope.param("weight", {width}, Init::ones())), eps(epsilon) {
  if (with_bias) bias = scope.param("bias", {width}, Init::zeros());
}

SumAndNorm LayerNorm::of_sum(const Tensor& x, const Tensor& z, const Tensor& matrix,
                             const Tensor& shift) const {
  if (!adds_in_products(x)) return of_sum(x, linear(z, matrix, shift));
  const Tensor sum = add_linear(x, z, matrix, shift);
  return {sum, (*this)(sum)};
}

Embedding::Embedding(const ParamScope& scope, std::int64_t entries, std::int64_t width, double deviation)
    : weight(scope.param("weight", {entries, width}, Init::normal(deviation))) {}

}  // namespace eddy
