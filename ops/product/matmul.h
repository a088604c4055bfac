// Products of matrices.
#pragma once

#include "ops/core/matmul_precision.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns A B over the last two axes.
// shapes: [..., m, k] and [..., k, n] with equal leading axes, or b [k, n] for every a. The last two axes may
// be row-major or transposed; a tensor with other strides is copied first.
// dtypes: f32, f64, bf16 with sums in f32.
// precision: to what f32 factors may be rounded, also in the backward pass; if parameters among them have a coarser
// one, the products take theirs.
// errors: ShapeError when inner sizes or leading axes differ.
// grad: dA = dC B^T, dB = A^T dC.
Tensor matmul(const Tensor& a, const Tensor& b, MatmulPrecision precision = MatmulPrecision::f32);

}  // namespace eddy
