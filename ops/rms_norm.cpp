// Checks and gradient of root-mean-square normalisation.
#include "ops/rms_norm.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
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

namespace {

constexpr double kEps = 1e-5;

Tensor reference_rms_norm(const Tensors& inputs) {
  const std::int64_t width = inputs[0].dim(-1), rows = width == 0 ? 0 : inputs[0].elements() / width;
  std::vector<double> x = inputs[0].to_vector<double>();
  const std::vector<double> weight =
      inputs.size() > 1 ? inputs[1].to_vector<double>() : std::vector<double>();
  for (std::int64_t r = 0; r < rows; ++r) {
    double* const row = x.data() + r * width;
    double mean_square = 0;
    for (std::int64_t i = 0; i < width; ++i) mean_square += row[i] * row[i] / static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i)
      row[i] *= (weight.empty() ? 1 : weight[static_cast<std::size_t>(i)]) / std::sqrt(mean_square + kEps);
  }
  return Tensor::from(x, inputs[0].shape());
}

Tensors sample(const Shape& shape, double scale = 1) {
  return {sample_normal(shape, "x", scale), sample_normal({shape.dim(-1)}, "weight")};
}

}  // namespace

std::vector<OpSpec> rms_norm_specs() {
  OpSpec spec;
  spec.name = "rms_norm";
  spec.formula = "x / sqrt(mean(x^2) + eps) weight, last axis";
  spec.run = [](const Tensors& x) { return Tensors{rms_norm(x[0], x.size() > 1 ? x[1] : Tensor(), kEps)}; };
  spec.reference = [](const Tensors& x) { return Tensors{reference_rms_norm(x)}; };
  const Tensors dense = sample({5, 7});
  // One element of the size of sqrt(eps): with a larger one dx is only what rounding leaves of g - g.
  const double near_eps = 3e-3;
  spec.samples = {{"size_0", sample({3, 0})},
                  {"no_rows", sample({0, 5})},
                  {"size_1", sample({2, 1}, near_eps)},
                  {"odd_tail", sample({3, 37})},
                  {"many_rows", sample({131, 3}), false},
                  {"rank_3", sample({2, 3, 9})},
                  {"no_weight", {dense[0]}},
                  {"strided", {strided_copy(dense[0]), strided_copy(dense[1])}},
                  {"time_step", {raw::select(sample_normal({3, 4, 9}, "x"), 1, 2), sample({9})[1]}},
                  {"large", sample({3, 65}, 1e4), false}};
  spec.roundings = 32;
  spec.bench = [] {
    Tensors inputs = sample({4096, 384});
    for (Tensor& x : inputs) x = raw::cast(x, Dtype::f32);
    return inputs;
  };
  spec.cost = [](const Tensors& x) {
    return OpCost{5.0 * static_cast<double>(x[0].elements()), 2.0 * static_cast<double>(x[0].bytes())};
  };
  return {spec};
}

}  // namespace eddy
