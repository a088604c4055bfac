// What linear, linear_relu and relu_mlp share: x W^T + b as products read it, and its gradients, without a
// node of the tape.
#pragma once

#include "autograd/node.h"
#include "tensor/tensor.h"

namespace eddy {

// errors: those of linear, in the name of `op`.
void check_affine(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);
// The part about the bias alone.
void check_bias(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

// x as rows, W and b; parameters of f32 beside x of bf16 rounded. Their gradients are those of the numbers
// they were rounded to, and are not rounded.
struct AffineOperands {
  Tensor rows, factor, shift;
};
AffineOperands affine_operands(const Tensor& x, const Tensor& weight, const Tensor& bias);

// dz = dy where y is positive, else 0.
// aliasing: dz may be dy.
void clip_gradient(const Tensor& dz, const Tensor& dy, const Tensor& y);

// Gives input `weight` dy^T x and input `weight` + 1, the bias, the sum of dy over its rows, where they are
// wanted.
// shapes: dy [rows, out], x [rows, in].
void give_weight_gradients(VjpContext& v, int weight, const Tensor& dy, const Tensor& x);

}  // namespace eddy
