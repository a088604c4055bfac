// Products into existing memory, without gradients, on which matmul, linear and the ops with a fused product are
// built; and what linear, linear_relu and relu_mlp share: operands, checks and gradients of z = x W^T + b, without
// a tape node.
#pragma once

#include "autograd/node.h"
#include "tensor/tensor.h"

namespace eddy {

class PackedWeights;

// Writes c = a b + beta c over the last two axes. c is not read if beta is 0.
//   c          contiguous, or with contiguous rows at any row stride
//   a, b       copied if gemm cannot read their strides
//   bias       [n], added to every row; needs beta = 0
//   relu       c becomes max(c, 0) last; needs beta = 0 and a contiguous c
//   repeated   b is a weight that is used again (repeated_products.h); needs beta 0 or 1
// dtypes: one for a and b; c has theirs, or f32 if theirs is bf16; the bias has c's.
void multiply_into(const Tensor& c, const Tensor& a, const Tensor& b, double beta, const Tensor& bias = {},
                   bool relu = false, PackedWeights* repeated = nullptr);

// Returns x, or a copy if gemm cannot read its strides.
Tensor readable_by_gemm(const Tensor& x);

// Returns x [..., width] as [rows, width], row-major.
// aliasing: x's storage, or a copy if x is not contiguous.
Tensor flat_rows(const Tensor& x);

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
