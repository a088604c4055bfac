// Products of matrices.
#pragma once

#include "tensor/tensor.h"

namespace eddy {

// Returns A B over the last two axes.
// shapes: [..., m, k] and [..., k, n] with equal leading axes, or b [k, n] for every a. The last two axes may
// be row-major or transposed; a tensor with other strides is copied first.
// dtypes: f32, f64, bf16 with sums in f32.
// errors: ShapeError when inner sizes or leading axes differ.
// grad: dA = dC B^T, dB = A^T dC.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace eddy
