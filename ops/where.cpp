// Checks, broadcasting and the node of where.
#include "ops/where.h"

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
#include "ops/reduce.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<WhereArgs> where_slot{"where"};

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
  if (!(mask.device() == a.device()))
    fail<DeviceError>("where: the mask is on {} and a on {} (one device for all)", to_string(mask.device()),
                      to_string(a.device()));
  const Shape shape = broadcast_shape("where", mask.shape(), broadcast_shape("where", a.shape(), b.shape()));
  return record("where", {a, b}, choose(mask, a, b, shape), {mask},
                [shape, shape_a = a.shape(), shape_b = b.shape()](VjpContext& v) {
                  const Tensor& dy = v.dy();
                  const Tensor zero = Tensor::zeros({}, dy.dtype(), dy.device());
                  if (v.sink.needs(0)) v.sink.give(0, sum_to(choose(v.saved(0), dy, zero, shape), shape_a));
                  if (v.sink.needs(1)) v.sink.give(1, sum_to(choose(v.saved(0), zero, dy, shape), shape_b));
                });
}

// ---- samples
// ---------------------------------------------------------------------------------------------------------

std::vector<OpSpec> where_specs() {
  OpSpec spec;
  spec.name = "where";
  spec.formula = "a where the mask is not 0, else b";
  spec.run = [](const Tensors& x) { return Tensors{where(x[0], x[1], x[2])}; };
  spec.reference = [](const Tensors& x) {
    const Shape shape =
        broadcast_shape("where", x[0].shape(), broadcast_shape("where", x[1].shape(), x[2].shape()));
    const std::vector<std::uint8_t> mask = raw::expand(x[0], shape).to_vector<std::uint8_t>();
    std::vector<double> a = raw::expand(x[1], shape).to_vector<double>();
    const std::vector<double> b = raw::expand(x[2], shape).to_vector<double>();
    for (std::size_t i = 0; i < a.size(); ++i)
      if (mask[i] == 0) a[i] = b[i];
    return Tensors{Tensor::from(a, shape)};
  };
  const auto mask = [](const Shape& shape) { return raw::cast(sample_indices(shape, "mask", 3), Dtype::u8); };
  const auto a = [](const Shape& shape) { return sample_normal(shape, "a"); };
  const auto b = [](const Shape& shape) { return sample_normal(shape, "b"); };
  spec.samples = {
      {"size_0", {mask({0, 3}), a({0, 3}), b({3})}},
      {"size_1", {mask({1}), a({1}), b({1})}},
      {"scalars", {mask({}), a({}), b({})}},
      {"odd_tail", {mask({3, 37}), a({3, 37}), b({3, 37})}},
      {"mask_row", {mask({5}), a({4, 5}), b({4, 5})}},
      {"row_a", {mask({4, 5}), a({5}), b({4, 5})}},
      {"row_b", {mask({4, 5}), a({4, 5}), b({5})}},
      {"number_b", {mask({4, 17}), a({4, 17}), b({})}},
      {"number_a", {mask({4, 17}), a({1}), b({4, 17})}},
      {"broadcast_all", {mask({3, 1, 1}), a({1, 4, 1}), b({5})}},
      {"strided", {strided_copy(mask({4, 5})), strided_copy(a({4, 5})), b({4, 5})}},
      {"long_rows", {mask({1, 20001}), a({2, 20001}), b({1})}, false},
      {"large", {mask({3, 4}), sample_normal({3, 4}, "a", 1e6), b({3, 4})}},
  };
  spec.roundings = 0;
  spec.bench = [=] {
    const Shape shape = {2048, 1024};
    return Tensors{mask(shape), raw::cast(a(shape), Dtype::f32), raw::cast(b(shape), Dtype::f32)};
  };
  spec.cost = [](const Tensors& x) {
    return OpCost{0, static_cast<double>(x[0].bytes() + x[1].bytes() + x[2].bytes() + x[1].bytes())};
  };
  return {spec};
}

}  // namespace eddy
