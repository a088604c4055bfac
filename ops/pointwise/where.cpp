// Checks, broadcasting and the node of where, and the choices composed of it.
#include "ops/pointwise/where.h"

#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"
#include "tensor/create.h"

namespace eddy {

using namespace detail;

namespace {

Tensor choose(const Tensor& mask, const Tensor& a, const Tensor& b, const Shape& shape) {
  const Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  if (y.elements() == 0) return y;
  const Tensor wide_mask = raw::expand(mask, shape), wide_a = raw::expand(a, shape),
               wide_b = raw::expand(b, shape);
  const std::int64_t *m = wide_mask.strides(), *p = wide_a.strides(), *q = wide_b.strides();
  WhereArgs args{a.dtype(),    0,           {}, {}, {}, {}, mask.data<std::uint8_t>(), a.raw_data(),
                 b.raw_data(), y.raw_data()};
  for (int i = 0; i < shape.rank(); ++i) {
    const std::int64_t size = shape[i];
    if (size == 1) continue;
    const int last = args.rank - 1;
    const bool merges = last >= 0 && args.stride_mask[last] == m[i] * size &&
                        args.stride_a[last] == p[i] * size && args.stride_b[last] == q[i] * size;
    const int to = merges ? last : args.rank++;
    args.shape[to] = merges ? args.shape[to] * size : size;
    args.stride_mask[to] = m[i];
    args.stride_a[to] = p[i];
    args.stride_b[to] = q[i];
  }
  if (args.rank == 0) args.shape[args.rank++] = 1;
  where_slot(y.device(), args);
  return y;
}

}  // namespace

Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b) {
  checks::defined("where", mask, "mask");
  checks::defined("where", a, "a");
  checks::same_kind("where", a, b);
  if (mask.dtype() != Dtype::u8) fail<DtypeError>("where: the mask is {} (u8)", dtype_name(mask.dtype()));
  if (mask.device() != a.device())
    fail<DeviceError>("where: the mask is on {} and a on {} (one device for all)", to_string(mask.device()),
                      to_string(a.device()));
  const Shape shape = broadcast_shape("where", mask.shape(), broadcast_shape("where", a.shape(), b.shape()));
  return record("where", {a, b}, choose(mask, a, b, shape), {mask},
                [shape, shape_a = a.shape(), shape_b = b.shape()](VjpContext& v) {
                  const Tensor& dy = v.dy();
                  const Tensor zero = Tensor::zeros({}, dy.dtype(), dy.device());
                  if (v.sink.needs(0))
                    v.sink.accumulate(0, sum_to(choose(v.saved(0), dy, zero, shape), shape_a));
                  if (v.sink.needs(1))
                    v.sink.accumulate(1, sum_to(choose(v.saved(0), zero, dy, shape), shape_b));
                });
}

Tensor where(const Tensor& mask, const Tensor& a, double b) {
  checks::defined("where", a, "a");
  return where(mask, a, Tensor::full({}, b, a.dtype(), a.device()));
}
Tensor where(const Tensor& mask, double a, const Tensor& b) {
  checks::defined("where", b, "b");
  return where(mask, Tensor::full({}, a, b.dtype(), b.device()), b);
}

// A comparison with NaN is false: then the inner choice takes a if it is the NaN, else b.
Tensor maximum(const Tensor& a, const Tensor& b) {
  checks::defined("maximum", a, "a");
  checks::same_kind("maximum", a, b);
  return where(a > b, a, where(a != a, a, b));
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  checks::defined("minimum", a, "a");
  checks::same_kind("minimum", a, b);
  return where(a < b, a, where(a != a, a, b));
}

Tensor clamp(const Tensor& x, double low, double high) {
  checks::defined("clamp", x);
  if (!(low <= high)) fail<ValueError>("clamp: from {} to {} (the lower number first)", low, high);
  return where(x < low, low, where(x > high, high, x));
}

namespace {

// 1 where column - row has the sign `side` or is 0, counted from a diagonal: a mask [rows, columns]. Comparisons of f32
// are exact up to 2^24, more rows or columns than a matrix has.
Tensor triangle(const char* op, const Tensor& x, std::int64_t diagonal, bool lower) {
  checks::defined(op, x);
  if (x.rank() < 2) fail<ShapeError>("{}: {} has {} axes (two or more)", op, to_string(x.shape()), x.rank());
  const Tensor row = unsqueeze(arange(static_cast<double>(x.dim(-2)), Dtype::f32, x.device()), 1),
               column = arange(static_cast<double>(x.dim(-1)), Dtype::f32, x.device()),
               last = row + static_cast<double>(diagonal);
  return lower ? column <= last : column >= last;
}

}  // namespace

Tensor tril(const Tensor& x, std::int64_t diagonal) {
  return where(triangle("tril", x, diagonal, true), x, 0.0);
}
Tensor triu(const Tensor& x, std::int64_t diagonal) {
  return where(triangle("triu", x, diagonal, false), x, 0.0);
}

}  // namespace eddy
