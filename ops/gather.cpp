// Checks and nodes of embedding and gather.
#include "ops/gather.h"

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
#include "ops/widen.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<EmbeddingArgs> embedding_forward_slot{"embedding_forward"};
constinit Slot<EmbeddingArgs> embedding_backward_slot{"embedding_backward"};
constinit Slot<GatherArgs> gather_forward_slot{"gather_forward"};
constinit Slot<GatherArgs> gather_backward_slot{"gather_backward"};

namespace {

// The first place whose index is outside [0, limit), or -1.
template <class Id>
std::int64_t first_outside(const Id* ids, std::int64_t count, std::int64_t limit) {
  for (std::int64_t i = 0; i < count; ++i)
    if (ids[i] < 0 || ids[i] >= limit) return i;
  return -1;
}

std::int64_t first_outside(const Tensor& ids, std::int64_t limit) {
  if (ids.device().type != DeviceType::cpu)
    return -1;  // only the device could tell, and it would have to be waited for
  return ids.dtype() == Dtype::i32 ? first_outside(ids.data<std::int32_t>(), ids.elements(), limit)
                                   : first_outside(ids.data<std::int64_t>(), ids.elements(), limit);
}

std::int64_t value_at(const Tensor& ids, std::int64_t i) {
  return ids.dtype() == Dtype::i32 ? ids.data<std::int32_t>()[i] : ids.data<std::int64_t>()[i];
}

void check_device(const char* op, const Tensor& x, const Tensor& index) {
  if (!(x.device() == index.device()))
    fail<DeviceError>("{}: values on {} and indices on {} (one device for both)", op, to_string(x.device()),
                      to_string(index.device()));
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids) {
  if (widens_anywhere(table)) return narrowed(embedding(wide(table), ids));
  checks::floating("embedding", table, "table");
  checks::defined("embedding", ids, "ids");
  if (table.rank() != 2) fail<ShapeError>("embedding: table {} ([vocab, dim])", to_string(table.shape()));
  if (ids.dtype() != Dtype::i32 && ids.dtype() != Dtype::i64)
    fail<DtypeError>("embedding: ids are {} (i32 or i64)", dtype_name(ids.dtype()));
  check_device("embedding", table, ids);
  const std::int64_t vocab = table.dim(0), dim = table.dim(1);
  const Shape shape = ids.shape().inserted(ids.rank(), dim);
  const Tensor picked = raw::contiguous(ids), rows = raw::contiguous(table);
  if (const std::int64_t bad = first_outside(picked, vocab); bad >= 0)
    fail<ValueError>("embedding: id out of range: {} at position {} of {}, vocab {} (ids are 0 to vocab - 1)",
                     value_at(picked, bad), bad, to_string(ids.shape()), vocab);
  const Tensor y = Tensor::empty(shape, table.dtype(), table.device());
  if (y.elements() > 0)
    embedding_forward_slot(y.device(), {y.dtype(), picked.dtype(), picked.elements(), vocab, dim,
                                        picked.raw_data(), rows.raw_data(), y.raw_data()});
  // Row v of the table went to every position i with ids[i] = v, so those rows of dy add up in row v of the
  // gradient.
  return record("embedding", {table}, y, {picked}, [vocab, dim](VjpContext& v) {
    const Tensor dtable = v.sink.open_zeroed(0);
    const Tensor dy =
        raw::contiguous(dtable.dtype() == v.dy().dtype() ? v.dy() : raw::cast(v.dy(), dtable.dtype()));
    const Tensor& places = v.saved(0);
    if (dy.elements() > 0)
      embedding_backward_slot(dy.device(), {dy.dtype(), places.dtype(), places.elements(), vocab, dim,
                                            places.raw_data(), dy.raw_data(), dtable.raw_data()});
  });
}

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  if (widens_anywhere(x)) return narrowed(gather(wide(x), axis, index));
  checks::defined("gather", x);
  checks::defined("gather", index, "index");
  if (index.dtype() != Dtype::i64)
    fail<DtypeError>("gather: the index is {} (i64)", dtype_name(index.dtype()));
  check_device("gather", x, index);
  if (grad_enabled() && requires_grad(x)) checks::floating("gather", x);
  const int along = x.shape().normal_axis(axis);
  if (index.rank() != x.rank() || index.shape().with(along, 0) != x.shape().with(along, 0))
    fail<ShapeError>("gather: index {} for {} along axis {} (all other sizes must be equal)",
                     to_string(index.shape()), to_string(x.shape()), along);
  const std::int64_t size = x.shape()[along], picks = index.shape()[along];
  const Tensor picked = raw::contiguous(index), from = raw::contiguous(x);
  if (const std::int64_t bad = first_outside(picked, size); bad >= 0)
    fail<ValueError>(
        "gather: index out of range: {} at position {} of {}, axis {} has {} (indices are 0 to {})",
        value_at(picked, bad), bad, to_string(index.shape()), along, size, size - 1);
  const Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < along; ++i) outer *= x.shape()[i];
  for (int i = along + 1; i < x.rank(); ++i) inner *= x.shape()[i];
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

// ---- samples
// ---------------------------------------------------------------------------------------------------------

namespace {

OpSpec embedding_spec() {
  OpSpec spec;
  spec.name = "embedding";
  spec.formula = "y[i, :] = table[ids[i], :]";
  spec.run = [](const Tensors& x) { return Tensors{embedding(x[0], x[1])}; };
  spec.reference = [](const Tensors& x) {
    const std::vector<double> table = x[0].to_vector<double>();
    const std::int64_t dim = x[0].dim(1);
    std::vector<double> result;
    for (const std::int64_t id : raw::cast(x[1], Dtype::i64).to_vector<std::int64_t>())
      for (std::int64_t c = 0; c < dim; ++c) result.push_back(table[static_cast<std::size_t>(id * dim + c)]);
    return Tensors{Tensor::from(result, x[1].shape().inserted(x[1].rank(), dim))};
  };
  const auto table = [](std::int64_t vocab, std::int64_t dim) {
    return sample_normal({vocab, dim}, "table");
  };
  const auto ids = [](const Shape& shape, std::int64_t vocab) { return sample_indices(shape, "ids", vocab); };
  spec.samples = {{"size_0", {table(5, 3), ids({0}, 5)}},
                  {"size_0_dim", {table(5, 0), ids({4}, 5)}},
                  {"size_1", {table(1, 1), ids({1}, 1)}},
                  {"scalar_id", {table(4, 3), ids({}, 4)}},
                  {"odd_tail", {table(7, 37), ids({2, 5}, 7)}},
                  {"repeated", {table(3, 5), ids({4, 9}, 2)}},
                  {"i32", {table(6, 4), raw::cast(ids({3, 3}, 6), Dtype::i32)}},
                  {"strided", {strided_copy(table(6, 5)), strided_copy(ids({3, 4}, 6))}},
                  {"many_chunks", {table(11, 150), ids({300}, 11)}, false},
                  {"large", {sample_normal({5, 3}, "table", 1e6), ids({6}, 5)}}};
  spec.roundings = 0;
  spec.bench = [table, ids] {
    return Tensors{raw::cast(table(16384, 512), Dtype::f32), ids({8, 1024}, 16384)};
  };
  spec.cost = [](const Tensors& x) {
    const auto moved =
        static_cast<double>(x[1].elements() * x[0].dim(1)) * static_cast<double>(dtype_bytes(x[0].dtype()));
    return OpCost{0, 2 * moved + static_cast<double>(x[1].bytes())};
  };
  return spec;
}

OpSpec gather_spec() {
  OpSpec spec;
  spec.name = "gather";
  spec.formula = "y[i, j, k] = x[i, index[i, j, k], k]";
  spec.run = [](const Tensors& x) { return Tensors{gather(x[0], 1, x[1])}; };
  spec.reference = [](const Tensors& x) {
    const std::vector<double> values = x[0].to_vector<double>();
    const std::vector<std::int64_t> index = x[1].to_vector<std::int64_t>();
    const std::int64_t inner = x[0].rank() == 3 ? x[0].dim(2) : 1;
    std::vector<double> result;
    for (std::int64_t i = 0; i < x[0].dim(0); ++i)
      for (std::int64_t j = 0; j < x[1].dim(1); ++j)
        for (std::int64_t k = 0; k < inner; ++k) {
          const std::int64_t pick = index[static_cast<std::size_t>((i * x[1].dim(1) + j) * inner + k)];
          result.push_back(values[static_cast<std::size_t>((i * x[0].dim(1) + pick) * inner + k)]);
        }
    return Tensors{Tensor::from(result, x[1].shape())};
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "x"); };
  const auto index = [](const Shape& shape, std::int64_t limit) {
    return sample_indices(shape, "index", limit);
  };
  spec.samples = {{"size_0", {values({3, 4}), index({3, 0}, 4)}},
                  {"size_0_outer", {values({0, 4, 2}), index({0, 3, 2}, 4)}},
                  {"size_1", {values({1, 1}), index({1, 1}, 1)}},
                  {"last_axis", {values({5, 7}), index({5, 1}, 7)}},
                  {"odd_tail", {values({2, 5, 7}), index({2, 3, 7}, 5)}},
                  {"repeated", {values({2, 3, 4}), index({2, 9, 4}, 3)}},
                  {"strided", {strided_copy(values({2, 4, 5})), strided_copy(index({2, 3, 5}, 4))}},
                  {"many_chunks", {values({2, 9, 150}), index({2, 300, 150}, 9)}, false},
                  {"large", {sample_normal({3, 4}, "x", 1e6), index({3, 2}, 4)}}};
  spec.roundings = 0;
  spec.bench = [values, index] {
    return Tensors{raw::cast(values({4096, 1024}), Dtype::f32), index({4096, 64}, 1024)};
  };
  spec.cost = [](const Tensors& x) {
    const auto picks = static_cast<double>(x[1].elements());
    return OpCost{0, picks * (8 + 2 * static_cast<double>(dtype_bytes(x[0].dtype())))};
  };
  return spec;
}

}  // namespace

std::vector<OpSpec> gather_specs() {
  return {embedding_spec(), gather_spec()};
}

}  // namespace eddy
