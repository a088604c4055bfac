// Checks and gradient of root-mean-square normalisation.
#include "ops/rms_norm.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/reduce.h"
#include "ops/rows.h"
#include "ops/widen.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<RmsNormArgs> rms_norm_forward_slot{"rms_norm_forward"};
constinit Slot<RmsNormBackwardArgs> rms_norm_backward_slot{"rms_norm_backward"};

Tensor rms_norm(const Tensor& x, const Tensor& given_weight, double eps) {
  const Tensor weight = wide_parameter(x, given_weight);
  if (widens(x)) return narrowed(rms_norm(wide(x), wide(weight), eps));
  checks::floating("rms_norm", x);
  if (x.rank() == 0) fail<ShapeError>("rms_norm: a scalar has no last axis (give it at least one axis)");
  if (weight.defined()) {
    checks::parameter("rms_norm", x, weight);
    if (weight.shape() != Shape{x.dim(-1)})
      fail<ShapeError>("rms_norm: a weight {} for x {} (it has the size of the last axis: [{}])",
                       to_string(weight.shape()), to_string(x.shape()), x.dim(-1));
  }
  if (!(eps >= 0) || !std::isfinite(eps)) fail<ValueError>("rms_norm: eps is {} (finite and >= 0)", eps);

  const Rows rows = rows_of(x);
  const Tensor gain = weight.defined() ? raw::contiguous(weight) : Tensor();
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor rstd = Tensor::empty({rows.rows}, computed_in(x), x.device());
  if (y.elements() > 0)
    rms_norm_forward_slot(x.device(), {x.dtype(), rows.rows, rows.width, rows.data(), rows.stride,
                                       gain.defined() ? gain.raw_data() : nullptr, y.raw_data(), rows.width,
                                       rstd.raw_data(), eps});
  // n = x rstd with rstd = (mean(x^2) + eps)^(-1/2), so drstd/dx_j = -rstd^3 x_j / width = -rstd^2 n_j /
  // width and dn_i/dx_j = rstd ([i = j] - n_i n_j / width). With g = dy weight, dx_j = rstd (g_j - n_j mean(g
  // n)), and dweight = sum of dy n over rows.
  return record("rms_norm", {x, weight}, y, {rows.storage, gain, rstd},
                [count = rows.rows, width = rows.width, x_stride = rows.stride](VjpContext& v) {
                  const Rows dy = rows_of(v.dy());
                  const Tensor &saved_x = v.saved(0), &saved_gain = v.saved(1);
                  const Tensor dweight =
                      v.sink.needs(1)
                          ? Tensor::empty({norm_blocks(count), width}, computed_in(saved_x), saved_x.device())
                          : Tensor();
                  const auto run = [&](void* dx, float beta) {
                    if (count == 0) return;
                    rms_norm_backward_slot(
                        saved_x.device(),
                        {saved_x.dtype(), count, width, dy.data(), dy.stride, saved_x.raw_data(), x_stride,
                         saved_gain.defined() ? saved_gain.raw_data() : nullptr, v.saved(2).raw_data(), dx,
                         width, beta, dweight.defined() ? dweight.raw_data() : nullptr, 0});
                  };
                  if (v.sink.needs(0))
                    v.sink.into(0, [&](const Tensor& dx, float beta) { run(dx.raw_data(), beta); });
                  else
                    run(nullptr, 0);
                  if (dweight.defined())
                    v.sink.into(1, [&](const Tensor& dst, float beta) { sum_into(dst, dweight, beta); });
                });
}

}  // namespace eddy
