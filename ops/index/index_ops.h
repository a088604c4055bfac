// Rows picked by index along any axis, rows added at an index, and one-hot vectors.
//
// Sums over equal indices have the order of the positions, as in gather.h.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy {

// Returns y[.., j, ..] = x[.., index[j], ..]: whole slices of one axis, in the order of the index.
// shapes: x [.., size, ..], index [picks] -> [.., picks, ..].
// dtypes: x any; index i32 or i64.
// errors: ValueError names an index outside the axis (not on a GPU: there its slice is NaN, or of whole numbers has all
// bits set); ShapeError; DtypeError; DeviceError.
// grad: dx = index_add of dy to zeros; whole numbers have none.
Tensor index_select(const Tensor& x, int axis, const Tensor& index);

// Returns x with the slices of `source` added: y[.., index[j], ..] = x + the sum of source[.., j, ..] over these j. x
// stays as it is.
// shapes: source as x, but for `axis`, which has the size of the index.
// dtypes: x and source f32, f64 and bf16, of one dtype; index i32 or i64.
// errors: as index_select (on a GPU an index outside the axis adds nothing).
// grad: dx = dy; dsource = index_select(dy, axis, index).
Tensor index_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source);

// Returns y[.., c] = 1 where ids[..] = c, else 0.
// shapes: ids [...] -> [..., classes].
// dtypes: ids i32 or i64; the result f32 or another.
// errors: ValueError names an id outside [0, classes) (not on a GPU: there its row is zeros), or a negative number of
// classes; DtypeError.
// grad: none.
Tensor one_hot(const Tensor& ids, std::int64_t classes, Dtype dtype = Dtype::f32);

}  // namespace eddy
