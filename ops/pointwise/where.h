// Elements of one of two tensors, chosen by a mask or by their sizes.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns a where the mask is not 0 and b where it is 0. Elements that are not chosen have no effect, even if
// they are NaN. Their gradient is 0, and stays 0 through pointwise ops, as in where(x > 0, sqrt(x), x) at 0. An op
// that sums, such as a product or a norm, multiplies it by what it saved: there mask the input, not the result.
// shapes: all three broadcast, aligned at the end.
// dtypes: mask u8; a and b of one dtype, any.
// errors: DtypeError, DeviceError; ShapeError when the shapes do not broadcast.
// grad: da is dy where the mask is not 0 and 0 elsewhere, db is dy where it is 0; each is summed over the
// broadcast axes. The mask has none.
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b);
// The same with a number, which gets no gradient.
Tensor where(const Tensor& mask, const Tensor& a, double b);
Tensor where(const Tensor& mask, double a, const Tensor& b);

// Returns the larger or the smaller of two elements; NaN if one of them is NaN.
// shapes: as where.
// dtypes: as where.
// errors: as where.
// grad: dy goes to the element that was taken; to b if they are equal.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
// Returns x between two numbers: low where x < low, high where x > high, else x, NaN included.
// errors: those of where; ValueError unless low <= high.
// grad: dy where low <= x <= high, else 0.
Tensor clamp(const Tensor& x, double low, double high);

// Returns the lower or the upper triangle of the matrices in the last two axes, 0 elsewhere: of row i the columns up to
// i + diagonal, or from i + diagonal on.
// shapes: x [.., rows, columns].
// dtypes: f32, f64 and bf16.
// errors: ShapeError for fewer than two axes; DtypeError.
// grad: dy in the same triangle, 0 elsewhere.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

namespace detail {
// y over a broadcast shape, contiguous; the operands have stride 0 on the axes where they repeat.
// Neighbouring axes are merged where all three operands allow it; rank >= 1 and no size is 0.
struct WhereArgs {
  Dtype dtype;
  int rank;
  std::int64_t shape[6];
  std::int64_t stride_mask[6], stride_a[6], stride_b[6];
  const std::uint8_t* mask;
  const void *a, *b;
  void* y;
};
extern Slot<WhereArgs> where_slot;
}  // namespace detail

}  // namespace eddy
