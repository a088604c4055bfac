// Differentiable views (reshape, transpose, slices, expand) and the copies that go with them (contiguous,
// concat, stack). Any dtype; gradients flow through floating ones.
//
// A view shares its bytes with x. The gradient of a slice is added only to that slice of x's gradient. So
// a loop over T slices, one per time step, costs one pass over x and not T passes.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// Returns x with another shape in row-major order: a view if the strides allow one, else a copy.
// errors: ShapeError when the numbers of elements differ.
Tensor reshape(const Tensor& x, const Shape& shape);
// The same; one of the sizes may be -1: it is computed from the number of elements.
// errors: ShapeError with two such sizes, a size below -1, or sizes that do not divide the elements.
Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> sizes);

// Returns x as one axis, in row-major order: reshape(x, {-1}).
// shapes: x of any shape -> [elements].
Tensor flatten(const Tensor& x);

// Returns x without its axes of size 1, or without the given one.
// errors: ShapeError when there is no such axis, or its size is not 1.
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int axis);
// Returns x with a new axis of size 1 at place `axis` of the result; -1 is the last.
// errors: ShapeError when there is no such place, or x has six axes already.
Tensor unsqueeze(const Tensor& x, int axis);

// Returns a view with two axes swapped.
// errors: ShapeError when there is no such axis.
Tensor transpose(const Tensor& x, int axis_a, int axis_b);
// Returns a view whose axis i is axis axes[i] of x; x itself if that changes nothing.
// errors: ShapeError unless `axes` names each axis of x once.
Tensor permute(const Tensor& x, const std::vector<int>& axes);

// Returns a view of `length` entries of an axis from `start`.
// errors: ShapeError outside the axis.
Tensor narrow(const Tensor& x, int axis, std::int64_t start, std::int64_t length);

// Returns a view of one entry of an axis, without that axis; -1 is the last entry.
// errors: ShapeError outside the axis.
Tensor select(const Tensor& x, int axis, std::int64_t index);

// Returns a view in which sizes of 1, and missing leading axes, repeat with stride 0.
// errors: ShapeError when another size differs.
// grad: dy summed over the repeated axes.
Tensor expand(const Tensor& x, const Shape& shape);

// Returns views of consecutive parts of an axis.
// errors: ShapeError unless the sizes are 0 or more and add up to the axis.
std::vector<Tensor> split(const Tensor& x, int axis, const std::vector<std::int64_t>& sizes);
// The axis behind the sizes, as PyTorch has it: the compiler asks for the other order.
template <std::integral Size>
std::vector<Tensor> split(const Tensor&, std::initializer_list<Size>, int = 0) {
  static_assert(sizeof(Size) == 0, "write the axis before the sizes: split(x, axis, {2, 2})");
  return {};
}
// Returns views of `count` equal parts of an axis: the four gates of an LSTM are chunk(x, 4, -1).
// errors: ShapeError when there is no such axis, or count does not divide it.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t count, int axis);

// Returns x itself when it is row-major, else a row-major copy.
Tensor contiguous(const Tensor& x);

// Returns the tensors concatenated along an axis, as a new tensor.
// errors: ValueError without tensors; ShapeError when other sizes differ; DtypeError and DeviceError when
// they mix.
Tensor concat(const std::vector<Tensor>& tensors, int axis);
// Returns the tensors side by side along a new axis, at place `axis` of the result, as a new tensor.
// shapes: each [a, b] -> [count, a, b] for axis 0; -1 is the last axis of the result.
// errors: ValueError without tensors; ShapeError when shapes differ or there is no such place; DtypeError and
// DeviceError when they mix.
Tensor stack(const std::vector<Tensor>& tensors, int axis = 0);

}  // namespace eddy
