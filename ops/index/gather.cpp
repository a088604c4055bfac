// Checks and nodes of embedding and gather.
#include "ops/index/gather.h"

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

// Returns the first position whose index is outside [0, limit), or -1.
template <class Id>
std::int64_t first_outside(const Id* ids, std::int64_t count, std::int64_t limit) {
  for (std::int64_t i = 0; i < count; ++i)
    if (ids[i] < 0 || ids[i] >= limit) return i;
  return -1;
}

std::int64_t first_outside(const Tensor& ids, std::int64_t limit) {
  if (ids.device().type != DeviceType::cpu) return -1;  // a check on the device would have to wait for it
  return ids.dtype() == Dtype::i32 ? first_outside(ids.data<std::int32_t>(), ids.elements(), limit)
                                   : first_outside(ids.data<std::int64_t>(), ids.elements(), limit);
}

std::int64_t value_at(const Tensor& ids, std::int64_t i) {
  return ids.dtype() == Dtype::i32 ? ids.data<std::int32_t>()[i] : ids.data<std::int64_t>()[i];
}

void check_device(const char* op, const Tensor& x, const Tensor& index) {
  if (x.device() != index.device())
    fail<DeviceError>("{}: values on {} and indices on {} (one device for both)", op, to_string(x.device()),
                      to_string(index.device()));
}

// Sets the sizes and strides of `rows` [..., dim] broadcast to this shape, with neighbouring axes merged.
void set_added(EmbeddingArgs& args, const Tensor& rows, const Shape& shape) {
  const Tensor expanded = raw::expand(rows, shape);
  args.added = expanded.raw_data();
  for (int i = 0; i + 1 < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const int last = args.axes - 1;
    if (last >= 0 && args.strides[last] == expanded.strides()[i] * shape[i])
      args.sizes[last] *= shape[i];
    else
      args.sizes[args.axes++] = shape[i];
    args.strides[args.axes - 1] = expanded.strides()[i];
  }
}

void check_rows(const Tensor& table, const Tensor& ids, const Tensor& rows) {
  checks::defined("embedding_sum", ids, "ids");
  checks::same_kind("embedding_sum", table, rows);
  const Shape shape = ids.shape().inserted(ids.rank(), table.dim(-1));
  if (rows.rank() < 1 || rows.dim(-1) != table.dim(-1) ||
      broadcast_shape("embedding_sum", rows.shape(), shape) != shape)
    fail<ShapeError>("embedding_sum: rows {} do not repeat to {}", to_string(rows.shape()), to_string(shape));
}

// `dtype` is that of the table, or bf16 beside an f32 table on a device with kernels for it.
Tensor embed(const Tensor& table, const Tensor& ids, const Tensor& rows, Dtype dtype) {
  checks::floating("embedding", table, "table");
  checks::defined("embedding", ids, "ids");
  if (table.rank() != 2) fail<ShapeError>("embedding: table {} ([vocab, dim])", to_string(table.shape()));
  if (ids.dtype() != Dtype::i32 && ids.dtype() != Dtype::i64)
    fail<DtypeError>("embedding: ids are {} (i32 or i64)", dtype_name(ids.dtype()));
  check_device("embedding", table, ids);
  const std::int64_t vocab = table.dim(0), dim = table.dim(1);
  const Shape shape = ids.shape().inserted(ids.rank(), dim);
  const Tensor picked = raw::contiguous(ids), packed = raw::contiguous(table);
  if (const std::int64_t bad = first_outside(picked, vocab); bad >= 0)
    fail<ValueError>("embedding: id out of range: {} at position {} of {}, vocab {} (ids are 0 to vocab - 1)",
                     value_at(picked, bad), bad, to_string(ids.shape()), vocab);
  const Tensor y = Tensor::empty(shape, dtype, table.device());
  if (y.elements() > 0) {
    EmbeddingArgs args{table.dtype(), dtype, picked.dtype(),    picked.elements(),
                       vocab,         dim,   picked.raw_data(), packed.raw_data(),
                       y.raw_data()};
    const Tensor added = rows.defined() && rows.strides()[rows.rank() - 1] != 1 ? raw::copy(rows) : rows;
    if (added.defined()) set_added(args, added, shape);
    embedding_forward_slot(y.device(), args);
  }
  // Row v of the table went to every position i with ids[i] = v, so those rows of dy add up in row v of the
  // gradient.
  return record(rows.defined() ? "embedding_sum" : "embedding", {table, rows}, y, {picked},
                [vocab, dim, dtype](VjpContext& v) {
                  const Tensor& places = v.saved(0);
                  if (v.sink.needs(0)) {
                    const Tensor dtable = v.sink.open_zeroed(0);
                    const bool as_it_is = v.dy().dtype() == dtable.dtype() ||
                                          (v.dy().dtype() == dtype && dtable.dtype() == Dtype::f32);
                    const Tensor dy = raw::contiguous(as_it_is ? v.dy() : raw::cast(v.dy(), dtable.dtype()));
                    if (dy.elements() > 0)
                      embedding_backward_slot(
                          dy.device(), {dtable.dtype(), dy.dtype(), places.dtype(), places.elements(), vocab,
                                        dim, places.raw_data(), dy.raw_data(), dtable.raw_data()});
                  }
                  if (v.sink.needs(1))
                    v.sink.into(1, [&](const Tensor& dst, float beta) { sum_into(dst, v.dy(), beta); });
                });
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids) {
  if (is_bf16(table)) return downcast(embedding(upcast(table), ids));
  checks::defined("embedding", table, "table");
  return embed(table, ids, {}, table.dtype());
}

Tensor embedding_sum(const Tensor& table, const Tensor& ids, const Tensor& rows, Dtype dtype) {
  if (!is_floating(dtype)) fail<DtypeError>("embedding_sum: into {} (f32, f64 or bf16)", dtype_name(dtype));
  if (is_bf16(table))
    return cast(embedding_sum(upcast(table), ids, rows.defined() ? upcast(rows) : rows, Dtype::f32), dtype);
  checks::defined("embedding_sum", table, "table");
  if (rows.defined()) check_rows(table, ids, rows);
  if (uses_cpu_path(table.device())) {
    const Tensor y = embedding(table, ids);
    return cast(rows.defined() ? y + rows : y, dtype);
  }
  const bool rounds = table.dtype() == Dtype::f32 && dtype == Dtype::bf16;
  return cast(embed(table, ids, rows, rounds ? dtype : table.dtype()), dtype);
}

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  // Gradients of bf16 add up in f32; without one bits are moved.
  if (is_bf16(x) && grad_enabled() && requires_grad(x)) return downcast(gather(upcast(x), axis, index));
  checks::defined("gather", x);
  checks::defined("gather", index, "index");
  if (index.dtype() != Dtype::i64)
    fail<DtypeError>("gather: the index is {} (i64)", dtype_name(index.dtype()));
  check_device("gather", x, index);
  if (grad_enabled() && requires_grad(x)) checks::floating("gather", x);
  const int axis_number = x.shape().normal_axis(axis);
  if (index.rank() != x.rank() || index.shape().with(axis_number, 0) != x.shape().with(axis_number, 0))
    fail<ShapeError>("gather: index {} for {} along axis {} (all other sizes must be equal)",
                     to_string(index.shape()), to_string(x.shape()), axis_number);
  const std::int64_t size = x.shape()[axis_number], picks = index.shape()[axis_number];
  const Tensor picked = raw::contiguous(index), from = raw::contiguous(x);
  if (const std::int64_t bad = first_outside(picked, size); bad >= 0)
    fail<ValueError>(
        "gather: index out of range: {} at position {} of {}, axis {} has {} (indices are 0 to {})",
        value_at(picked, bad), bad, to_string(index.shape()), axis_number, size, size - 1);
  const Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis_number; ++i) outer *= x.shape()[i];
  for (int i = axis_number + 1; i < x.rank(); ++i) inner *= x.shape()[i];
  if (y.elements() > 0)
    gather_forward_slot(y.device(), {y.dtype(), outer, size, picks, inner, picked.data<std::int64_t>(),
                                     from.raw_data(), y.raw_data()});
  return record("gather", {x}, y, {picked}, [outer, size, picks, inner](VjpContext& v) {
    const Tensor dx = v.sink.open_zeroed(0);
    const Tensor dy = raw::contiguous(dx.dtype() == v.dy().dtype() ? v.dy() : raw::cast(v.dy(), dx.dtype()));
    if (dy.elements() > 0)
      gather_backward_slot(dy.device(), {dy.dtype(), outer, size, picks, inner,
                                         v.saved(0).data<std::int64_t>(), dy.raw_data(), dx.raw_data()});
  });
}

}  // namespace eddy
