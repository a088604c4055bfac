// Checks, axes and gradients of the reductions.
#include "ops/reduce/reduce.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

// A shape around one axis: [outer, count, inner].
struct Around {
  std::int64_t outer = 1, count = 1, inner = 1;
};

Around around(const Shape& shape, int axis) {
  Around sizes;
  for (int i = 0; i < axis; ++i) sizes.outer *= shape[i];
  sizes.count = shape[axis];
  for (int i = axis + 1; i < shape.rank(); ++i) sizes.inner *= shape[i];
  return sizes;
}

// y = beta * y + scale * (x summed over the middle axis); both row-major. y is f32 where x is bf16.
void run_sum(const Around& sizes, const Tensor& x, const Tensor& y, float beta, double scale) {
  if (y.elements() == 0) return;
  const std::int64_t blocks = sum_blocks(sizes.count, sizes.inner);
  const Tensor partials =
      blocks > 1 ? Tensor::empty({sizes.outer, blocks, sizes.inner}, y.dtype(), x.device()) : Tensor();
  sum_slot(x.device(), {x.dtype(), sizes.outer, sizes.count, sizes.inner, x.raw_data(), y.raw_data(), beta,
                        scale, blocks > 1 ? partials.raw_data() : nullptr});
}

Tensor scaled(const Tensor& x, double factor) {
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  run_sum({1, 1, x.elements()}, packed, y, 0, factor);
  return y;
}

// y = scale * sum(x), so dx = scale * dy for every summed element: a view of dy with stride 0.
Tensor reduce_all(const char* op, const Tensor& x, double scale) {
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty({}, x.dtype(), x.device());
  run_sum({1, x.elements(), 1}, packed, y, 0, scale);
  return record(op, {x}, y, {}, [scale, shape = x.shape()](VjpContext& v) {
    v.sink.accumulate(0, raw::expand(scale == 1 ? v.dy() : scaled(v.dy(), scale), shape));
  });
}

Tensor reduce_axis(const char* op, const Tensor& x, int axis, bool keep, double scale) {
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(reduced_shape(x.shape(), axis, keep), x.dtype(), x.device());
  run_sum(around(x.shape(), axis), packed, y, 0, scale);
  return record(op, {x}, y, {}, [scale, axis, shape = x.shape()](VjpContext& v) {
    const Tensor dy = raw::reshape(raw::contiguous(v.dy()), shape.with(axis, 1));
    v.sink.accumulate(0, raw::expand(scale == 1 ? dy : scaled(dy, scale), shape));
  });
}

}  // namespace

Tensor sum(const Tensor& x) {
  if (is_bf16(x)) return downcast(sum(upcast(x)));
  checks::floating("sum", x);
  return reduce_all("sum", x, 1);
}

Tensor sum(const Tensor& x, int axis, bool keep) {
  if (is_bf16(x)) return downcast(sum(upcast(x), axis, keep));
  return reduce_axis("sum", x, checks::axis("sum", x, axis), keep, 1);
}

Tensor mean(const Tensor& x) {
  if (is_bf16(x)) return downcast(mean(upcast(x)));
  checks::floating("mean", x);
  if (x.elements() == 0)
    fail<ShapeError>("mean: an average of no elements: {} (at least one)", to_string(x.shape()));
  return reduce_all("mean", x, 1.0 / static_cast<double>(x.elements()));
}

Tensor mean(const Tensor& x, int axis, bool keep) {
  if (is_bf16(x)) return downcast(mean(upcast(x), axis, keep));
  const int a = checks::axis("mean", x, axis);
  const std::int64_t count = x.shape()[a];
  if (count == 0 && x.shape().without(a).elements() > 0)
    fail<ShapeError>("mean: an average of no elements: axis {} of {} (at least one entry)", a,
                     to_string(x.shape()));
  return reduce_axis("mean", x, a, keep, 1.0 / static_cast<double>(std::max<std::int64_t>(count, 1)));
}

namespace {

// The largest elements along an axis and their places; x is f32 or f64.
struct Largest {
  Tensor values, index;
  Around sizes;
};
Largest largest_of(const char* op, const Tensor& x, int axis, bool keep) {
  const int a = checks::axis(op, x, axis);
  const Around sizes = around(x.shape(), a);
  if (sizes.count == 0 && sizes.outer * sizes.inner > 0)
    fail<ShapeError>("{}: no elements along axis {} of {} (at least one entry)", op, a, to_string(x.shape()));
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(reduced_shape(x.shape(), a, keep), x.dtype(), x.device());
  const Tensor index = Tensor::empty(y.shape(), Dtype::i64, x.device());
  if (y.elements() > 0)
    max_forward_slot(x.device(), {x.dtype(), sizes.outer, sizes.count, sizes.inner, packed.raw_data(),
                                  y.raw_data(), index.mutable_data<std::int64_t>()});
  return {y, index, sizes};
}

// All elements along one axis.
Tensor in_a_row(const Tensor& x) {
  return raw::reshape(raw::contiguous(x), {x.elements()});
}

// Returns sign times the largest elements; found in x, or in its negative if the sign is -1.
Tensor taken(const char* op, const Tensor& x, const Largest& found, double sign) {
  const Tensor y = sign == 1 ? found.values : scaled(found.values, sign);
  // dx is dy where the element was found and zero elsewhere.
  return record(op, {x}, y, {found.index}, [sizes = found.sizes](VjpContext& v) {
    const Tensor dy = raw::contiguous(v.dy());
    v.sink.into(0, [&](const Tensor& dx, float beta) {
      if (dx.elements() > 0)
        max_backward_slot(dy.device(), {dy.dtype(), sizes.outer, sizes.count, sizes.inner, dy.raw_data(),
                                        v.saved(0).data<std::int64_t>(), dx.raw_data(), beta});
    });
  });
}

}  // namespace

Tensor max(const Tensor& x, int axis, bool keep) {
  if (is_bf16(x)) return downcast(max(upcast(x), axis, keep));
  return taken("max", x, largest_of("max", x, axis, keep), 1);
}
Tensor max(const Tensor& x) {
  if (is_bf16(x)) return downcast(max(upcast(x)));
  checks::floating("max", x);
  return taken("max", x, largest_of("max", in_a_row(x), 0, false), 1);
}

Tensor min(const Tensor& x, int axis, bool keep) {
  if (is_bf16(x)) return downcast(min(upcast(x), axis, keep));
  checks::floating("min", x);
  return taken("min", x, largest_of("min", scaled(x, -1), axis, keep), -1);
}
Tensor min(const Tensor& x) {
  if (is_bf16(x)) return downcast(min(upcast(x)));
  checks::floating("min", x);
  return taken("min", x, largest_of("min", in_a_row(scaled(x, -1)), 0, false), -1);
}

Tensor argmax(const Tensor& x, int axis, bool keep) {
  return largest_of("argmax", is_bf16(x) ? raw::cast(x, Dtype::f32) : x, axis, keep).index;
}
Tensor argmax(const Tensor& x) {
  checks::defined("argmax", x);
  return argmax(in_a_row(x), 0);
}

Tensor argmin(const Tensor& x, int axis, bool keep) {
  if (is_bf16(x)) return argmin(raw::cast(x, Dtype::f32), axis, keep);
  checks::floating("argmin", x);
  return largest_of("argmin", scaled(x, -1), axis, keep).index;
}
Tensor argmin(const Tensor& x) {
  checks::defined("argmin", x);
  return argmin(in_a_row(x), 0);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (!is_bf16(x)) checks::floating("sum_to", x);
  if (x.shape() == shape) return raw::alias(x);
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  sum_into(y, x, 0);
  return y;
}

void sum_into(const Tensor& dst, const Tensor& x, float beta) {
  if (must_upcast(x) && dst.dtype() != Dtype::bf16) return sum_into(dst, raw::cast(x, Dtype::f32), beta);
  if (is_bf16(x) && dst.dtype() == Dtype::bf16) {  // summed in f32, rounded once
    const Tensor total =
        beta == 0 ? Tensor::empty(dst.shape(), Dtype::f32, dst.device()) : raw::cast(dst, Dtype::f32);
    sum_into(total, x, beta);
    return raw::cast_into(dst, total);
  }
  checks::floating("sum_to", x);
  checks::parameter("sum_to", x, dst);
  const int extra = x.rank() - dst.rank();
  bool fits = extra >= 0;
  for (int i = 0; fits && i < dst.rank(); ++i)
    fits = dst.shape()[i] == x.shape()[i + extra] || dst.shape()[i] == 1;
  if (!fits)
    fail<ShapeError>("sum_to: {} does not repeat to {} (sizes aligned at the end must be equal, or 1)",
                     to_string(dst.shape()), to_string(x.shape()));
  if (dst.elements() == 0) return;
  if (!dst.contiguous()) {
    const Tensor packed = raw::copy(dst);
    sum_into(packed, x, beta);
    return raw::copy_into(dst, packed);
  }

  // Merge neighbouring axes that are all kept or all summed, so that kept and summed groups alternate.
  struct Group {
    std::int64_t size;
    bool summed;
  };
  Group groups[kMaxRank];
  int count = 0, summed = 0;
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t size = x.shape()[i];
    if (size == 1) continue;
    const bool goes = i < extra || dst.shape()[i - extra] == 1;
    if (count > 0 && groups[count - 1].summed == goes) {
      groups[count - 1].size *= size;
    } else {
      groups[count++] = {size, goes};
      summed += goes;
    }
  }
  Tensor rest = raw::contiguous(x);
  if (summed == 0) return run_sum({1, 1, x.elements()}, rest, dst, beta, 1);
  // Sum one group after the other, the largest first: it leaves the least work for the next.
  for (; summed > 0; --summed) {
    int place = -1;
    for (int i = 0; i < count; ++i)
      if (groups[i].summed && (place < 0 || groups[i].size > groups[place].size)) place = i;
    Around sizes;
    for (int i = 0; i < place; ++i) sizes.outer *= groups[i].size;
    sizes.count = groups[place].size;
    for (int i = place + 1; i < count; ++i) sizes.inner *= groups[i].size;
    const Tensor y = summed == 1 ? dst : Tensor::empty({sizes.outer, sizes.inner}, dst.dtype(), x.device());
    run_sum(sizes, rest, y, summed == 1 ? beta : 0, 1);
    groups[place] = {1, false};
    rest = y;
  }
}

}  // namespace eddy
