// A tensor as rows of its last axis, for the ops that normalise rows.
#pragma once

#include "tensor/tensor.h"

namespace eddy {

// `rows` rows of `width` adjacent elements, `stride` elements apart. A slice such as x[:, t] of [batch, time,
// width], or a part of its last axis, is taken as it lies; what has no such form is copied.
struct Rows {
  Tensor storage;
  std::int64_t rows = 0, width = 0, stride = 0;

  const void* data() const { return storage.raw_data(); }
};

// Whether the rows of x, rank >= 1, lie so; if they do, `stride` is set.
inline bool lies_in_rows(const Tensor& x, std::int64_t* stride) {
  const std::int64_t width = x.dim(-1);
  // The leading axes must walk through the rows in one progression; an axis of size 1 has no say.
  bool even = width <= 1 || x.strides()[x.rank() - 1] == 1;
  std::int64_t count = 1;
  *stride = width;
  for (int axis = x.rank() - 2; axis >= 0; --axis) {
    if (x.shape()[axis] == 1) continue;
    if (count == 1)
      *stride = x.strides()[axis];
    else
      even = even && x.strides()[axis] == *stride * count;
    count *= x.shape()[axis];
  }
  return even;
}
inline bool lies_in_rows(const Tensor& x) {
  std::int64_t stride = 0;
  return lies_in_rows(x, &stride);
}

// The rows of x, rank >= 1.
inline Rows rows_of(const Tensor& x) {
  const std::int64_t width = x.dim(-1), rows = width == 0 ? 0 : x.elements() / width;
  std::int64_t stride = 0;
  if (lies_in_rows(x, &stride)) return {x, rows, width, stride};
  return {raw::contiguous(x), rows, width, width};
}

}  // namespace eddy
