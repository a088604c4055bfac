// Matrix products with gradients.
#pragma once

#include <vector>

#include "ops/product/gemm.h"
#include "tensor/tensor.h"

namespace eddy {

// A B over the last two axes.
// shapes: [..., m, k] and [..., k, n] with equal leading axes, or b [k, n] for every a. Strides: the last two
// axes may be row-major or transposed; anything else is copied first.
// dtypes: f32, f64, bf16 with sums in f32.
// errors: ShapeError when inner sizes or leading axes differ.
// grad: dA = dC B^T, dB = A^T dC.
Tensor matmul(const Tensor& a, const Tensor& b);

// x W^T + b.
// shapes: x [..., in], weight [out, in], bias [out] or undefined; result [..., out].
// dtypes: f32, f64, bf16; beside x of bf16, weight and bias may be f32: they are rounded for the product, and
// their gradients are f32.
// grad: dx = dy W, dW = dy^T x (summed straight into the parameter's gradient), db = sum of dy over rows.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// max(x W^T + b, 0), written by the product: what is clipped is never stored. As linear, but that a NaN may
// become 0 on a GPU.
// grad: that of linear for dy where the result is positive, else 0; only x, the weight and the result are
// kept.
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// x W_i^T for several weights, side by side: what `linear` gives for the weights stacked upon each other. On
// a GPU it is one product where they lie so in memory, as parameters declared one after the other mostly do,
// and elsewhere one product each; the same goes for their gradients.
// shapes: x [..., in], weights [out_i, in]; result [..., sum of out_i].
// dtypes: as linear.
// errors: ValueError without weights; ShapeError, DtypeError, DeviceError as linear.
// grad: as linear.
Tensor joint_linear(const Tensor& x, const std::vector<Tensor>& weights);
// The same products as tensors of their own, for ops that read them one by one.
// aliasing: on a GPU parts of one buffer, with rows as far apart as above.
// grad: as linear; none for the weight of a part that got none.
std::vector<Tensor> joint_linear_parts(const Tensor& x, const std::vector<Tensor>& weights);

struct OpSpec;
std::vector<OpSpec> matmul_specs();

}  // namespace eddy
