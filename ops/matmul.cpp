// matmul, linear and linear_relu: every case is one call of the gemm slot.
#include "ops/matmul.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/pointwise.h"
#include "ops/pointwise_functors.h"
#include "ops/product.h"
#include "ops/reduce.h"
#include "ops/widen.h"
#include "tensor/format.h"

namespace eddy {
namespace {

// How a matrix (the last two axes of a tensor) lies in memory for gemm.
struct Layout {
  bool transposed = false;
  std::int64_t row_stride = 0;
  bool usable = false;
};

Layout layout_of(const Tensor& x) {
  const std::int64_t rows = x.dim(-2), columns = x.dim(-1);
  const std::int64_t row_stride = x.strides()[x.rank() - 2], column_stride = x.strides()[x.rank() - 1];
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1))
    return {false, rows == 1 ? std::max<std::int64_t>(columns, 1) : row_stride, true};
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1))
    return {true, columns == 1 ? std::max<std::int64_t>(rows, 1) : column_stride, true};
  return {};
}

// The leading axes as up to two batch levels; false when their strides do not allow it.
bool batch_levels(const Tensor& x, std::int64_t* inner, std::int64_t* outer) {
  const int leading = x.rank() - 2;
  *inner = *outer = 0;
  if (leading >= 1) *inner = x.strides()[leading - 1];
  if (leading == 2) *outer = x.strides()[0];
  return leading <= 2;
}

// x, or a copy that gemm can read.
Tensor readable(const Tensor& x) {
  std::int64_t inner, outer;
  return layout_of(x).usable && batch_levels(x, &inner, &outer) ? x : raw::copy(x);
}

constexpr int kRelu = pointwise::IndexOf<pointwise::Relu, pointwise::UnaryOps>::value;

// Products of bf16 where there is no product of bf16: the factors widened, and a result of bf16 rounded once.
void multiply_widened(const Tensor& c, const Tensor& a, const Tensor& b, double beta, const Tensor& bias,
                      bool relu) {
  const auto widened = [](const Tensor& x) { return raw::cast(x, Dtype::f32); };
  const Tensor shift = bias.defined() ? widened(bias) : bias;
  if (c.dtype() == Dtype::f32) return multiply_into(c, widened(a), widened(b), beta, shift, relu);
  const Tensor sum = beta == 0 ? Tensor::empty(c.shape(), Dtype::f32) : widened(c);
  multiply_into(sum, widened(a), widened(b), beta, shift, relu);
  raw::cast_into(c, sum);
}

}  // namespace

void multiply_into(const Tensor& c, const Tensor& a_any, const Tensor& b_any, double beta, const Tensor& bias,
                   bool relu) {
  if (widens(a_any)) return multiply_widened(c, a_any, b_any, beta, bias, relu);
  Tensor a = readable(a_any), b = readable(b_any);
  const int leading = c.rank() - 2;
  Tensor target = c;
  if (leading > 2) {  // fold all leading axes into one
    const auto folded = [](const Tensor& x) {
      return raw::reshape(
          raw::contiguous(x),
          {x.elements() / std::max<std::int64_t>(1, x.dim(-1) * x.dim(-2)), x.dim(-2), x.dim(-1)});
    };
    a = folded(a);
    if (b.rank() > 2) b = folded(b);
    target = folded(c);  // contiguous: c is fresh or a gradient buffer
  }
  const Layout la = layout_of(a), lb = layout_of(b);
  GemmArgs g{};
  g.dtype = a.dtype();
  g.c_f32 = c.dtype() == Dtype::f32;
  g.m = c.dim(-2);
  g.n = c.dim(-1);
  g.k = a.dim(-1);
  g.transpose_a = la.transposed;
  g.lda = la.row_stride;
  g.transpose_b = lb.transposed;
  g.ldb = lb.row_stride;
  g.ldc = std::max<std::int64_t>(
      g.n, target.rank() >= 2 && target.dim(-2) > 1 ? target.strides()[target.rank() - 2] : g.n);
  g.a = a.raw_data();
  g.b = b.raw_data();
  g.c = target.raw_data();
  g.beta = beta;
  batch_levels(a, &g.stride_a, &g.outer_a);
  if (b.rank() > 2) batch_levels(b, &g.stride_b, &g.outer_b);
  batch_levels(target, &g.stride_c, &g.outer_c);
  const int levels = target.rank() - 2;
  if (levels >= 1) g.batch = target.dim(levels - 1);
  if (levels == 2) g.outer = target.dim(0);
  if (c.elements() == 0) return;
  if (g.k == 0) {
    if (bias.defined())
      raw::copy_into(c, raw::expand(bias, c.shape()));
    else if (beta == 0)
      raw::fill(c, 0);
    if (relu)
      unary_forward_slot(c.device(), {kRelu, c.dtype(), c.elements(), c.raw_data(), nullptr, c.raw_data()});
    return;
  }
  const Tensor packed_bias = bias.defined() ? raw::contiguous(bias) : Tensor();
  if (bias.defined()) g.bias = packed_bias.raw_data();
  g.relu = relu;
  gemm_slot(c.device(), g);
}

Tensor flat_rows(const Tensor& x) {
  const std::int64_t width = x.dim(-1);
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.shape()[i];
  return raw::reshape(raw::contiguous(x), {rows, width});
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (!widens(a)) checks::floating("matmul", a);
  checks::same_kind("matmul", a, b);
  if (a.rank() < 2 || b.rank() < 2)
    fail<ShapeError>("matmul: {} and {} (both need at least two axes)", to_string(a.shape()),
                     to_string(b.shape()));
  if (a.dim(-1) != b.dim(-2))
    fail<ShapeError>("matmul: inner sizes differ: {} and {} ([..., m, k] by [..., k, n])",
                     to_string(a.shape()), to_string(b.shape()));
  const bool shared_b = b.rank() == 2 && a.rank() > 2;
  if (!shared_b) {
    bool equal = a.rank() == b.rank();
    for (int i = 0; equal && i + 2 < a.rank(); ++i) equal = a.shape()[i] == b.shape()[i];
    if (!equal)
      fail<ShapeError>("matmul: leading axes differ: {} and {} (equal, or a plain matrix on the right)",
                       to_string(a.shape()), to_string(b.shape()));
  }
  if (shared_b) {  // fold the batch into the rows: one large product beats many small ones
    const Shape shape = a.shape().with(-1, b.dim(-1));
    const Tensor rows = flat_rows(a);
    const Tensor y = Tensor::empty(shape, a.dtype(), a.device());
    multiply_into(raw::reshape(y, {rows.dim(0), b.dim(1)}), rows, b, 0);
    return record("matmul", {a, b}, y, {rows, b}, [shape_a = a.shape()](VjpContext& v) {
      const Tensor dy = flat_rows(v.dy());
      if (v.sink.needs(0))
        v.sink.into(0, [&](const Tensor& dst, float beta) {
          multiply_into(raw::reshape(dst, {dy.dim(0), shape_a.dim(-1)}), dy, raw::transpose(v.saved(1), 0, 1),
                        beta);
        });
      if (v.sink.needs(1))
        v.sink.into(1, [&](const Tensor& dst, float beta) {
          multiply_into(dst, raw::transpose(v.saved(0), 0, 1), dy, beta);
        });
    });
  }
  const Tensor y = Tensor::empty(a.shape().with(-1, b.dim(-1)), a.dtype(), a.device());
  multiply_into(y, a, b, 0);
  return record("matmul", {a, b}, y, {a, b}, [](VjpContext& v) {
    const Tensor dy = readable(v.dy());
    if (v.sink.needs(0))
      v.sink.into(0, [&](const Tensor& dst, float beta) {
        multiply_into(dst, dy, raw::transpose(v.saved(1), -1, -2), beta);
      });
    if (v.sink.needs(1))
      v.sink.into(1, [&](const Tensor& dst, float beta) {
        multiply_into(dst, raw::transpose(v.saved(0), -1, -2), dy, beta);
      });
  });
}

namespace {

// What the gradients of a linear layer read, beside its result.
struct Affine {
  Tensor rows, factor, y;
};

Affine affine(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  if (!widens(x)) checks::floating(op, x);
  checks::parameter(op, x, weight);
  if (x.rank() < 1 || weight.rank() != 2 || x.dim(-1) != weight.dim(1))
    fail<ShapeError>("{}: x {} and weight {} (x [..., in], weight [out, in])", op, to_string(x.shape()),
                     to_string(weight.shape()));
  if (bias.defined()) {
    checks::parameter(op, x, bias);
    if (bias.shape() != Shape{weight.dim(0)})
      fail<ShapeError>("{}: bias {} for weight {} (bias [out])", op, to_string(bias.shape()),
                       to_string(weight.shape()));
  }
  const Tensor rows = flat_rows(x);
  const Tensor y = Tensor::empty(x.shape().with(-1, weight.dim(0)), x.dtype(), x.device());
  const Tensor y_rows = raw::reshape(y, {rows.dim(0), weight.dim(0)});
  // Parameters of f32 are rounded for products of bf16; their gradients are those of the numbers they were
  // rounded to, and are not rounded.
  const bool rounds = x.dtype() == Dtype::bf16;
  const Tensor factor = rounds ? raw::to_bf16(weight) : weight;
  const Tensor shift = rounds && bias.defined() ? raw::to_bf16(bias) : bias;
  multiply_into(y_rows, rows, raw::transpose(factor, 0, 1), 0, shift, relu);
  return {rows, factor, y};
}

// dx = dz W, dW = dz^T x, db = sum of dz over rows, for dz the gradient of z = x W^T + b. Saved are x and W.
void affine_gradients(VjpContext& v, const Tensor& dz) {
  const Tensor rows = flat_rows(dz);
  if (v.sink.needs(0))
    v.sink.into(0, [&](const Tensor& dst, float beta) {
      multiply_into(raw::reshape(dst, {rows.dim(0), dst.dim(-1)}), rows, v.saved(1), beta);
    });
  if (v.sink.needs(1))
    v.sink.into(1, [&](const Tensor& dst, float beta) {
      multiply_into(dst, raw::transpose(rows, 0, 1), v.saved(0), beta);
    });
  if (v.sink.needs(2)) v.sink.into(2, [&](const Tensor& dst, float beta) { sum_into(dst, rows, beta); });
}

// dy where y is positive, else 0: written over dy where nobody else sees it, so that no third tensor of this
// width stands beside y and dy.
Tensor relu_gradient(const Tensor& dy, const Tensor& y) {
  if (widens(dy))
    return raw::cast(relu_gradient(raw::cast(dy, Dtype::f32), raw::cast(y, Dtype::f32)), dy.dtype());
  const bool ours = dy.exclusive() || !dy.contiguous();
  const Tensor given = raw::contiguous(dy);
  const Tensor dz = ours ? given : Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  if (dz.elements() > 0)
    unary_backward_slot(dz.device(),
                        {kRelu, dz.dtype(), dz.elements(), y.raw_data(), given.raw_data(), dz.raw_data()});
  return dz;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Affine made = affine("linear", x, weight, bias, false);
  return record("linear", {x, weight, bias}, made.y, {made.rows, made.factor},
                [](VjpContext& v) { affine_gradients(v, v.dy()); });
}

Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Affine made = affine("linear_relu", x, weight, bias, true);
  return record("linear_relu", {x, weight, bias}, made.y, {made.rows, made.factor, made.y},
                [](VjpContext& v) { affine_gradients(v, relu_gradient(v.dy(), v.saved(2))); });
}

}  // namespace eddy
