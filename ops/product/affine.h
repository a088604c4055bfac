// What linear, linear_relu and relu_mlp share: operands, checks and gradients of z = x W^T + b, without a tape node.
#pragma once

#include <initializer_list>

#include "autograd/node.h"
#include "tensor/tensor.h"

namespace eddy {

// Checks the operands of x W^T + b.
// errors: those of linear, naming `op`.
void check_affine(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);
// Checks x and the weight only, or the bias only.
void check_linear(const char* op, const Tensor& x, const Tensor& weight);
void check_bias(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);
// Checks a residual stream that x W^T is added to.
void check_residual(const char* op, const Tensor& residual, const Tensor& x, const Tensor& weight);

// x as rows, W and b, as the product reads them: with x in bf16, parameters in f32 are rounded to bf16. Their
// gradients are taken at the rounded values and are not rounded themselves.
struct AffineOperands {
  Tensor rows, weight, bias;
};
AffineOperands affine_operands(const Tensor& x, const Tensor& weight, const Tensor& bias);

// dz = dy where y is positive, else 0.
// aliasing: dz may be dy.
void relu_backward(const Tensor& dz, const Tensor& dy, const Tensor& y);

// A linear layer within a node: its weight is the node's input `weight`, its bias the next input.
// shapes: dy [rows, out], x [rows, in].
struct LinearGradient {
  int weight;
  Tensor dy, x;
};
// Passes on the gradients of layers with the same number of rows: of the weight dy^T x, of the bias the sum of dy
// over rows. Does nothing for an input without gradient.
void give_weight_gradients(VjpContext& v, std::initializer_list<LinearGradient> layers);

}  // namespace eddy
