// Views and their gradients: the gradient of a view of x is the same view of x's gradient.
#include "ops/views/views.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy {
namespace {

// Returns t in the dtype of the gradient it is added to: a bf16 leaf may accumulate its gradient in f32.
Tensor like(const Tensor& target, const Tensor& t) {
  return t.dtype() == target.dtype() ? t : raw::cast(t, target.dtype());
}

// Whether x can be viewed with these sizes. Axes with contiguous addresses form a run, and each run must be
// split into whole new axes.
bool viewable(const Tensor& x, const Shape& shape) {
  if (x.contiguous()) return true;
  int to = shape.rank() - 1;
  std::int64_t run = 1;
  for (int i = x.rank() - 1; i >= 0;) {
    int outer = i - 1;
    while (outer >= 0 && x.shape()[outer] == 1) --outer;
    run *= x.shape()[i];
    const bool continues =
        x.shape()[i] == 1 || (outer >= 0 && x.strides()[outer] == x.strides()[i] * x.shape()[i]);
    i = outer;
    if (continues && outer >= 0) continue;
    while (to >= 0 && run % shape[to] == 0) run /= shape[to--];
    if (run != 1) return false;
  }
  return true;
}

Tensor reshaped(const Tensor& x, const Shape& shape) {
  return raw::reshape(viewable(x, shape) ? x : raw::copy(x), shape);
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  checks::defined("reshape", x);
  if (shape.elements() != x.elements())
    fail<ShapeError>("reshape: {} has {} elements and {} has {} (equal numbers)", to_string(x.shape()),
                     x.elements(), to_string(shape), shape.elements());
  return record("reshape", {x}, reshaped(x, shape), {},
                [from = x.shape()](VjpContext& v) { v.sink.accumulate(0, reshaped(v.dy(), from)); });
}

Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> sizes) {
  checks::defined("reshape", x);
  std::vector<std::int64_t> found(sizes);
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  for (std::int64_t& size : found) {
    if (size < -1 || (size == -1 && open != nullptr))
      fail<ShapeError>("reshape: sizes [{}] (0 or more each; one of them may be -1)", fmt::join(sizes, ", "));
    if (size == -1)
      open = &size;
    else
      known *= size;
  }
  if (open != nullptr) {
    if (known == 0 || x.elements() % known != 0)
      fail<ShapeError>(
          "reshape: {} has {} elements, which [{}] cannot divide evenly (the other sizes come to {})",
          to_string(x.shape()), x.elements(), fmt::join(sizes, ", "), known);
    *open = x.elements() / known;
  }
  return reshape(x, Shape(found));
}

Tensor flatten(const Tensor& x) {
  checks::defined("flatten", x);
  return reshape(x, Shape{x.elements()});
}

Tensor squeeze(const Tensor& x) {
  checks::defined("squeeze", x);
  std::vector<std::int64_t> sizes = x.shape().to_vector();
  std::erase(sizes, 1);
  return reshape(x, Shape(sizes));
}

Tensor squeeze(const Tensor& x, int axis) {
  checks::defined("squeeze", x);
  if (x.dim(axis) != 1)
    fail<ShapeError>("squeeze: axis {} of {} has size {} (1)", axis, to_string(x.shape()), x.dim(axis));
  return reshape(x, x.shape().without(axis));
}

Tensor unsqueeze(const Tensor& x, int axis) {
  checks::defined("unsqueeze", x);
  return reshape(x, x.shape().inserted(axis, 1));
}

Tensor transpose(const Tensor& x, int axis_a, int axis_b) {
  checks::defined("transpose", x);
  return record("transpose", {x}, raw::transpose(x, axis_a, axis_b), {}, [axis_a, axis_b](VjpContext& v) {
    v.sink.accumulate(0, raw::transpose(v.dy(), axis_a, axis_b));
  });
}

Tensor permute(const Tensor& x, const std::vector<int>& axes) {
  checks::defined("permute", x);
  const auto refuse = [&] {
    fail<ShapeError>("permute: axes [{}] of {} (each axis once)", fmt::join(axes, ", "),
                     to_string(x.shape()));
  };
  if (std::ssize(axes) != x.rank()) refuse();
  std::vector<int> order(axes.size());  // the axes of x in y
  std::iota(order.begin(), order.end(), 0);
  Tensor y = x;
  for (int to = 0; to < x.rank(); ++to) {
    const auto place = order.begin() + to;
    const auto found =
        std::find(place, order.end(), x.shape().normal_axis(axes[static_cast<std::size_t>(to)]));
    if (found == order.end()) refuse();
    if (found == place) continue;
    y = transpose(y, to, static_cast<int>(found - order.begin()));
    std::swap(*place, *found);
  }
  return y;
}

Tensor narrow(const Tensor& x, int axis, std::int64_t start, std::int64_t length) {
  checks::defined("narrow", x);
  return record("narrow", {x}, raw::narrow(x, axis, start, length), {},
                [axis, start, length, whole = x.dim(axis) == length](VjpContext& v) {
                  if (whole) return v.sink.accumulate(0, v.dy());
                  v.sink.slice(0, axis, start, length,
                               [&](const Tensor& dst) { raw::add_into(dst, like(dst, v.dy())); });
                });
}

Tensor select(const Tensor& x, int axis, std::int64_t index) {
  checks::defined("select", x);
  const std::int64_t entry = index < 0 && x.rank() > 0 ? index + x.dim(axis) : index;
  return record("select", {x}, raw::select(x, axis, entry), {}, [axis, entry](VjpContext& v) {
    v.sink.slice(0, axis, entry, 1,
                 [&](const Tensor& dst) { raw::add_into(raw::select(dst, axis, 0), like(dst, v.dy())); });
  });
}

Tensor expand(const Tensor& x, const Shape& shape) {
  checks::defined("expand", x);
  return record("expand", {x}, raw::expand(x, shape), {}, [](VjpContext& v) {
    v.sink.into(0, [&](const Tensor& dst, float beta) { sum_into(dst, like(dst, v.dy()), beta); });
  });
}

// All parts share one node, so that the gradient of x is written once; a part without a gradient is set to
// zero.
std::vector<Tensor> split(const Tensor& x, int axis, const std::vector<std::int64_t>& sizes) {
  checks::defined("split", x);
  std::int64_t sum = 0;
  bool fits = true;
  for (const std::int64_t size : sizes) {
    fits = fits && size >= 0 && size <= x.dim(axis);
    sum += size;
  }
  if (!fits || sum != x.dim(axis))
    fail<ShapeError>("split: sizes [{}] for axis {} of {} (0 or more each, and their sum is the axis)",
                     fmt::join(sizes, ", "), axis, to_string(x.shape()));
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(raw::narrow(x, axis, start, size));
    start += size;
  }
  record_many("split", {x}, parts, {}, [axis, sizes](VjpContext& v) {
    v.sink.into(0, [&](const Tensor& dst, float beta) {
      std::vector<Tensor> to, from;
      std::int64_t at = 0;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const Tensor part = raw::narrow(dst, axis, at, sizes[i]);
        const Tensor& dy = v.dy(static_cast<int>(i));
        if (!dy.defined()) {
          if (beta == 0) raw::fill(part, 0);
        } else if (beta == 0) {
          to.push_back(part);
          from.push_back(like(dst, dy));
        } else {
          raw::add_into(part, like(dst, dy));
        }
        at += sizes[i];
      }
      raw::copy_all(to, from);
    });
  });
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t count, int axis) {
  checks::defined("chunk", x);
  const std::int64_t size = x.dim(axis);
  if (count < 1 || size % count != 0)
    fail<ShapeError>(
        "chunk: {} parts of axis {} of {} (a number that divides its size; split takes sizes of each)", count,
        axis, to_string(x.shape()));
  return split(x, axis, std::vector<std::int64_t>(static_cast<std::size_t>(count), size / count));
}

Tensor contiguous(const Tensor& x) {
  checks::defined("contiguous", x);
  if (x.contiguous()) return x;
  return record("contiguous", {x}, raw::copy(x), {}, [](VjpContext& v) { v.sink.accumulate(0, v.dy()); });
}

Tensor concat(const std::vector<Tensor>& tensors, int axis) {
  if (tensors.empty()) fail<ValueError>("concat: no tensors (at least one)");
  const Tensor& first = tensors[0];
  checks::defined("concat", first);
  const int axis_number = first.shape().normal_axis(axis);
  std::vector<std::int64_t> sizes;
  for (const Tensor& x : tensors) {
    checks::same_kind("concat", first, x);
    if (x.rank() != first.rank() || x.shape().with(axis_number, 0) != first.shape().with(axis_number, 0))
      fail<ShapeError>("concat: {} and {} along axis {} (all other sizes must be equal)",
                       to_string(first.shape()), to_string(x.shape()), axis_number);
    sizes.push_back(x.shape()[axis_number]);
  }
  const Tensor y = raw::concat(tensors, axis_number);
  record_many("concat", tensors, {y}, {}, [axis_number, sizes](VjpContext& v) {
    std::int64_t at = 0;
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const int input = static_cast<int>(k);
      if (v.sink.needs(input)) v.sink.accumulate(input, raw::narrow(v.dy(), axis_number, at, sizes[k]));
      at += sizes[k];
    }
  });
  return y;
}

Tensor stack(const std::vector<Tensor>& tensors, int axis) {
  if (tensors.empty()) fail<ValueError>("stack: no tensors (at least one)");
  std::vector<Tensor> parts;
  for (const Tensor& x : tensors) {
    parts.push_back(unsqueeze(x, axis));
    if (x.shape() != tensors[0].shape())
      fail<ShapeError>("stack: {} and {} (one shape for all)", to_string(tensors[0].shape()),
                       to_string(x.shape()));
  }
  return concat(parts, axis);
}

}  // namespace eddy
