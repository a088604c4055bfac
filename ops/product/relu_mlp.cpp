// Two linear layers with ReLU in between as one tape node.
//
//   h   = max(x Wu^T + bu, 0)
//   y   = h Wd^T + bd            plus a residual stream, if there is one, which gets dy as it is
//
//   dh  = dy Wd where h is positive, else 0
//   dx  = dh Wu
//   dWd = dy^T h        dbd = sum of dy over rows
//   dWu = dh^T x        dbu = sum of dh over rows
#include "ops/product/relu_mlp.h"
#include "ops/product/affine.h"

#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/fused_product.h"
#include "ops/product/matmul.h"
#include "ops/product/product.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// Inputs: x, up, up_bias, down, down_bias, residual. Saved: x as rows, up, h, down, and the bit mask of h.
void relu_mlp_vjp(VjpContext& v) {
  if (v.sink.needs(5)) v.sink.give(5, v.dy());
  const Tensor dy = flat_rows(v.dy());
  const Tensor& h = v.saved(2);
  if (!v.sink.needs(0) && !v.sink.needs(1) && !v.sink.needs(2)) return give_weight_gradients(v, {{3, dy, h}});
  const Tensor dh = Tensor::empty(h.shape(), h.dtype(), h.device());
  multiply_masked(dh, dy, v.saved(3), h, v.saved(4));
  if (v.sink.needs(0))
    v.sink.into(0,
                [&](const Tensor& dst, float beta) { multiply_into(flat_rows(dst), dh, v.saved(1), beta); });
  give_weight_gradients(v, {{3, dy, h}, {1, dh, v.saved(0)}});
}

// The residual may be undefined.
Tensor apply(const char* op, const Tensor& residual, const Tensor& x, const Tensor& up, const Tensor& up_bias,
             const Tensor& down, const Tensor& down_bias) {
  check_affine(op, x, up, up_bias);
  checks::parameter(op, x, down);
  if (down.rank() != 2 || down.dim(1) != up.dim(0))
    fail<ShapeError>("{}: up {} and down {} (up [mlp, in], down [out, mlp])", op, to_string(up.shape()),
                     to_string(down.shape()));
  check_bias(op, x, down, down_bias);
  if (residual.defined()) check_residual(op, residual, x, down);
  // Without a gradient through h no mask is needed; anomaly mode checks h.
  const bool passes = grad_enabled() && (requires_grad(x) || requires_grad(up) || requires_grad(up_bias));
  if (!passes || anomaly_mode() || !fuses_products(x.device())) {
    const Tensor delta = linear(linear_relu(x, up, up_bias), down, down_bias);
    return residual.defined() ? residual + delta : delta;
  }

  const AffineOperands first = affine_operands(x, up, up_bias);
  const Tensor h = Tensor::empty({first.rows.dim(0), up.dim(0)}, x.dtype(), x.device());
  const Tensor mask = multiply_relu(h, first.rows, first.weight, first.bias);
  const AffineOperands second = affine_operands(h, down, down_bias);
  const Tensor y = Tensor::empty(x.shape().with(-1, down.dim(0)), x.dtype(), x.device());
  if (residual.defined())
    multiply_add(flat_rows(y), flat_rows(residual), h, second.weight, second.bias);
  else
    multiply_into(flat_rows(y), h, raw::transpose(second.weight, 0, 1), 0, second.bias);
  return record(op, {x, up, up_bias, down, down_bias, residual}, y,
                {first.rows, first.weight, h, second.weight, mask}, relu_mlp_vjp);
}

}  // namespace

Tensor relu_mlp(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                const Tensor& down_bias) {
  return apply("relu_mlp", {}, x, up, up_bias, down, down_bias);
}

Tensor add_relu_mlp(const Tensor& residual, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                    const Tensor& down, const Tensor& down_bias) {
  checks::defined("add_relu_mlp", residual, "residual");
  return apply("add_relu_mlp", residual, x, up, up_bias, down, down_bias);
}

}  // namespace eddy
