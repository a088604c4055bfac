// A tensor as evenly spaced rows of its last axis, for the ops that normalise rows.
#pragma once

#include "tensor/tensor.h"

namespace eddy::detail {

// `rows` rows of `width` adjacent elements, `stride` elements apart. Slices such as x[:, t] of [batch, time,
// width], or a part of its last axis, need no copy; tensors without such a layout are copied.
struct Rows {
  Tensor storage;
  std::int64_t rows = 0, width = 0, stride = 0;

  const void* data() const { return storage.raw_data(); }
};

// Whether x, rank >= 1, has this layout already; if so, sets `stride`.
inline bool has_even_rows(const Tensor& x, std::int64_t* stride) {
  const std::int64_t width = x.dim(-1);
  // The leading axes must step through the rows evenly; axes of size 1 do not matter.
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
inline bool has_even_rows(const Tensor& x) {
  std::int64_t stride = 0;
  return has_even_rows(x, &stride);
}

// Returns the rows of x, rank >= 1.
inline Rows rows_of(const Tensor& x) {
  const std::int64_t width = x.dim(-1), rows = width == 0 ? 0 : x.elements() / width;
  std::int64_t stride = 0;
  if (has_even_rows(x, &stride)) return {x, rows, width, stride};
  return {raw::contiguous(x), rows, width, width};
}

}  // namespace eddy::detail
