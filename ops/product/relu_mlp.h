// Two linear layers with ReLU between.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// linear(linear_relu(x, up, up_bias), down, down_bias), and on the CPU nothing else. On a GPU with products
// fused (set_product_kernel) one node: the first product also keeps a bit for each element that was clipped,
// and the gradient passes those bits within its product.
// shapes: x [..., in], up [mlp, in], up_bias [mlp], down [out, mlp], down_bias [out]; biases may be
// undefined; result [..., out].
// dtypes: as linear.
// errors: as linear.
// grad: as linear and linear_relu; a NaN within may become 0 on a GPU, as in linear_relu.
Tensor relu_mlp(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                const Tensor& down_bias = {});

struct OpSpec;
std::vector<OpSpec> relu_mlp_specs();

}  // namespace eddy
