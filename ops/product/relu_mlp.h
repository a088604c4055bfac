// Two linear layers with ReLU in between, as one op.
#pragma once

#include "tensor/tensor.h"

namespace eddy {

// Returns linear(linear_relu(x, up, up_bias), down, down_bias). The CPU computes exactly these two ops. On a
// GPU with fused products it is one node: the first product also stores the bit mask of
// the ReLU, and the product of its gradient applies the mask. The derivative of the ReLU at exactly 0 is
// then 1, as cuBLASLt's mask has it, and 0 otherwise; in bf16 the sum is rounded before a bias is added to it, so 0
// occurs.
// shapes: x [..., in], up [mlp, in], up_bias [mlp], down [out, mlp], down_bias [out]; biases may be
// undefined; result [..., out].
// dtypes: as linear.
// errors: as linear.
// grad: as linear and linear_relu; a NaN inside may become 0 on a GPU, as in linear_relu.
Tensor relu_mlp(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                const Tensor& down_bias = {});
// Returns residual + relu_mlp(...), on a GPU with fused products by the second product.
// shapes: residual as the result.
Tensor add_relu_mlp(const Tensor& residual, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                    const Tensor& down, const Tensor& down_bias = {});

}  // namespace eddy
