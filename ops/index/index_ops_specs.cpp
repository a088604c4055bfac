// Samples and references of the ops in index_ops.h.
#include "ops/core/op_spec.h"
#include "ops/index/index_ops.h"

namespace eddy {
namespace {

// Calls visit(to, from) with the places of all elements [o, j, i] of an axis with `picks` entries, and of [o, index[j],
// i] of one with `size` entries.
template <class Visit>
void for_slices(const Shape& shape, int axis, std::int64_t size, const Tensor& index, Visit&& visit) {
  const std::vector<std::int64_t> at = index.to_vector<std::int64_t>();
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  const auto picks = std::ssize(at);
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t j = 0; j < picks; ++j)
      for (std::int64_t i = 0; i < inner; ++i)
        visit(static_cast<std::size_t>((o * picks + j) * inner + i),
              static_cast<std::size_t>((o * size + at[static_cast<std::size_t>(j)]) * inner + i));
}

Tensor slice_values(const Shape& shape, double scale = 1) {
  return sample_normal(shape, "index_ops", scale);
}
Tensor slice_index(std::int64_t picks, std::int64_t size) {
  return sample_indices({picks}, "index", size);
}

OpSpec index_select_spec() {
  OpSpec spec{"index_select", "y[i, j, k] = x[i, index[j], k]"};
  spec.run = [](const Tensors& x) { return index_select(x[0], x[0].rank() > 1 ? 1 : 0, x[1]); };
  spec.reference = [](const Tensors& x) {
    const int axis = x[0].rank() > 1 ? 1 : 0;
    const Shape shape = x[0].shape().with(axis, x[1].elements());
    const std::vector<double> from = x[0].to_vector<double>();
    std::vector<double> to(static_cast<std::size_t>(shape.elements()));
    for_slices(shape, axis, x[0].dim(axis), x[1], [&](std::size_t y, std::size_t at) { to[y] = from[at]; });
    return Tensor::from(to, shape);
  };
  spec.samples = {{"size_0", {slice_values({3, 0, 2}), Tensor::zeros({0}, Dtype::i64)}},
                  {"no_picks", {slice_values({3, 4}), Tensor::zeros({0}, Dtype::i64)}},
                  {"size_1", {slice_values({1, 1}), slice_index(1, 1)}},
                  {"list", {slice_values({7}), slice_index(11, 7)}},
                  {"odd_tail", {slice_values({3, 7, 5}), slice_index(37, 7)}},
                  {"strided", {strided_copy(slice_values({5, 7})), slice_index(4, 7)}},
                  {"large", {slice_values({3, 4}, 1e6), slice_index(9, 4)}}};
  spec.roundings = 16;  // of gradients, sums of what was picked often
  spec.bench = [] { return Tensors{slice_values({64, 512, 64}), slice_index(1024, 512)}; };
  return spec;
}

OpSpec index_add_spec() {
  OpSpec spec{"index_add", "y[i, k, l] = x[i, k, l] + sum of source[i, j, l] over index[j] = k"};
  spec.run = [](const Tensors& x) { return index_add(x[0], x[0].rank() > 1 ? 1 : 0, x[1], x[2]); };
  spec.reference = [](const Tensors& x) {
    const int axis = x[0].rank() > 1 ? 1 : 0;
    std::vector<double> to = x[0].to_vector<double>();
    const std::vector<double> from = x[2].to_vector<double>();
    for_slices(x[2].shape(), axis, x[0].dim(axis), x[1],
               [&](std::size_t y, std::size_t at) { to[at] += from[y]; });
    return Tensor::from(to, x[0].shape());
  };
  const auto source = [](const Shape& shape) { return sample_normal(shape, "source"); };
  spec.samples = {
      {"size_0", {slice_values({3, 0, 2}), Tensor::zeros({0}, Dtype::i64), source({3, 0, 2})}},
      {"no_picks", {slice_values({3, 4}), Tensor::zeros({0}, Dtype::i64), source({3, 0})}},
      {"size_1", {slice_values({1, 1}), slice_index(1, 1), source({1, 1})}},
      {"list", {slice_values({7}), slice_index(11, 7), source({11})}},
      {"odd_tail", {slice_values({3, 7, 5}), slice_index(37, 7), source({3, 37, 5})}},
      {"strided", {strided_copy(slice_values({5, 7})), slice_index(7, 7), strided_copy(source({5, 7}))}},
      {"large", {slice_values({3, 4}, 1e6), slice_index(9, 4), source({3, 9})}}};
  spec.roundings = 16;
  spec.bench = [=] {
    return Tensors{slice_values({64, 512, 64}), slice_index(1024, 512), source({64, 1024, 64})};
  };
  return spec;
}

OpSpec one_hot_spec() {
  OpSpec spec{"one_hot", "y[i, c] = 1 where ids[i] = c, else 0"};
  spec.run = [](const Tensors& x) { return one_hot(x[0], 5); };
  spec.reference = [](const Tensors& x) {
    const std::vector<std::int64_t> ids = x[0].to_vector<std::int64_t>();
    std::vector<double> y(ids.size() * 5, 0.0);
    for (std::size_t i = 0; i < ids.size(); ++i) y[5 * i + static_cast<std::size_t>(ids[i])] = 1;
    return Tensor::from(y, x[0].shape().inserted(x[0].rank(), 5));
  };
  const auto ids = [](const Shape& shape) { return sample_indices(shape, "ids", 5); };
  spec.samples = {{"size_0", {ids({0, 3})}, false},
                  {"size_1", {ids({})}, false},
                  {"odd_tail", {ids({3, 37})}, false},
                  {"strided", {strided_copy(ids({5, 7}))}, false}};
  spec.roundings = 0;
  spec.bench = [=] { return ids({1 << 20}); };
  return spec;
}

}  // namespace

std::vector<OpSpec> index_ops_specs() {
  return {index_select_spec(), index_add_spec(), one_hot_spec()};
}

}  // namespace eddy
