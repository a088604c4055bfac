// Reductions and softmax over any axis, composed of other ops.
//
// dtypes: f32, f64 and bf16, which is computed in f32.
#pragma once

#include <concepts>

#include "tensor/tensor.h"

namespace eddy {

// Returns the natural logarithm of the sum of e^x over one axis, without overflow: -inf where all are -inf, +inf
// where one is +inf, NaN where one is NaN.
// errors: those of max.
// grad: dy e^(x - y), repeated over the axis.
Tensor logsumexp(const Tensor& x, int axis, bool keep = false);

// Returns the variance over one axis or of all elements: the sum of (x - mean)^2 over count - correction. Correction 1
// is the unbiased estimate, 0 the variance of exactly these numbers. NaN where count <= correction.
// errors: those of mean; ValueError for a correction below 0.
// grad: 2 dy (x - mean) / (count - correction), repeated over the axis.
Tensor var(const Tensor& x, int axis, bool keep = false, double correction = 1);
Tensor var(const Tensor& x);
void var(const Tensor& x, detail::NoAxis auto, bool = false, double = 1) = delete;
// Returns the standard deviation, the square root of the variance, with its arguments and errors.
// grad: that of the root, which is infinite where the deviation is 0.
Tensor std(const Tensor& x, int axis, bool keep = false, double correction = 1);
Tensor std(const Tensor& x);
void std(const Tensor& x, detail::NoAxis auto, bool = false, double = 1) = delete;

// Returns the product over one axis or of all elements, multiplied in halves; 1 for none.
// errors: ShapeError when there is no such axis; DtypeError.
// grad: dy times the product of the others, also where an element is 0.
Tensor prod(const Tensor& x, int axis, bool keep = false);
Tensor prod(const Tensor& x);

namespace detail {
Tensor softmax_over(const Tensor& x, int axis);
}  // namespace detail
// softmax (ops/reduce/softmax.h) over any one axis, without options; -1 is the last. A template, so that braces are
// options.
// errors: ShapeError when there is no such axis; DtypeError.
template <std::signed_integral Axis>
Tensor softmax(const Tensor& x, Axis axis) {
  return detail::softmax_over(x, static_cast<int>(axis));
}
// log_softmax over any one axis, with the same errors.
Tensor log_softmax(const Tensor& x, int axis);

}  // namespace eddy
