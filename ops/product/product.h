// Products into memory that is there already, without gradients: what matmul, linear and the ops that fuse a
// product with something else stand on.
#pragma once

#include "tensor/tensor.h"

namespace eddy {

class PackedWeights;

// c = a b + beta c over the last two axes. c is contiguous, or its rows are, apart from each other; a and b
// are copied where gemm cannot read their strides. A bias [n] is added to every row; beta is 0 then. With
// beta 0, c is not read. With `relu` c becomes max(c, 0) last; beta is 0 then and c contiguous. With
// `repeated`, b is a weight that comes again (ops/product/repeated_products.h), and beta 0 or 1.
// dtypes: one for a and b; c of theirs, or f32 where that is bf16; the bias of c's.
void multiply_into(const Tensor& c, const Tensor& a, const Tensor& b, double beta, const Tensor& bias = {},
                   bool relu = false, PackedWeights* repeated = nullptr);

// x [..., width] as [rows, width], row-major: x's storage, or a copy where x is not contiguous.
Tensor flat_rows(const Tensor& x);

}  // namespace eddy
