// Slices by index, by the kernels of embedding and gather.
#include "ops/index/index_ops.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/index/gather.h"
#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy {

using namespace detail;

namespace {

// Checks an index of slices; its values only on the CPU, where nothing waits for them.
void check_index(const char* op, const Tensor& index, std::int64_t size, Device device) {
  checks::defined(op, index, "index");
  if (index.dtype() != Dtype::i32 && index.dtype() != Dtype::i64)
    fail<DtypeError>("{}: the index is {} (i32 or i64)", op, dtype_name(index.dtype()));
  if (index.device() != device)
    fail<DeviceError>("{}: values on {} and the index on {} (one device for both)", op, to_string(device),
                      to_string(index.device()));
  if (device.type != DeviceType::cpu) return;
  const std::vector<std::int64_t> values = raw::cast(index, Dtype::i64).to_vector<std::int64_t>();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] < 0 || values[i] >= size)
      fail<ValueError>("{}: {} at position {} of {}, size {} (from 0 to size - 1)", op, values[i], i,
                       to_string(index.shape()), size);
}

void check_slices(const char* op, const Tensor& x, int axis, const Tensor& index) {
  check_index(op, index, x.dim(axis), x.device());
  if (index.rank() != 1) fail<ShapeError>("{}: the index is {} (one axis)", op, to_string(index.shape()));
}

// x [.., size, ..] as rows of the axis, [size, rest], and back.
Tensor rows_along(const Tensor& x, int axis) {
  const Tensor moved = raw::contiguous(raw::transpose(x, 0, axis));
  return raw::reshape(moved, {x.dim(axis), x.elements() / std::max<std::int64_t>(x.dim(axis), 1)});
}
Tensor from_rows(const Tensor& rows, int axis, const Shape& shape) {
  Shape moved = shape.with(0, shape[axis]);
  if (axis != 0) moved = moved.with(axis, shape[0]);
  return raw::transpose(raw::reshape(rows, moved), 0, axis);
}

// The slices of x at the index, untracked.
Tensor slices_at(const Tensor& x, int axis, const Tensor& index) {
  const Shape shape = x.shape().with(axis, index.elements());
  if (shape.elements() == 0) return Tensor::empty(shape, x.dtype(), x.device());
  const Tensor rows = detach(rows_along(x, axis));
  if (is_floating(x.dtype())) return from_rows(embedding(rows, index), axis, shape);
  const Tensor places = raw::reshape(raw::cast(index, Dtype::i64), {index.elements(), 1});
  return from_rows(gather(rows, 0, raw::expand(places, {index.elements(), rows.dim(1)})), axis, shape);
}

// Zeros of this shape with the slices of `source` added, untracked. f32 or f64.
Tensor sum_of_slices(const Tensor& source, int axis, const Tensor& index, const Shape& shape) {
  if (shape.elements() == 0 || source.elements() == 0)
    return Tensor::zeros(shape, source.dtype(), source.device());
  const std::int64_t size = shape[axis], width = shape.elements() / size;
  const Tensor rows = rows_along(source, axis), places = raw::contiguous(index),
               sums = Tensor::zeros({size, width}, source.dtype(), source.device());
  embedding_backward_slot(source.device(),
                          {sums.dtype(), rows.dtype(), places.dtype(), places.elements(), size, width,
                           places.raw_data(), rows.raw_data(), sums.raw_data()});
  return from_rows(sums, axis, shape);
}

}  // namespace

// Whole numbers have no gradient; gather moves their bits.
Tensor index_select(const Tensor& x, int axis, const Tensor& index) {
  if (is_bf16(x)) return downcast(index_select(upcast(x), axis, index));
  checks::defined("index_select", x);
  const int a = x.shape().normal_axis(axis);
  check_slices("index_select", x, a, index);
  return record("index_select", {x}, slices_at(x, a, index), {index}, [a, shape = x.shape()](VjpContext& v) {
    v.sink.accumulate(0, sum_of_slices(v.dy(), a, v.saved(0), shape));
  });
}

Tensor index_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source) {
  if (is_bf16(x)) return downcast(index_add(upcast(x), axis, index, upcast_like("index_add", x, source)));
  checks::defined("index_add", x);
  checks::floating("index_add", x);
  const int a = x.shape().normal_axis(axis);
  check_slices("index_add", x, a, index);
  checks::defined("index_add", source, "source");
  checks::same_kind("index_add", x, source);
  if (source.shape() != x.shape().with(a, index.elements()))
    fail<ShapeError>(
        "index_add: source {} for x {} and {} indices along axis {} (as x, with one slice for each)",
        to_string(source.shape()), to_string(x.shape()), index.elements(), a);
  const Tensor y = raw::add(x, sum_of_slices(source, a, index, x.shape()));
  return record("index_add", {x, source}, y, {index}, [a](VjpContext& v) {
    if (v.sink.needs(0)) v.sink.accumulate(0, v.dy());
    if (v.sink.needs(1)) v.sink.accumulate(1, slices_at(v.dy(), a, v.saved(0)));
  });
}

// A row of `classes` zeros for each id, to which the kernel of gather's gradient adds a 1.
Tensor one_hot(const Tensor& ids, std::int64_t classes, Dtype dtype) {
  checks::defined("one_hot", ids, "ids");
  if (classes < 0) fail<ValueError>("one_hot: {} classes (0 or more)", classes);
  check_index("one_hot", ids, classes, ids.device());
  const Tensor y = Tensor::zeros(ids.shape().inserted(ids.rank(), classes), Dtype::f32, ids.device());
  const Tensor places = raw::contiguous(raw::cast(ids, Dtype::i64)),
               ones = Tensor::full({ids.elements()}, 1, Dtype::f32, ids.device());
  if (y.elements() > 0)
    gather_backward_slot(y.device(), {y.dtype(), ids.elements(), classes, 1, 1, places.data<std::int64_t>(),
                                      ones.raw_data(), y.raw_data()});
  return raw::cast(y, dtype);
}

}  // namespace eddy
