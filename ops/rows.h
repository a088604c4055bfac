// A tensor as rows of its last axis, for the ops that normalise rows.
#pragma once

#include "tensor/tensor.h"

namespace eddy {

// `rows` rows of `width` adjacent elements, `stride` elements apart. A slice such as x[:, t] of [batch, time,
// width] is taken as it lies; what has no such form is copied.
struct Rows {
  Tensor storage;
  std::int64_t rows = 0, width = 0, stride = 0;

  const void* data() const { return storage.raw_data(); }
};

// The rows of x, rank >= 1.
inline Rows rows_of(const Tensor& x) {
  const std::int64_t width = x.dim(-1), rows = width == 0 ? 0 : x.elements() / width;
  if (x.rank() == 2 && x.strides()[1] == 1) return {x, rows, width, x.strides()[0]};
  return {raw::contiguous(x), rows, width, width};
}

}  // namespace eddy
