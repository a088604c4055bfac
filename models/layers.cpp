// Linear, FeedForward, LayerNorm, RmsNorm, Embedding.
#include "models/layers.h"

#include <cmath>

#include "ops/pointwise/pointwise.h"

namespace eddy {

double residual_deviation(const CommonKeys& config) {
  return config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers));
}

Linear::Linear(const ParamScope& scope, std::int64_t in, std::int64_t out, double deviation, bool with_bias)
    : Linear(scope, in, out, Init::normal(deviation),
             with_bias ? std::optional<Init>(Init::zeros()) : std::nullopt) {}

Linear::Linear(const ParamScope& scope, std::int64_t in, std::int64_t out, const Init& of_weight,
               const std::optional<Init>& of_bias)
    : weight(scope.param("weight", {out, in}, of_weight)) {
  if (of_bias) bias = scope.param("bias", {out}, *of_bias);
}

Tensor FeedForward::hidden(const Tensor& x) const {
  return linear(x, up.weight, up.bias, {.relu = !gelu, .gelu = gelu});
}

LayerNorm::LayerNorm(const ParamScope& scope, std::int64_t width, double epsilon, bool with_bias)
    : weight(scope.param("weight", {width}, Init::ones())), eps(epsilon) {
  if (with_bias) bias = scope.param("bias", {width}, Init::zeros());
}

RmsNorm::RmsNorm(const ParamScope& scope, std::int64_t width, double epsilon)
    : weight(scope.param("weight", {width}, Init::ones())), eps(epsilon) {}

Embedding::Embedding(const ParamScope& scope, std::int64_t entries, std::int64_t width, double deviation)
    : weight(scope.param("weight", {entries, width}, Init::normal(deviation))) {}

Tensor head_weight(const ParamScope& scope, const Embedding& embed, bool tied, const Shape& shape,
                   double deviation) {
  if (!tied) return scope.param("weight", shape, Init::normal(deviation));
  scope.omitted(
      "weight",
      "model.tied = true has the token table in the place of a head: set model.tied = false, or take "
      "the head out of the file");
  return embed.weight;
}

}  // namespace eddy
