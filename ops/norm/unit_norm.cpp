// Checks and gradient of unit vectors.
#include "ops/norm/unit_norm.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/rows.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace detail {

UnitRows unit_rows(const char* op, const Tensor& x, double eps, std::int64_t heads, AxisRange plain) {
  checks::floating(op, x);
  if (!(eps >= 0) || !std::isfinite(eps)) fail<ValueError>("{}: eps is {} (finite and >= 0)", op, eps);
  const Rows rows = rows_of(x);
  const UnitRows unit{Tensor::empty(x.shape(), x.dtype(), x.device()),
                      Tensor::empty({rows.rows}, compute_dtype(x), x.device())};
  if (x.elements() > 0)
    unit_norm_forward_slot(x.device(),
                           {x.dtype(), rows.rows, rows.width, rows.data(), rows.stride, unit.y.raw_data(),
                            unit.scale.raw_data(), eps, heads, plain.first, plain.first + plain.count});
  return unit;
}

}  // namespace detail

namespace {

// Normalises rows in groups of `heads`, except the plain heads.
Tensor normalise(const char* op, const Tensor& x, double eps, std::int64_t heads, AxisRange plain) {
  const auto [y, scale] = detail::unit_rows(op, x, eps, heads, plain);
  // With r = (sum(x^2) + eps)^(-1/2) and y = x r:
  //   dr/dx_j   = -r^3 x_j
  //   dy_i/dx_j = r ([i = j] - y_i y_j)
  //   dx_j      = sum_i dy_i dy_i/dx_j = r (dy_j - y_j sum(dy y))
  return record(
      op, {x}, y, {y, scale}, [count = scale.elements(), width = x.dim(-1), heads, plain](VjpContext& v) {
        const Rows dy = rows_of(v.dy());
        v.sink.into(0, [&](const Tensor& dx, float beta) {
          if (dx.elements() > 0)
            unit_norm_backward_slot(dx.device(), {dx.dtype(), count, width, dy.data(), dy.stride,
                                                  v.saved(0).raw_data(), v.saved(1).raw_data(), dx.raw_data(),
                                                  beta, heads, plain.first, plain.first + plain.count});
        });
      });
}

}  // namespace

Tensor unit_norm(const Tensor& x, double eps) {
  if (must_upcast(x)) return downcast(unit_norm(upcast(x), eps));
  checks::defined("unit_norm", x);
  if (x.rank() == 0) fail<ShapeError>("unit_norm: a scalar has no last axis (give it at least one axis)");
  return normalise("unit_norm", x, eps, 1, {});
}

Tensor unit_norm_heads(const Tensor& x, double eps, AxisRange plain) {
  if (must_upcast(x)) return downcast(unit_norm_heads(upcast(x), eps, plain));
  checks::defined("unit_norm_heads", x);
  if (x.rank() < 2)
    fail<ShapeError>("unit_norm_heads: x has shape {} ([..., heads, width])", to_string(x.shape()));
  if (plain.first < 0 || plain.count < 0 || plain.first + plain.count > x.dim(-2))
    fail<ShapeError>("unit_norm_heads: {} heads from {} of {} (heads that there are)", plain.count,
                     plain.first, x.dim(-2));
  return normalise("unit_norm_heads", x, eps, x.dim(-2), plain);
}

}  // namespace eddy
