// Copies of a tensor with elements added, repeated or in another place. Axes and lists of sizes mean what they mean in
// PyTorch. Any dtype unless said otherwise; gradients flow through floating ones.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// Returns x with `value` around it. `pads` has the numbers of entries before and after, in pairs from the last axis:
// pad(x, {1, 2}) adds one entry before and two after the last axis, pad(x, {0, 0, 3, 0}) three before the one before
// it.
// errors: ValueError for an odd number of pads, for more pairs than axes, or for a negative pad (narrow cuts).
// grad: dy without the pads.
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& pads, double value = 0);

// Returns x repeated sizes[i] times along axis i; missing leading axes of x have size 1.
// errors: ShapeError for fewer sizes than axes, or a negative one.
// grad: dy summed over the repetitions.
Tensor repeat(const Tensor& x, const std::vector<std::int64_t>& sizes);

// Returns x with the entries of an axis in reverse order.
// dtypes: f32, f64 and bf16.
// errors: ShapeError when there is no such axis; DtypeError.
// grad: dy in reverse order.
Tensor flip(const Tensor& x, int axis);

// Returns x with the entries of an axis moved `shift` places on; those that leave it at one end come in at the other.
// errors: ShapeError when there is no such axis.
// grad: dy moved back.
Tensor roll(const Tensor& x, std::int64_t shift, int axis);

}  // namespace eddy
