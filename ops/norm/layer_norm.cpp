// Layer normalisation, by way of row_norm.h.
#include "ops/norm/layer_norm.h"

#include "ops/cast/widen.h"
#include "ops/pointwise/pointwise.h"

namespace eddy {

using row_norm::Kind;

Tensor layer_norm(const Tensor& x, const Tensor& given_weight, const Tensor& given_bias, double eps) {
  const Tensor weight = wide_parameter(x, given_weight), bias = wide_parameter(x, given_bias);
  if (widens(x)) return narrowed(layer_norm(wide(x), wide(weight), wide(bias), eps));
  const Kind kind{"layer_norm", true, layer_norm_forward_slot, layer_norm_backward_slot};
  check(kind, x, weight, bias, eps);
  return apply(kind, x, weight, bias, eps);
}

SumAndNorm add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& given_weight,
                          const Tensor& given_bias, double eps) {
  const Tensor weight = wide_parameter(x, given_weight), bias = wide_parameter(x, given_bias);
  const Kind kind{"add_layer_norm", true, layer_norm_forward_slot, layer_norm_backward_slot};
  if (takes_sum(kind, x, delta)) return apply_to_sum(kind, x, delta, weight, bias, eps);
  const Tensor sum = x + delta;
  return {sum, layer_norm(sum, weight, bias, eps)};
}

}  // namespace eddy
