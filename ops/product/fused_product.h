// Products that do more as they store their results, where a GPU's library can and was told to
// (set_product_kernel): sum a factor for a bias' gradient, keep a bit for each element that ReLU let through,
// and pass a gradient on by these bits. What it cannot take goes by products and kernels of their own: each
// function gives the same result either way, up to the order of its sums, a rounding more where bf16 is added
// to, and TF32, to which a product rounds what it sums as well.
//
// Matrices are [rows, columns] without gaps; others go by kernels of their own, too.
#pragma once

#include "ops/core/gradient_buffer.h"
#include "tensor/tensor.h"

namespace eddy {

// Whether products on this device may do more than multiply.
bool fuses_products(Device device);

// y = max(x W^T + b, 0), as multiply_into does it. Returns the bits, u8 [rows, bytes of a row]: 1 where y is
// positive; undefined where none were kept.
Tensor multiply_clipped(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias);

// dz = dy W where y is positive, else 0, by the bits that multiply_clipped gave for y, or by y itself where
// it gave none. Where y is not positive, a NaN of dy W is dropped, too, by y itself; a
// GPU's library may pass it on.
void multiply_masked(const Tensor& dz, const Tensor& dy, const Tensor& weight, const Tensor& y,
                     const Tensor& mask);

// The gradients of a linear layer's weight and bias, dy^T x and the sum of dy over its rows, into buffers
// that are both defined.
void multiply_and_sum(const GradientBuffer& dweight, const GradientBuffer& dbias, const Tensor& dy,
                      const Tensor& x);

}  // namespace eddy
