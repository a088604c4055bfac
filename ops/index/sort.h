// Sorting along an axis. The order is found on the host: on a GPU these ops wait for the device.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy {

namespace detail {
// Elements and where they were along the axis.
struct SortedValues {
  Tensor values, indices;  // of x's dtype, and i64
};
}  // namespace detail

// Returns the elements of each row along an axis in rising or falling order, and their places in x. Equal elements keep
// their order; NaN counts as the largest.
// shapes: both as x.
// dtypes: f32, f64 and bf16.
// errors: ShapeError when there is no such axis; DtypeError.
// grad: dx = dy at the places.
detail::SortedValues sort(const Tensor& x, int axis = -1, bool descending = false);
void sort(const Tensor& x, detail::NoAxis auto, bool = false) = delete;  // the axis comes before `descending`

// Returns the k largest elements of each row along an axis, the largest first, and their places in x: the first k of
// sort(x, axis, true).
// shapes: as x, with size k along the axis.
// dtypes: as sort.
// errors: as sort; ValueError for a k below 0 or above the axis.
// grad: as sort.
detail::SortedValues topk(const Tensor& x, std::int64_t k, int axis = -1);

}  // namespace eddy
