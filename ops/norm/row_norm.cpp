// Layer norm and RMS norm: checks, results and gradients of both in all their forms.

#include <cmath>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/rows.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/product.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

// The op's name in errors and on the tape, and its kernels.
struct NormKind {
  const char* op;
  bool centred;  // layer norm
  const Slot<RowNormArgs>& forward;
  const Slot<RowNormBackwardArgs>& backward;
};

void check_vector(const char* op, const Tensor& x, const Tensor& vector, const char* name) {
  if (!vector.defined()) return;
  checks::parameter(op, x, vector);
  if (vector.shape() != Shape{x.dim(-1)})
    fail<ShapeError>("{}: a {} {} for x {} (it has the size of the last axis: [{}])", op, name,
                     to_string(vector.shape()), to_string(x.shape()), x.dim(-1));
}

// The results of a forward pass, and what it saves for backward.
struct Result {
  Rows rows;  // the input of the norm: x, or the sum
  Tensor y;
  std::vector<Tensor> saved;  // the input's storage, weight, rstd, mean
};

// Normalises x, or x + delta if delta is defined.
Result normalise(const NormKind& kind, const Tensor& x, const Tensor& delta, const Tensor& given_weight,
                 const Tensor& given_shift, double eps) {
  const auto like_x = [&x] { return Tensor::empty(x.shape(), x.dtype(), x.device()); };
  const Rows rows = rows_of(x), addend = delta.defined() ? rows_of(delta) : Rows();
  const auto statistic = [&] { return Tensor::empty({rows.rows}, compute_dtype(x), x.device()); };
  const Tensor weight = contiguous_or_none(given_weight), shift = contiguous_or_none(given_shift),
               y = like_x(), rstd = statistic(), mean = kind.centred ? statistic() : Tensor(),
               sum = delta.defined() ? like_x() : Tensor();
  if (y.elements() > 0)
    kind.forward(
        x.device(),
        {x.dtype(), rows.rows, rows.width, rows.data(), rows.stride, data_or_null(weight),
         kind.centred ? data_or_null(shift) : nullptr, y.raw_data(), rows.width, data_or_null(mean),
         rstd.raw_data(), eps, data_or_null(addend.storage), addend.stride, data_or_null(sum),
         kind.centred ? nullptr : data_or_null(shift), shift.defined() ? shift.elements() / rows.width : 1});
  const Rows of_norm = delta.defined() ? rows_of(sum) : rows;
  return {of_norm, y, {of_norm.storage, weight, rstd, mean}};
}

// Layer norm, with n = (x - mean) rstd and g = dy weight:
//   dmean/dx_j     = 1 / width
//   dvariance/dx_j = 2 (x_j - mean) / width
//   drstd/dx_j     = -rstd^2 n_j / width
//   dn_i/dx_j      = rstd ([i = j] - 1 / width - n_i n_j / width)
//   dx_j           = sum_i g_i dn_i/dx_j = rstd (g_j - mean(g) - n_j mean(g n))
// RMS norm, with n = x rstd and rstd = (mean(x^2) + eps)^(-1/2):
//   drstd/dx_j = -rstd^3 x_j / width = -rstd^2 n_j / width
//   dn_i/dx_j  = rstd ([i = j] - n_i n_j / width)
//   dx_j       = rstd (g_j - n_j mean(g n))
// Both:
//   dweight    = sum of dy n over rows
//   dbias      = sum of dy over rows
// Of x + delta, both summands get dsum + dx.
struct Vjp {
  NormKind kind;
  std::int64_t count, width, x_stride;
  bool has_delta;  // the inputs are x, delta, weight, bias, the results sum and y

  void operator()(VjpContext& v) const {
    const int weight = has_delta ? 2 : 1, shift = weight + 1;
    const Tensor dsum = has_delta ? v.dy(0) : Tensor(), dnorm = v.dy(has_delta ? 1 : 0);
    if (!dnorm.defined()) {
      for (const int k : {0, 1}) v.sink.accumulate(k, dsum);
      return;
    }
    const Rows dy = rows_of(dnorm);
    const Tensor& x = v.saved(0);
    const auto partials = [&](int input) {
      return partial_sums_of(v, input, norm_blocks(x.device(), count), width, compute_dtype(x), x.device());
    };
    // Who made the summand that dx is passed on to may want the sums of its columns.
    const int summand = has_delta ? 1 : 0;
    Tensor dx_sums;
    if (!uses_cpu_path(x.device()) && norm_is_joint(x.dtype(), count, width) && v.sink.needs(weight) &&
        v.sink.wants_column_sums(summand))
      dx_sums = Tensor::empty({norm_blocks(x.device(), count), width}, Dtype::f32, x.device());
    const PartialSums dweight = partials(weight), dbias = kind.centred ? partials(shift) : PartialSums();
    const auto run = [&](void* dx, float beta, const Tensor& more = {}) {
      if (count == 0 || width == 0) return;
      kind.backward(x.device(), {x.dtype(), count, width, dy.data(), dy.stride, x.raw_data(), x_stride,
                                 data_or_null(v.saved(1)), data_or_null(v.saved(3)), v.saved(2).raw_data(),
                                 dx, width, beta, data_or_null(dweight.rows), data_or_null(dbias.rows), 0,
                                 data_or_null(more), data_or_null(dx_sums)});
    };
    if (has_delta && (v.sink.needs(0) || v.sink.needs(1))) {
      const Tensor dx = Tensor::empty(dnorm.shape(), x.dtype(), x.device());
      run(dx.raw_data(), 0, contiguous_or_none(dsum));
      v.sink.accumulate(0, dx);
      const bool is_all = dx_sums.defined() && v.sink.keeps(1, dx.dtype());
      v.sink.accumulate(1, dx);
      if (is_all) v.sink.set_column_sums(1, dx_sums);
    } else if (!has_delta && v.sink.needs(0)) {
      v.sink.into(0, [&](const Tensor& dx, float beta) { run(dx.raw_data(), beta); });
      if (dx_sums.defined()) v.sink.set_column_sums(0, dx_sums);
    } else {
      run(nullptr, 0);
    }
    add_partial_sums({dweight, dbias});
    if (!kind.centred && !has_delta && v.sink.needs(shift))  // the table
      v.sink.into(shift, [&](const Tensor& dst, float beta) { sum_into(dst, dnorm, beta); });
  }
};

// Checks x, and weight and bias of a norm, which may be undefined.
// errors: those of layer_norm.
void check(const NormKind& kind, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  checks::floating(kind.op, x);
  if (x.rank() == 0) fail<ShapeError>("{}: a scalar has no last axis (give it at least one axis)", kind.op);
  check_vector(kind.op, x, weight, "weight");
  check_vector(kind.op, x, bias, "bias");
  if (!(eps >= 0) || !std::isfinite(eps)) fail<ValueError>("{}: eps is {} (finite and >= 0)", kind.op, eps);
}

// Returns the norm of x and records it. `shift` is the bias of a layer norm or the table of an RMS norm;
// weight and shift may be undefined.
Tensor apply(const NormKind& kind, const Tensor& x, const Tensor& weight, const Tensor& shift, double eps) {
  const Result n = normalise(kind, x, {}, weight, shift, eps);
  record_many(kind.op, {x, weight, shift}, {n.y}, n.saved,
              Vjp{kind, n.rows.rows, n.rows.width, n.rows.stride, false});
  return n.y;
}

// Whether apply_to_sum supports these summands: the device reads their dtype, and their rows are evenly
// spaced, so that the kernel needs no copy. (`add` supports any strides.)
// errors: ShapeError when the shapes differ; DtypeError; DeviceError.
bool fuses_sum(const NormKind& kind, const Tensor& x, const Tensor& delta) {
  checks::same_kind(kind.op, x, delta);
  if (x.shape() != delta.shape())
    fail<ShapeError>("{}: {} and {} (one shape for both)", kind.op, to_string(x.shape()),
                     to_string(delta.shape()));
  return !must_upcast(x) && (x.rank() == 0 || (has_even_rows(x) && has_even_rows(delta)));
}

// Returns x + delta and its norm, and records them as one node.
SumAndNorm apply_to_sum(const NormKind& kind, const Tensor& x, const Tensor& delta, const Tensor& weight,
                        const Tensor& bias, double eps) {
  check(kind, x, weight, bias, eps);
  const Result n = normalise(kind, x, delta, weight, bias, eps);
  record_many(kind.op, {x, delta, weight, bias}, {n.rows.storage, n.y}, n.saved,
              Vjp{kind, n.rows.rows, n.rows.width, n.rows.stride, true});
  return {n.rows.storage, n.y};
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& given_weight, const Tensor& given_bias, double eps) {
  const Tensor weight = upcast_parameter(x, given_weight), bias = upcast_parameter(x, given_bias);
  if (must_upcast(x)) return downcast(layer_norm(upcast(x), upcast(weight), upcast(bias), eps));
  const NormKind kind{"layer_norm", true, layer_norm_forward_slot, layer_norm_backward_slot};
  check(kind, x, weight, bias, eps);
  return apply(kind, x, weight, bias, eps);
}

SumAndNorm add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& given_weight,
                          const Tensor& given_bias, double eps) {
  const Tensor weight = upcast_parameter(x, given_weight), bias = upcast_parameter(x, given_bias);
  const NormKind kind{"add_layer_norm", true, layer_norm_forward_slot, layer_norm_backward_slot};
  if (fuses_sum(kind, x, delta)) return apply_to_sum(kind, x, delta, weight, bias, eps);
  const Tensor sum = x + delta;
  return {sum, layer_norm(sum, weight, bias, eps)};
}

SumAndNorm add_layer_norm(const Tensor& x, const LinearTerm& delta, const Tensor& weight, const Tensor& bias,
                          double eps) {
  if (!adds_in_products(x))
    return add_layer_norm(x, linear(delta.x, delta.weight, delta.bias), weight, bias, eps);
  const Tensor sum = linear(delta.x, delta.weight, delta.bias, {.residual = x});
  return {sum, layer_norm(sum, weight, bias, eps)};
}

Tensor rms_norm(const Tensor& x, const Tensor& given_weight, double eps) {
  const Tensor weight = upcast_parameter(x, given_weight);
  if (must_upcast(x)) return downcast(rms_norm(upcast(x), upcast(weight), eps));
  const NormKind kind{"rms_norm", false, rms_norm_forward_slot, rms_norm_backward_slot};
  check(kind, x, weight, {}, eps);
  return apply(kind, x, weight, {}, eps);
}

Tensor rms_norm_add(const Tensor& x, const Tensor& given_weight, const Tensor& given_table, double eps) {
  const Tensor weight = upcast_parameter(x, given_weight), table = upcast_parameter(x, given_table);
  if (must_upcast(x)) return downcast(rms_norm_add(upcast(x), upcast(weight), upcast(table), eps));
  const NormKind kind{"rms_norm_add", false, rms_norm_forward_slot, rms_norm_backward_slot};
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
  const Tensor weight = upcast_parameter(x, given_weight);
  const NormKind kind{"add_rms_norm", false, rms_norm_forward_slot, rms_norm_backward_slot};
  if (fuses_sum(kind, x, delta)) return apply_to_sum(kind, x, delta, weight, {}, eps);
  const Tensor sum = x + delta;
  return {sum, rms_norm(sum, weight, eps)};
}

SumAndNorm add_rms_norm(const Tensor& x, const LinearTerm& delta, const Tensor& weight, double eps) {
  if (!adds_in_products(x)) return add_rms_norm(x, linear(delta.x, delta.weight, delta.bias), weight, eps);
  const Tensor sum = linear(delta.x, delta.weight, delta.bias, {.residual = x});
  return {sum, rms_norm(sum, weight, eps)};
}

}  // namespace eddy
