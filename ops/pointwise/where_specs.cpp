// Samples and references of the ops in where.h.
#include <algorithm>

#include "ops/core/op_spec.h"
#include "ops/pointwise/where.h"

namespace eddy {
namespace {

// A choice between the elements of two tensors by their sizes.
template <class Choose>
OpSpec choice_spec(const char* name, const char* formula, OpFunction run, Choose choose) {
  OpSpec spec{name, formula};
  spec.run = std::move(run);
  spec.reference = [name, choose](const Tensors& x) {
    const Shape shape = broadcast_shape(name, x[0].shape(), x[1].shape());
    std::vector<double> a = raw::expand(x[0], shape).to_vector<double>();
    const std::vector<double> b = raw::expand(x[1], shape).to_vector<double>();
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = choose(a[i], b[i]);
    return Tensor::from(a, shape);
  };
  const auto a = [](const Shape& shape) { return sample_normal(shape, "a"); };
  const auto b = [](const Shape& shape) { return sample_normal(shape, "b"); };
  spec.samples = {{"size_0", {a({0, 3}), b({3})}},
                  {"size_1", {a({1}), b({1})}},
                  {"odd_tail", {a({3, 37}), b({3, 37})}},
                  {"broadcast", {a({4, 1, 5}), b({3, 1})}},
                  {"strided", {strided_copy(a({4, 5})), b({4, 5})}},
                  {"large", {sample_normal({3, 4}, "a", 1e6), b({3, 4})}}};
  spec.roundings = 0;
  spec.bench = [=] { return Tensors{a({2048, 1024}), b({2048, 1024})}; };
  return spec;
}

OpSpec clamp_spec() {
  OpSpec spec{"clamp", "low where x < low, high where x > high, else x"};
  spec.run = [](const Tensors& x) { return clamp(x[0], -0.5, 0.75); };
  spec.reference = [](const Tensors& x) {
    std::vector<double> y = x[0].to_vector<double>();
    for (double& value : y) value = std::min(std::max(value, -0.5), 0.75);
    return Tensor::from(y, x[0].shape());
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "clamp"); };
  spec.samples = {{"size_0", {values({0, 3})}},
                  {"size_1", {values({1})}},
                  {"odd_tail", {values({3, 37})}},
                  {"strided", {strided_copy(values({4, 5}))}},
                  {"large", {sample_normal({3, 4}, "clamp", 1e6)}}};
  spec.roundings = 0;
  spec.bench = [=] { return Tensors{values({2048, 1024})}; };
  return spec;
}

// A triangle from the diagonal beside the main one.
OpSpec triangle_spec(const char* name, const char* formula, Tensor (*op)(const Tensor&, std::int64_t),
                     bool (*inside)(std::int64_t, std::int64_t)) {
  OpSpec spec{name, formula};
  spec.run = [op](const Tensors& x) { return op(x[0], 1); };
  spec.reference = [inside](const Tensors& x) {
    std::vector<double> y = x[0].to_vector<double>();
    const std::int64_t rows = x[0].dim(-2), columns = x[0].dim(-1);
    for (std::int64_t i = 0; i < std::ssize(y); ++i)
      if (!inside(i / columns % rows, i % columns)) y[static_cast<std::size_t>(i)] = 0;
    return Tensor::from(y, x[0].shape());
  };
  const auto values = [name](const Shape& shape) { return sample_normal(shape, name); };
  spec.samples = {{"size_0", {values({0, 3})}},
                  {"size_1", {values({1, 1})}},
                  {"odd_tail", {values({7, 37})}},
                  {"tall", {values({2, 9, 4})}},
                  {"strided", {strided_copy(values({4, 5}))}},
                  {"large", {sample_normal({3, 4}, name, 1e6)}}};
  spec.roundings = 0;
  spec.bench = [=] { return Tensors{values({8, 512, 512})}; };
  return spec;
}

}  // namespace

std::vector<OpSpec> where_specs() {
  OpSpec spec{"where", "a where the mask is not 0, else b"};
  spec.run = [](const Tensors& x) { return where(x[0], x[1], x[2]); };
  spec.reference = [](const Tensors& x) {
    const Shape shape =
        broadcast_shape("where", x[0].shape(), broadcast_shape("where", x[1].shape(), x[2].shape()));
    const std::vector<std::uint8_t> mask = raw::expand(x[0], shape).to_vector<std::uint8_t>();
    std::vector<double> a = raw::expand(x[1], shape).to_vector<double>();
    const std::vector<double> b = raw::expand(x[2], shape).to_vector<double>();
    for (std::size_t i = 0; i < a.size(); ++i)
      if (mask[i] == 0) a[i] = b[i];
    return Tensor::from(a, shape);
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
    return Tensors{mask(shape), a(shape), b(shape)};
  };
  return {spec,
          choice_spec(
              "maximum", "the larger of a and b", [](const Tensors& x) { return maximum(x[0], x[1]); },
              [](double p, double q) { return std::max(p, q); }),
          choice_spec(
              "minimum", "the smaller of a and b", [](const Tensors& x) { return minimum(x[0], x[1]); },
              [](double p, double q) { return std::min(p, q); }),
          clamp_spec(),
          triangle_spec("tril", "x where column <= row + 1, else 0", tril,
                        [](std::int64_t row, std::int64_t column) { return column <= row + 1; }),
          triangle_spec("triu", "x where column >= row + 1, else 0", triu,
                        [](std::int64_t row, std::int64_t column) { return column >= row + 1; })};
}

}  // namespace eddy
