// Sums, means and maxima over axes, and the sums that undo broadcasting in gradients.
//
// dtypes: f32, f64 and bf16; all but f64 accumulate in f32. The order of additions is fixed: 32 lanes inside a
// row, blocks of a size that depends only on the shape, and blocks summed in order. So results are bit-identical
// with any number of threads.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns the sum of all elements, a scalar []; 0 for an empty tensor.
// errors: DtypeError.
// grad: dy, broadcast to x's shape.
Tensor sum(const Tensor& x);
// Returns the sum over one axis. The axis is removed, or with `keep` it stays with size 1.
// shapes: [.., n, ..] -> [.., ..].
// errors: ShapeError when there is no such axis; DtypeError.
// grad: dy repeated over the axis.
Tensor sum(const Tensor& x, int axis, bool keep = false);

// Returns the average of all elements, a scalar [].
// errors: ShapeError when there are none; DtypeError.
// grad: dy / count.
Tensor mean(const Tensor& x);
// Returns the average over one axis.
// errors: ShapeError if there is no such axis, or if it is empty and the result is not; DtypeError.
// grad: dy / count, repeated over the axis.
Tensor mean(const Tensor& x, int axis, bool keep = false);

// Returns the largest element over one axis; NaN if one of them is NaN.
// errors: ShapeError if there is no such axis, or if it is empty and the result is not; DtypeError.
// grad: dy goes to the first of the largest elements (the first NaN counts as the largest).
Tensor max(const Tensor& x, int axis, bool keep = false);
// Returns the largest element of all, a scalar [].
// errors: ShapeError when there are none; DtypeError.
Tensor max(const Tensor& x);
// Returns the smallest element over one axis, or of all: -max(-x), with its errors and its gradient.
Tensor min(const Tensor& x, int axis, bool keep = false);
Tensor min(const Tensor& x);

// Returns the place of the largest element of each row along an axis (the first of equal ones; the first NaN
// counts as the largest), or in the whole tensor, counted in row-major order. i64.
// errors: ShapeError when there is no such axis, or it is empty while the result is not; DtypeError.
// grad: none.
Tensor argmax(const Tensor& x, int axis, bool keep = false);
Tensor argmax(const Tensor& x);
// The same for the smallest element: argmax(-x); the first NaN counts as the smallest.
Tensor argmin(const Tensor& x, int axis, bool keep = false);
Tensor argmin(const Tensor& x);

// An axis comes before the flag that keeps it, and maximum(x, y) and minimum(x, y) compare with a number.
void sum(const Tensor& x, detail::NoAxis auto, bool = false) = delete;
void mean(const Tensor& x, detail::NoAxis auto, bool = false) = delete;
void max(const Tensor& x, detail::NoAxis auto, bool = false) = delete;
void min(const Tensor& x, detail::NoAxis auto, bool = false) = delete;
void argmax(const Tensor& x, detail::NoAxis auto, bool = false) = delete;
void argmin(const Tensor& x, detail::NoAxis auto, bool = false) = delete;

// Returns x summed to `shape`, over the axes that broadcasting from `shape` to x's shape repeats. The result
// is untracked. If the shapes are equal, it shares the storage of x.
// errors: ShapeError when `shape` does not broadcast to x's; DtypeError.
Tensor sum_to(const Tensor& x, const Shape& shape);
// Computes dst = beta * dst + (x summed to dst's shape), untracked; with beta 0 dst may be uninitialised.
// dtypes: one for both, or dst f32 and x bf16.
// aliasing: dst must not overlap x.
void sum_into(const Tensor& dst, const Tensor& x, float beta);

namespace detail {
// y[o, i] = beta * y[o, i] + scale * (sum over k of x[o, k, i]); y is not read when beta is 0. All row-major.
struct SumArgs {
  Dtype dtype;  // of x; if bf16, y and the partials are f32
  std::int64_t outer, count, inner;
  const void* x;  // [outer, count, inner]
  void* y;        // [outer, inner]
  float beta;
  double scale;
  void* partials;  // [outer, sum_blocks(count, inner), inner], or null with one block
};
extern Slot<SumArgs> sum_slot;

// Entries of the summed axis in one block: some 32k elements, so that a block is worth a chunk of work.
constexpr std::int64_t sum_block(std::int64_t inner) {
  return inner >= 512 ? 64 : 32768 / inner;
}
// The number of such blocks.
constexpr std::int64_t sum_blocks(std::int64_t count, std::int64_t inner) {
  return (count + sum_block(inner) - 1) / sum_block(inner);
}

// y[o, i] = max over k of x[o, k, i], index[o, i] = the first such k. count >= 1.
struct MaxArgs {
  Dtype dtype;
  std::int64_t outer, count, inner;
  const void* x;
  void* y;
  std::int64_t* index;
};
extern Slot<MaxArgs> max_forward_slot;

// dx = beta * dx, then dx[o, index[o, i], i] += dy[o, i]; dx is not read when beta is 0.
struct MaxBackwardArgs {
  Dtype dtype;
  std::int64_t outer, count, inner;
  const void* dy;
  const std::int64_t* index;
  void* dx;
  float beta;
};
extern Slot<MaxBackwardArgs> max_backward_slot;
}  // namespace detail

}  // namespace eddy
