// Padding and the rearrangements composed of other ops.
#include "ops/composed/rearrange.h"

#include <fmt/ranges.h>

#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/index/index_ops.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"
#include "tensor/create.h"

namespace eddy {

Tensor pad(const Tensor& x, const std::vector<std::int64_t>& pads, double value) {
  checks::defined("pad", x);
  if (pads.size() % 2 != 0 || std::ssize(pads) > 2 * x.rank())
    fail<ValueError>("pad: pads [{}] for {} (before and after, in pairs from the last axis)",
                     fmt::join(pads, ", "), to_string(x.shape()));
  for (const std::int64_t count : pads)
    if (count < 0) fail<ValueError>("pad: {} entries (0 or more; narrow cuts)", count);
  const auto inside = [pads, from = x.shape()](Tensor whole) {
    for (std::size_t i = 0; i < pads.size(); i += 2) {
      const int axis = from.rank() - 1 - static_cast<int>(i / 2);
      whole = raw::narrow(whole, axis, pads[i], from[axis]);
    }
    return whole;
  };
  Shape shape = x.shape();
  for (std::size_t i = 0; i < pads.size(); i += 2) {
    const int axis = shape.rank() - 1 - static_cast<int>(i / 2);
    shape = shape.with(axis, pads[i] + shape[axis] + pads[i + 1]);
  }
  const Tensor y = Tensor::full(shape, value, x.dtype(), x.device());
  raw::copy_into(inside(y), x);
  return record("pad", {x}, y, {}, [inside](VjpContext& v) { v.sink.accumulate(0, inside(v.dy())); });
}

Tensor repeat(const Tensor& x, const std::vector<std::int64_t>& sizes) {
  checks::defined("repeat", x);
  bool fits = std::ssize(sizes) >= x.rank();
  for (const std::int64_t size : sizes) fits = fits && size >= 0;
  if (!fits)
    fail<ShapeError>("repeat: sizes [{}] for {} (one for each axis, 0 or more; more are new axes in front)",
                     fmt::join(sizes, ", "), to_string(x.shape()));
  Tensor y = x;
  while (y.rank() < static_cast<int>(sizes.size())) y = unsqueeze(y, 0);
  for (int axis = 0; axis < y.rank(); ++axis) {
    const std::int64_t size = sizes[static_cast<std::size_t>(axis)];
    if (size == 0)
      y = narrow(y, axis, 0, 0);
    else if (size > 1)
      y = concat(std::vector<Tensor>(static_cast<std::size_t>(size), y), axis);
  }
  return y;
}

Tensor flip(const Tensor& x, int axis) {
  checks::defined("flip", x);
  const auto last = static_cast<double>(x.dim(axis) - 1);
  return index_select(x, axis, arange(last, -1, -1, Dtype::i64, x.device()));
}

Tensor roll(const Tensor& x, std::int64_t shift, int axis) {
  checks::defined("roll", x);
  const std::int64_t size = x.dim(axis);
  if (size == 0) return x;
  const std::int64_t first = (shift % size + size) % size;  // the place of entry 0 in the result
  if (first == 0) return x;
  return concat({narrow(x, axis, size - first, first), narrow(x, axis, 0, size - first)}, axis);
}

}  // namespace eddy
