// Sums, means and maxima over axes, and the sums that undo broadcasting in gradients.
//
// dtypes: f32 and f64; f32 accumulates in f32 lanes. The order of additions is fixed: 32 lanes inside a row,
// blocks of a size that follows from the shape alone, blocks summed in order; results are the same bits with
// any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// The sum of all elements, a scalar []; 0 of an empty tensor.
// errors: DtypeError.
// grad: dy, repeated.
Tensor sum(const Tensor& x);
// The sum over one axis, which goes, or stays with size 1 when `keep`.
// shapes: [.., n, ..] -> [.., ..].
// errors: ShapeError when there is no such axis; DtypeError.
// grad: dy repeated over the axis.
Tensor sum(const Tensor& x, int axis, bool keep = false);

// The average of all elements, a scalar [].
// errors: ShapeError when there are none; DtypeError.
// grad: dy / count.
Tensor mean(const Tensor& x);
// The average over one axis.
// errors: ShapeError when there is no such axis, or an average of no elements is asked for.
Tensor mean(const Tensor& x, int axis, bool keep = false);

// The largest element over one axis; NaN when one of them is NaN.
// errors: ShapeError when there is no such axis, or it is empty while the result is not; DtypeError.
// grad: dy goes to the first of the largest elements (the first NaN counts as the largest).
Tensor max(const Tensor& x, int axis, bool keep = false);

// x summed over the axes that broadcasting from `shape` to x's shape repeated; untracked. The same storage
// when the shapes are equal.
// errors: ShapeError when `shape` does not broadcast to x's; DtypeError.
Tensor sum_to(const Tensor& x, const Shape& shape);
// The same into a given tensor, untracked: dst = beta * dst + sum; with beta 0 dst may be uninitialised.
// dtypes: one for both, or dst f32 beside x of bf16.
// aliasing: dst must not overlap x.
void sum_into(const Tensor& dst, const Tensor& x, float beta);

// y[o, i] = beta * y[o, i] + scale * (sum over k of x[o, k, i]); y is not read when beta is 0. All row-major.
struct SumArgs {
  Dtype dtype;  // of x; y and the partials are f32 where it is bf16
  std::int64_t outer, count, inner;
  const void* x;  // [outer, count, inner]
  void* y;        // [outer, inner]
  float beta;
  double scale;
  void* partials;  // [outer, sum_blocks(count, inner), inner], or null with one block
};
extern Slot<SumArgs> sum_slot;

// Entries of the summed axis in one block: some 32k elements, enough to pay for handing a block to a thread.
constexpr std::int64_t sum_block(std::int64_t inner) {
  return inner >= 512 ? 64 : 32768 / inner;
}
constexpr std::int64_t sum_blocks(std::int64_t count, std::int64_t inner) {
  return (count + sum_block(inner) - 1) / sum_block(inner);
}

// y[o, i] = max over k of x[o, k, i], index[o, i] = the first k that has it. count >= 1.
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

struct OpSpec;
std::vector<OpSpec> reduce_specs();

}  // namespace eddy
