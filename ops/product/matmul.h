// Matrix products with gradients: matmul, linear, linear with ReLU, and linear layers that share an input.
#pragma once

#include <vector>

#include "ops/product/gemm.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns A B over the last two axes.
// shapes: [..., m, k] and [..., k, n] with equal leading axes, or b [k, n] for every a. The last two axes may
// be row-major or transposed; a tensor with other strides is copied first.
// dtypes: f32, f64, bf16 with sums in f32.
// errors: ShapeError when inner sizes or leading axes differ.
// grad: dA = dC B^T, dB = A^T dC.
Tensor matmul(const Tensor& a, const Tensor& b);

// Returns x W^T + b.
// shapes: x [..., in], weight [out, in], bias [out] or undefined; result [..., out].
// dtypes: f32, f64, bf16; with x in bf16, weight and bias may be f32: they are rounded for the product, and
// their gradients are f32.
// grad: dx = dy W, dW = dy^T x (accumulated directly into the parameter's gradient), db = sum of dy over
// rows.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// Returns residual + linear(x, weight, bias), on a GPU with fused products by one product.
// shapes: as linear; the residual has the result's.
// dtypes: as linear; the residual has the result's.
// errors: as linear; ShapeError and DtypeError for the residual.
// grad: as linear; dresidual = dy.
Tensor add_linear(const Tensor& residual, const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// Returns max(x W^T + b, 0). The product applies the ReLU, so the values before it are not stored. Otherwise
// as linear, except that a NaN may become 0 on a GPU.
// grad: as linear, with dy set to 0 where the result is not positive. Saved: x, the weight and the result.
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// Returns x W_i^T for several weights, side by side, like `linear` with the stacked weights. On a GPU this is
// one product if the weights are adjacent in memory (parameters declared one after the other usually are),
// otherwise one product per weight. The same holds for the gradients.
// shapes: x [..., in], weights [out_i, in]; result [..., sum of out_i].
// dtypes: as linear.
// errors: ValueError without weights; ShapeError, DtypeError, DeviceError as linear.
// grad: as linear.
Tensor joint_linear(const Tensor& x, const std::vector<Tensor>& weights);
// Returns the same products as separate tensors, for ops that read them one by one.
// aliasing: on a GPU slices of one buffer, with its row stride.
// grad: as linear; none for the weight of a part that received no gradient.
std::vector<Tensor> joint_linear_parts(const Tensor& x, const std::vector<Tensor>& weights);

}  // namespace eddy
