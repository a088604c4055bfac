// Checks and gradient of layer normalisation.
#include "ops/layer_norm.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/reduce.h"
#include "ops/rows.h"
#include "ops/widen.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<LayerNormArgs> layer_norm_forward_slot{"layer_norm_forward"};
constinit Slot<LayerNormBackwardArgs> layer_norm_backward_slot{"layer_norm_backward"};

namespace {

void check_vector(const Tensor& x, const Tensor& vector, const char* name) {
  if (!vector.defined()) return;
  checks::parameter("layer_norm", x, vector);
  if (vector.shape() != Shape{x.dim(-1)})
    fail<ShapeError>("layer_norm: a {} {} for x {} (it has the size of the last axis: [{}])", name,
                     to_string(vector.shape()), to_string(x.shape()), x.dim(-1));
}

const void* data_or_null(const Tensor& x) {
  return x.defined() ? x.raw_data() : nullptr;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& given_weight, const Tensor& given_bias, double eps) {
  const Tensor weight = wide_parameter(x, given_weight), bias = wide_parameter(x, given_bias);
  if (widens(x)) return narrowed(layer_norm(wide(x), wide(weight), wide(bias), eps));
  checks::floating("layer_norm", x);
  if (x.rank() == 0) fail<ShapeError>("layer_norm: a scalar has no last axis (give it at least one axis)");
  check_vector(x, weight, "weight");
  check_vector(x, bias, "bias");
  if (!(eps >= 0) || !std::isfinite(eps)) fail<ValueError>("layer_norm: eps is {} (finite and >= 0)", eps);

  const Rows rows = rows_of(x);
  const Tensor gain = weight.defined() ? raw::contiguous(weight) : Tensor();
  const Tensor shift = bias.defined() ? raw::contiguous(bias) : Tensor();
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Dtype inside = computed_in(x);
  const Tensor mean = Tensor::empty({rows.rows}, inside, x.device());
  const Tensor rstd = Tensor::empty({rows.rows}, inside, x.device());
  if (y.elements() > 0)
    layer_norm_forward_slot(
        x.device(), {x.dtype(), rows.rows, rows.width, rows.data(), rows.stride, data_or_null(gain),
                     data_or_null(shift), y.raw_data(), rows.width, mean.raw_data(), rstd.raw_data(), eps});
  // n = (x - mean) rstd has dn_i/dx_j = rstd ([i = j] - 1/width - n_i n_j / width): the mean moves by
  // 1/width, and since the variance's derivative is 2 (x_j - mean) / width, drstd/dx_j = -rstd^2 n_j / width.
  // With g = dy weight, dx_j = sum_i g_i dn_i/dx_j = rstd (g_j - mean(g) - n_j mean(g n)). dweight = sum dy n
  // and dbias = sum dy over rows.
  return record(
      "layer_norm", {x, weight, bias}, y, {rows.storage, gain, mean, rstd},
      [count = rows.rows, width = rows.width, x_stride = rows.stride](VjpContext& v) {
        const Rows dy = rows_of(v.dy());
        const Tensor &saved_x = v.saved(0), &saved_gain = v.saved(1);
        const Dtype dtype = saved_x.dtype(), sums = computed_in(saved_x);
        const Device device = saved_x.device();
        const Shape partial_shape{norm_blocks(count), width};
        const Tensor dweight = v.sink.needs(1) ? Tensor::empty(partial_shape, sums, device) : Tensor();
        const Tensor dbias = v.sink.needs(2) ? Tensor::empty(partial_shape, sums, device) : Tensor();
        const auto run = [&](void* dx, float beta) {
          if (count == 0) return;
          layer_norm_backward_slot(
              device, {dtype, count, width, dy.data(), dy.stride, saved_x.raw_data(), x_stride,
                       data_or_null(saved_gain), v.saved(2).raw_data(), v.saved(3).raw_data(), dx, width,
                       beta, dweight.defined() ? dweight.raw_data() : nullptr,
                       dbias.defined() ? dbias.raw_data() : nullptr, 0});
        };
        if (v.sink.needs(0))
          v.sink.into(0, [&](const Tensor& dx, float beta) { run(dx.raw_data(), beta); });
        else
          run(nullptr, 0);
        if (dweight.defined())
          v.sink.into(1, [&](const Tensor& dst, float beta) { sum_into(dst, dweight, beta); });
        if (dbias.defined())
          v.sink.into(2, [&](const Tensor& dst, float beta) { sum_into(dst, dbias, beta); });
      });
}

}  // namespace eddy
