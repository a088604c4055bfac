// Checks and gradient of layer normalisation.
#include "ops/norm/layer_norm.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/cast/widen.h"
#include "ops/core/checks.h"
#include "ops/core/rows.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/partial_sums.h"
#include "tensor/base/format.h"

namespace eddy {

constinit Slot<LayerNormArgs> layer_norm_forward_slot{"layer_norm_forward"};
constinit Slot<LayerNormBackwardArgs> layer_norm_backward_slot{"layer_norm_backward"};

namespace {

void check_vector(const char* op, const Tensor& x, const Tensor& vector, const char* name) {
  if (!vector.defined()) return;
  checks::parameter(op, x, vector);
  if (vector.shape() != Shape{x.dim(-1)})
    fail<ShapeError>("{}: a {} {} for x {} (it has the size of the last axis: [{}])", op, name,
                     to_string(vector.shape()), to_string(x.shape()), x.dim(-1));
}

void* data_or_null(const Tensor& x) {
  return x.defined() ? x.raw_data() : nullptr;
}

// The results of a forward pass, and what it saves for backward.
struct LayerNormRows {
  Rows rows;  // the input of the norm: x, or the sum
  Tensor gain, mean, rstd, y;
};

void check_layer_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  checks::floating(op, x);
  if (x.rank() == 0) fail<ShapeError>("{}: a scalar has no last axis (give it at least one axis)", op);
  check_vector(op, x, weight, "weight");
  check_vector(op, x, bias, "bias");
  if (!(eps >= 0) || !std::isfinite(eps)) fail<ValueError>("{}: eps is {} (finite and >= 0)", op, eps);
}

// Normalises x, or x + delta if delta is defined.
LayerNormRows normalise(const Tensor& x, const Tensor& delta, const Tensor& weight, const Tensor& bias,
                        double eps) {
  const Rows rows = rows_of(x);
  const Dtype stats_dtype = compute_dtype(x);
  LayerNormRows result;
  result.gain = weight.defined() ? raw::contiguous(weight) : Tensor();
  const Tensor shift = bias.defined() ? raw::contiguous(bias) : Tensor();
  result.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  result.mean = Tensor::empty({rows.rows}, stats_dtype, x.device());
  result.rstd = Tensor::empty({rows.rows}, stats_dtype, x.device());
  const Rows addend = delta.defined() ? rows_of(delta) : Rows();
  const Tensor sum = delta.defined() ? Tensor::empty(x.shape(), x.dtype(), x.device()) : Tensor();
  result.rows = delta.defined() ? rows_of(sum) : rows;
  if (result.y.elements() > 0)
    layer_norm_forward_slot(x.device(), {x.dtype(), rows.rows, rows.width, rows.data(), rows.stride,
                                         data_or_null(result.gain), data_or_null(shift), result.y.raw_data(),
                                         rows.width, result.mean.raw_data(), result.rstd.raw_data(), eps,
                                         data_or_null(addend.storage), addend.stride, data_or_null(sum)});
  return result;
}

// With n = (x - mean) rstd and g = dy weight:
//   dmean/dx_j     = 1 / width
//   dvariance/dx_j = 2 (x_j - mean) / width
//   drstd/dx_j     = -rstd^2 n_j / width
//   dn_i/dx_j      = rstd ([i = j] - 1 / width - n_i n_j / width)
//   dx_j           = sum_i g_i dn_i/dx_j = rstd (g_j - mean(g) - n_j mean(g n))
//   dweight        = sum of dy n over rows
//   dbias          = sum of dy over rows
// For add_layer_norm, both summands get dsum + dx.
struct LayerNormVjp {
  std::int64_t count, width, x_stride;
  bool has_delta;  // add_layer_norm: the inputs are x, delta, weight, bias, the results sum and y

  void operator()(VjpContext& v) const {
    const int weight = has_delta ? 2 : 1, bias = weight + 1;
    const Tensor dsum = has_delta ? v.dy(0) : Tensor(), dnorm = v.dy(has_delta ? 1 : 0);
    const auto give_summands = [&](const Tensor& dx) {
      for (const int k : {0, 1})
        if (v.sink.needs(k)) v.sink.give(k, dx);
    };
    if (!dnorm.defined()) return give_summands(dsum);
    const Rows dy = rows_of(dnorm);
    const Tensor &saved_x = v.saved(0), &saved_gain = v.saved(1);
    const Dtype dtype = saved_x.dtype(), stats_dtype = compute_dtype(saved_x);
    const Device device = saved_x.device();
    const Shape partial_shape{norm_blocks(count), width};
    const Tensor dweight =
        v.sink.needs(weight) ? Tensor::empty(partial_shape, stats_dtype, device) : Tensor();
    const Tensor dbias = v.sink.needs(bias) ? Tensor::empty(partial_shape, stats_dtype, device) : Tensor();
    const auto run = [&](void* dx, float beta, const Tensor& more = {}) {
      if (count == 0 || width == 0) return;
      layer_norm_backward_slot(
          device, {dtype, count, width, dy.data(), dy.stride, saved_x.raw_data(), x_stride,
                   data_or_null(saved_gain), v.saved(2).raw_data(), v.saved(3).raw_data(), dx, width, beta,
                   data_or_null(dweight), data_or_null(dbias), 0, data_or_null(more)});
    };
    if (has_delta && (v.sink.needs(0) || v.sink.needs(1))) {
      const Tensor dx = Tensor::empty(dnorm.shape(), dtype, device);
      run(dx.raw_data(), 0, dsum.defined() ? raw::contiguous(dsum) : Tensor());
      give_summands(dx);
    } else if (!has_delta && v.sink.needs(0)) {
      v.sink.into(0, [&](const Tensor& dx, float beta) { run(dx.raw_data(), beta); });
    } else {
      run(nullptr, 0);
    }
    give_partial_sums(v, {{weight, dweight}, {bias, dbias}});
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& given_weight, const Tensor& given_bias, double eps) {
  const Tensor weight = wide_parameter(x, given_weight), bias = wide_parameter(x, given_bias);
  if (widens(x)) return narrowed(layer_norm(wide(x), wide(weight), wide(bias), eps));
  check_layer_norm("layer_norm", x, weight, bias, eps);
  const LayerNormRows n = normalise(x, {}, weight, bias, eps);
  return record("layer_norm", {x, weight, bias}, n.y, {n.rows.storage, n.gain, n.mean, n.rstd},
                LayerNormVjp{n.rows.rows, n.rows.width, n.rows.stride, false});
}

SumAndNorm add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& given_weight,
                          const Tensor& given_bias, double eps) {
  const Tensor weight = wide_parameter(x, given_weight), bias = wide_parameter(x, given_bias);
  checks::same_kind("add_layer_norm", x, delta);
  if (x.shape() != delta.shape())
    fail<ShapeError>("add_layer_norm: {} and {} (one shape for both)", to_string(x.shape()),
                     to_string(delta.shape()));
  // A tensor without evenly spaced rows would be copied for the kernel; add takes any strides.
  if (widens(x) || (x.rank() > 0 && !(has_even_rows(x) && has_even_rows(delta)))) {
    const Tensor sum = x + delta;
    return {sum, layer_norm(sum, weight, bias, eps)};
  }
  check_layer_norm("add_layer_norm", x, weight, bias, eps);
  const LayerNormRows n = normalise(x, delta, weight, bias, eps);
  record_many("add_layer_norm", {x, delta, weight, bias}, {n.rows.storage, n.y},
              {n.rows.storage, n.gain, n.mean, n.rstd},
              LayerNormVjp{n.rows.rows, n.rows.width, n.rows.stride, true});
  return {n.rows.storage, n.y};
}

}  // namespace eddy
