// Differentiable conversion to another dtype.
#pragma once

#include "tensor/tensor.h"

namespace eddy {

// Returns x in another dtype; x itself if it already has that dtype.
// dtypes: any. bf16 rounds to nearest even, floating to integer truncates towards 0.
// errors: ValueError when x is undefined.
// grad: between floating types, dy in the dtype of x; no gradient passes through integers.
Tensor cast(const Tensor& x, Dtype dtype);

}  // namespace eddy
