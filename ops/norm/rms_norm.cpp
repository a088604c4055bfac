// Root-mean-square normalisation, by way of row_norm.h.
#include "ops/norm/rms_norm.h"

#include "ops/cast/widen.h"
#include "ops/core/checks.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/format.h"

namespace eddy {

using row_norm::Kind;

Tensor rms_norm(const Tensor& x, const Tensor& given_weight, double eps) {
  const Tensor weight = wide_parameter(x, given_weight);
  if (widens(x)) return narrowed(rms_norm(wide(x), wide(weight), eps));
  const Kind kind{"rms_norm", false, rms_norm_forward_slot, rms_norm_backward_slot};
  check(kind, x, weight, {}, eps);
  return apply(kind, x, weight, {}, eps);
}

Tensor rms_norm_add(const Tensor& x, const Tensor& given_weight, const Tensor& given_table, double eps) {
  const Tensor weight = wide_parameter(x, given_weight), table = wide_parameter(x, given_table);
  if (widens(x)) return narrowed(rms_norm_add(wide(x), wide(weight), wide(table), eps));
  const Kind kind{"rms_norm_add", false, rms_norm_forward_slot, rms_norm_backward_slot};
  check(kind, x, weight, {}, eps);
  checks::defined(kind.op, table, "table");
  checks::parameter(kind.op, x, table);
  bool fits = table.rank() >= 1 && table.rank() <= x.rank();
  for (int axis = 1; fits && axis <= table.rank(); ++axis) fits = table.dim(-axis) == x.dim(-axis);
  if (!fits)
    fail<ShapeError>("rms_norm_add: a table {} for x {} (the last axes of x)", to_string(table.shape()),
                     to_string(x.shape()));
  return apply(kind, x, weight, table, eps);
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& given_weight, double eps) {
  const Tensor weight = wide_parameter(x, given_weight);
  const Kind kind{"add_rms_norm", false, rms_norm_forward_slot, rms_norm_backward_slot};
  if (takes_sum(kind, x, delta)) return apply_to_sum(kind, x, delta, weight, {}, eps);
  const Tensor sum = x + delta;
  return {sum, rms_norm(sum, weight, eps)};
}

}  // namespace eddy
