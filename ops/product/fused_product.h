// Products fused with an epilogue. They need a GPU whose library supports the fusion, and whose backend
// expects it to be faster:
//
//   multiply_and_sum     also sums an operand, for a bias gradient
//   multiply_relu        also stores a bit for each element that ReLU lets through
//   multiply_masked      masks a gradient by these bits
//   multiply_add         also adds the residual stream
//
// If the library does not support a fusion, the functions use a plain product and separate kernels. The
// result is the same up to three things: the order of sums, one rounding more or fewer where the result is
// added to bf16, and TF32, to which a fused product also rounds the values that it sums.
//
// Only matrices [rows, columns] of contiguous rows are fused.
#pragma once

#include <functional>

#include "ops/core/gradient_buffer.h"
#include "tensor/tensor.h"

namespace eddy {

// Whether products on this device may be fused.
bool fuses_products(Device device);
// Whether a product on x's device should add a residual stream of x's dtype: in bf16. There it costs nothing,
// and a norm of the sum reads the sum alone.
bool adds_in_products(const Tensor& x);

// Writes y = max(x W^T + b, 0), as multiply_into does. Returns a bit mask, u8 [rows, bytes of a row], 1 where
// y is positive; undefined if the product was not fused.
Tensor multiply_relu(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias);

// Writes dz = dy W where y is positive, else 0. `mask` is the result of multiply_relu for y; if it is
// undefined, y itself decides. Then a NaN of dy W becomes 0 where y is not positive; the GPU's library may
// keep it.
void multiply_masked(const Tensor& dz, const Tensor& dy, const Tensor& weight, const Tensor& y,
                     const Tensor& mask);

// Writes y = residual + x W^T + b; the bias may be undefined.
void multiply_add(const Tensor& y, const Tensor& residual, const Tensor& x, const Tensor& weight,
                  const Tensor& bias);

// Writes the gradient of a linear layer's weight, dy^T x, and the sum of dy over rows into the tensor that
// `sums` returns. Returns false, and does nothing, if the product is not fused.
bool multiply_and_sum(const GradientBuffer& dweight, const Tensor& dy, const Tensor& x,
                      const std::function<Tensor()>& sums);

}  // namespace eddy
