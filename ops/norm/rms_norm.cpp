// Checks and gradient of root-mean-square normalisation.
#include "ops/norm/rms_norm.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/cast/widen.h"
#include "ops/core/checks.h"
#include "ops/core/rows.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy {

constinit Slot<RmsNormArgs> rms_norm_forward_slot{"rms_norm_forward"};
constinit Slot<RmsNormBackwardArgs> rms_norm_backward_slot{"rms_norm_backward"};

namespace {

void* data_or_null(const Tensor& x) {
  return x.defined() ? x.raw_data() : nullptr;
}

void check_rms_norm(const char* op, const Tensor& x, const Tensor& weight, double eps) {
  checks::floating(op, x);
  if (x.rank() == 0) fail<ShapeError>("{}: a scalar has no last axis (give it at least one axis)", op);
  if (weight.defined()) {
    checks::parameter(op, x, weight);
    if (weight.shape() != Shape{x.dim(-1)})
      fail<ShapeError>("{}: a weight {} for x {} (it has the size of the last axis: [{}])", op,
                       to_string(weight.shape()), to_string(x.shape()), x.dim(-1));
  }
  if (!(eps >= 0) || !std::isfinite(eps)) fail<ValueError>("{}: eps is {} (finite and >= 0)", op, eps);
}

struct RmsNormRows {
  Rows rows;  // the input of the norm: x, or the sum
  Tensor gain, rstd, y;
};

// Normalises x, or x + delta if delta is defined; then adds the table if it is defined.
RmsNormRows normalise(const Tensor& x, const Tensor& delta, const Tensor& weight, const Tensor& table,
                      double eps) {
  const Rows rows = rows_of(x);
  RmsNormRows result;
  result.gain = weight.defined() ? raw::contiguous(weight) : Tensor();
  result.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  result.rstd = Tensor::empty({rows.rows}, compute_dtype(x), x.device());
  const Rows addend = delta.defined() ? rows_of(delta) : Rows();
  const Tensor sum = delta.defined() ? Tensor::empty(x.shape(), x.dtype(), x.device()) : Tensor();
  result.rows = delta.defined() ? rows_of(sum) : rows;
  const Tensor packed_table = table.defined() ? raw::contiguous(table) : Tensor();
  if (result.y.elements() > 0)
    rms_norm_forward_slot(
        x.device(), {x.dtype(), rows.rows, rows.width, rows.data(), rows.stride, data_or_null(result.gain),
                     result.y.raw_data(), rows.width, result.rstd.raw_data(), eps,
                     data_or_null(addend.storage), addend.stride, data_or_null(sum),
                     data_or_null(packed_table), table.defined() ? table.elements() / rows.width : 1});
  return result;
}

// With rstd = (mean(x^2) + eps)^(-1/2), n = x rstd and g = dy weight:
//   drstd/dx_j = -rstd^3 x_j / width = -rstd^2 n_j / width
//   dn_i/dx_j  = rstd ([i = j] - n_i n_j / width)
//   dx_j       = sum_i g_i dn_i/dx_j = rstd (g_j - n_j mean(g n))
//   dweight    = sum of dy n over rows
// For add_rms_norm, both summands get dsum + dx.
struct RmsNormVjp {
  std::int64_t count, width, x_stride;
  bool has_delta;  // add_rms_norm: the inputs are x, delta, weight, the results sum and y

  void operator()(VjpContext& v) const {
    const int weight = has_delta ? 2 : 1;
    const Tensor dsum = has_delta ? v.dy(0) : Tensor(), dnorm = v.dy(has_delta ? 1 : 0);
    const auto give_summands = [&](const Tensor& dx) {
      for (const int k : {0, 1})
        if (v.sink.needs(k)) v.sink.give(k, dx);
    };
    if (!dnorm.defined()) return give_summands(dsum);
    const Rows dy = rows_of(dnorm);
    const Tensor &saved_x = v.saved(0), &saved_gain = v.saved(1);
    const Tensor dweight = v.sink.needs(weight) ? Tensor::empty({norm_blocks(count), width},
                                                                compute_dtype(saved_x), saved_x.device())
                                                : Tensor();
    const auto run = [&](void* dx, float beta, const Tensor& more = {}) {
      if (count == 0 || width == 0) return;
      rms_norm_backward_slot(saved_x.device(),
                             {saved_x.dtype(), count, width, dy.data(), dy.stride, saved_x.raw_data(),
                              x_stride, data_or_null(saved_gain), v.saved(2).raw_data(), dx, width, beta,
                              data_or_null(dweight), 0, data_or_null(more)});
    };
    if (has_delta && (v.sink.needs(0) || v.sink.needs(1))) {
      const Tensor dx = Tensor::empty(dnorm.shape(), saved_x.dtype(), saved_x.device());
      run(dx.raw_data(), 0, dsum.defined() ? raw::contiguous(dsum) : Tensor());
      give_summands(dx);
    } else if (!has_delta && v.sink.needs(0)) {
      v.sink.into(0, [&](const Tensor& dx, float beta) { run(dx.raw_data(), beta); });
    } else {
      run(nullptr, 0);
    }
    give_partial_sums(v, {{weight, dweight}});
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& given_weight, double eps) {
  const Tensor weight = wide_parameter(x, given_weight);
  if (widens(x)) return narrowed(rms_norm(wide(x), wide(weight), eps));
  check_rms_norm("rms_norm", x, weight, eps);
  const RmsNormRows n = normalise(x, {}, weight, {}, eps);
  return record("rms_norm", {x, weight}, n.y, {n.rows.storage, n.gain, n.rstd},
                RmsNormVjp{n.rows.rows, n.rows.width, n.rows.stride, false});
}

Tensor rms_norm_add(const Tensor& x, const Tensor& given_weight, const Tensor& given_table, double eps) {
  const Tensor weight = wide_parameter(x, given_weight), table = wide_parameter(x, given_table);
  if (widens(x)) return narrowed(rms_norm_add(wide(x), wide(weight), wide(table), eps));
  check_rms_norm("rms_norm_add", x, weight, eps);
  checks::defined("rms_norm_add", table, "table");
  checks::parameter("rms_norm_add", x, table);
  bool fits = table.rank() >= 1 && table.rank() <= x.rank();
  for (int axis = 1; fits && axis <= table.rank(); ++axis) fits = table.dim(-axis) == x.dim(-axis);
  if (!fits)
    fail<ShapeError>("rms_norm_add: a table {} for x {} (the last axes of x)", to_string(table.shape()),
                     to_string(x.shape()));
  const RmsNormRows n = normalise(x, {}, weight, table, eps);
  const RmsNormVjp norm{n.rows.rows, n.rows.width, n.rows.stride, false};
  return record("rms_norm_add", {x, weight, table}, n.y, {n.rows.storage, n.gain, n.rstd},
                [norm](VjpContext& v) {
                  norm(v);
                  if (v.sink.needs(2))
                    v.sink.into(2, [&](const Tensor& dst, float beta) { sum_into(dst, v.dy(), beta); });
                });
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& given_weight, double eps) {
  const Tensor weight = wide_parameter(x, given_weight);
  checks::same_kind("add_rms_norm", x, delta);
  if (x.shape() != delta.shape())
    fail<ShapeError>("add_rms_norm: {} and {} (one shape for both)", to_string(x.shape()),
                     to_string(delta.shape()));
  // A tensor without evenly spaced rows would be copied for the kernel; add takes any strides.
  if (widens(x) || (x.rank() > 0 && !(has_even_rows(x) && has_even_rows(delta)))) {
    const Tensor sum = x + delta;
    return {sum, rms_norm(sum, weight, eps)};
  }
  check_rms_norm("add_rms_norm", x, weight, eps);
  const RmsNormRows n = normalise(x, delta, weight, {}, eps);
  record_many("add_rms_norm", {x, delta, weight}, {n.rows.storage, n.y}, {n.rows.storage, n.gain, n.rstd},
              RmsNormVjp{n.rows.rows, n.rows.width, n.rows.stride, true});
  return {n.rows.storage, n.y};
}

}  // namespace eddy
