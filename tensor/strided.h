// A loop over two strided tensors of one shape: calls `row(n, at, step, other_at, other_step)` for each row
// of the last axis. `n` is its length, `at` and `other_at` are the offsets of its first elements, and the
// steps are the strides inside it, all in elements.
#pragma once

#include "tensor/shape.h"

namespace eddy {

template <class Row>
void for_each_strided_row(const Shape& shape, const std::int64_t* strides, const std::int64_t* other_strides,
                          Row&& row) {
  const int rank = shape.rank();
  if (shape.elements() == 0) return;
  if (rank == 0)
    return row(std::int64_t{1}, std::int64_t{0}, std::int64_t{1}, std::int64_t{0}, std::int64_t{1});
  std::int64_t index[kMaxRank] = {};
  std::int64_t at = 0, other_at = 0;
  for (;;) {
    row(shape[rank - 1], at, strides[rank - 1], other_at, other_strides[rank - 1]);
    int axis = rank - 2;
    for (; axis >= 0; --axis) {
      at += strides[axis];
      other_at += other_strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= strides[axis] * shape[axis];
      other_at -= other_strides[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace eddy
