// Two linear layers with ReLU in between as one tape node.
//
//   h   = max(x Wu^T + bu, 0)
//   y   = h Wd^T + bd
//
//   dh  = dy Wd where h is positive, else 0
//   dx  = dh Wu
//   dWd = dy^T h        dbd = sum of dy over rows
//   dWu = dh^T x        dbu = sum of dh over rows
#include "ops/product/relu_mlp.h"

#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/product/affine.h"
#include "ops/product/fused_product.h"
#include "ops/product/matmul.h"
#include "ops/product/product.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// Inputs: x, up, up_bias, down, down_bias. Saved: x as rows, up, h, down, and the bit mask of h.
void relu_mlp_vjp(VjpContext& v) {
  const Tensor dy = flat_rows(v.dy());
  const Tensor& h = v.saved(2);
  give_weight_gradients(v, 3, dy, h);
  if (!v.sink.needs(0) && !v.sink.needs(1) && !v.sink.needs(2)) return;
  const Tensor dh = Tensor::empty(h.shape(), h.dtype(), h.device());
  multiply_masked(dh, dy, v.saved(3), h, v.saved(4));
  if (v.sink.needs(0))
    v.sink.into(0,
                [&](const Tensor& dst, float beta) { multiply_into(flat_rows(dst), dh, v.saved(1), beta); });
  give_weight_gradients(v, 1, dh, v.saved(0));
}

}  // namespace

Tensor relu_mlp(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                const Tensor& down_bias) {
  check_affine("relu_mlp", x, up, up_bias);
  checks::parameter("relu_mlp", x, down);
  if (down.rank() != 2 || down.dim(1) != up.dim(0))
    fail<ShapeError>("relu_mlp: up {} and down {} (up [mlp, in], down [out, mlp])", to_string(up.shape()),
                     to_string(down.shape()));
  check_bias("relu_mlp", x, down, down_bias);
  // Without a gradient through h no mask is needed; anomaly mode checks h.
  const bool passes = grad_enabled() && (requires_grad(x) || requires_grad(up) || requires_grad(up_bias));
  if (!passes || anomaly_mode() || !fuses_products(x.device()))
    return linear(linear_relu(x, up, up_bias), down, down_bias);

  const AffineOperands first = affine_operands(x, up, up_bias);
  const Tensor h = Tensor::empty({first.rows.dim(0), up.dim(0)}, x.dtype(), x.device());
  const Tensor mask = multiply_relu(h, first.rows, first.weight, first.bias);
  const AffineOperands second = affine_operands(h, down, down_bias);
  const Tensor y = Tensor::empty(x.shape().with(-1, down.dim(0)), x.dtype(), x.device());
  multiply_into(flat_rows(y), h, raw::transpose(second.weight, 0, 1), 0, second.bias);
  return record("relu_mlp", {x, up, up_bias, down, down_bias}, y,
                {first.rows, first.weight, h, second.weight, mask}, relu_mlp_vjp);
}

}  // namespace eddy
