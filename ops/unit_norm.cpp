// Checks and gradient of unit vectors.
#include "ops/unit_norm.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
#include "ops/rows.h"
#include "ops/widen.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<UnitNormArgs> unit_norm_forward_slot{"unit_norm_forward"};
constinit Slot<UnitNormBackwardArgs> unit_norm_backward_slot{"unit_norm_backward"};

Tensor unit_norm(const Tensor& x, double eps) {
  if (widens(x)) return narrowed(unit_norm(wide(x), eps));
  checks::floating("unit_norm", x);
  if (x.rank() == 0) fail<ShapeError>("unit_norm: a scalar has no last axis (give it at least one axis)");
  if (!(eps >= 0) || !std::isfinite(eps)) fail<ValueError>("unit_norm: eps is {} (finite and >= 0)", eps);

  const Rows rows = rows_of(x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor scale = Tensor::empty({rows.rows}, computed_in(x), x.device());
  if (y.elements() > 0)
    unit_norm_forward_slot(x.device(), {x.dtype(), rows.rows, rows.width, rows.data(), rows.stride,
                                        y.raw_data(), scale.raw_data(), eps});
  // y = x r with r = (sum x^2 + eps)^(-1/2): dr/dx_j = -r^3 x_j, so dy_i/dx_j = r ([i = j] - y_i y_j) and
  // dx_j = r (dy_j - y_j sum(dy y)).
  return record("unit_norm", {x}, y, {y, scale}, [count = rows.rows, width = rows.width](VjpContext& v) {
    const Rows dy = rows_of(v.dy());
    v.sink.into(0, [&](const Tensor& dx, float beta) {
      if (dx.elements() > 0)
        unit_norm_backward_slot(dx.device(),
                                {dx.dtype(), count, width, dy.data(), dy.stride, v.saved(0).raw_data(),
                                 v.saved(1).raw_data(), dx.raw_data(), beta});
    });
  });
}

namespace {

constexpr double kEps = 1e-6;

Tensor reference_unit_norm(const Tensor& input) {
  const std::int64_t width = input.dim(-1), rows = width == 0 ? 0 : input.elements() / width;
  std::vector<double> x = input.to_vector<double>();
  for (std::int64_t r = 0; r < rows; ++r) {
    double* const row = x.data() + r * width;
    double squares = kEps;
    for (std::int64_t i = 0; i < width; ++i) squares += row[i] * row[i];
    for (std::int64_t i = 0; i < width; ++i) row[i] /= std::sqrt(squares);
  }
  return Tensor::from(x, input.shape());
}

}  // namespace

std::vector<OpSpec> unit_norm_specs() {
  OpSpec spec;
  spec.name = "unit_norm";
  spec.formula = "x (sum(x^2) + eps)^(-1/2), last axis";
  spec.run = [](const Tensors& x) { return Tensors{unit_norm(x[0], kEps)}; };
  spec.reference = [](const Tensors& x) { return Tensors{reference_unit_norm(x[0])}; };
  const auto x = [](const Shape& shape, double scale = 1) { return sample_normal(shape, "x", scale); };
  // One element of the size of sqrt(eps): with a larger one dx is only what rounding leaves of dy - dy.
  const double near_eps = 1e-3;
  spec.samples = {{"size_0", {x({3, 0})}},
                  {"no_rows", {x({0, 5})}},
                  {"size_1", {x({2, 1}, near_eps)}},
                  {"odd_tail", {x({3, 37})}},
                  {"heads", {x({2, 3, 4, 8})}},
                  {"many_rows", {x({131, 48})}, false},
                  {"strided", {strided_copy(x({5, 7}))}},
                  {"part_of_last_axis", {raw::narrow(x({2, 3, 15}), 2, 5, 5)}},
                  {"zeros", {Tensor::zeros({2, 3}, Dtype::f64)}, false},
                  {"large", {x({3, 65}, 1e4)}, false}};
  spec.roundings = 32;
  spec.bench = [x] { return Tensors{raw::cast(x({16384, 128}), Dtype::f32)}; };
  spec.cost = [](const Tensors& inputs) {
    return OpCost{4.0 * static_cast<double>(inputs[0].elements()),
                  2.0 * static_cast<double>(inputs[0].bytes())};
  };
  return {spec};
}

}  // namespace eddy
