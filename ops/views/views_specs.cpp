// Samples and references of the ops in views.h.
#include "ops/core/op_spec.h"
#include "ops/views/views.h"

namespace eddy {
namespace {

// The element of x at an index with one entry for each axis, found in the row-major list of its values.
double at(const std::vector<double>& values, const Shape& shape, const std::vector<std::int64_t>& index) {
  std::int64_t place = 0;
  for (int i = 0; i < shape.rank(); ++i) place = place * shape[i] + index[static_cast<std::size_t>(i)];
  return values[static_cast<std::size_t>(place)];
}

// A tensor whose element at `index` of `shape` is the element of x at from(index).
template <class From>
Tensor picked(const Tensor& x, const Shape& shape, From&& from) {
  const std::vector<double> values = x.to_vector<double>();
  std::vector<double> result;
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()), 0);
  for (std::int64_t n = 0; n < shape.elements(); ++n) {
    std::int64_t rest = n;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      index[static_cast<std::size_t>(i)] = rest % shape[i];
      rest /= shape[i];
    }
    result.push_back(at(values, x.shape(), from(index)));
  }
  return Tensor::from(result, shape);
}

// Every view is exercised on inputs of rank 3 in both memory orders, of size 0 and of size 1.
OpSpec view_spec(const char* name, const char* formula, OpFunction run, OpFunction reference) {
  OpSpec spec{name, formula};
  spec.run = std::move(run);
  spec.reference = std::move(reference);
  const auto values = [name](const Shape& shape) { return sample_normal(shape, name); };
  spec.samples = {{"size_0", {values({3, 0, 4})}},
                  {"size_1", {values({1, 1, 4})}},
                  {"odd_tail", {values({3, 7, 4})}},
                  {"strided", {strided_copy(values({5, 3, 4}))}},
                  {"strided_outer", {raw::transpose(values({3, 5, 4}), 0, 1)}},
                  {"large", {sample_normal({2, 3, 4}, name, 1e6)}}};
  spec.roundings = 0;
  spec.bench = [name] { return sample_normal({512, 256, 4}, name); };
  return spec;
}

OpSpec concat_spec() {
  OpSpec spec{"concat", "a, b, c end to end along axis 1"};
  spec.run = [](const Tensors& x) { return concat({x[0], x[1], x[2]}, 1); };
  spec.reference = [](const Tensors& x) {
    std::vector<double> result;
    for (std::int64_t row = 0; row < x[0].dim(0); ++row)
      for (const Tensor& part : x) {
        const std::vector<double> values = part.to_vector<double>();
        for (std::int64_t i = 0; i < part.dim(1); ++i)
          result.push_back(values[static_cast<std::size_t>(row * part.dim(1) + i)]);
      }
    return Tensor::from(result, {x[0].dim(0), x[0].dim(1) + x[1].dim(1) + x[2].dim(1)});
  };
  const auto values = [](std::int64_t rows, std::int64_t columns, const char* stream) {
    return sample_normal({rows, columns}, stream);
  };
  spec.samples = {
      {"size_0", {values(0, 2, "a"), values(0, 3, "b"), values(0, 1, "c")}},
      {"size_0_part", {values(3, 2, "a"), values(3, 0, "b"), values(3, 1, "c")}},
      {"size_1", {values(1, 1, "a"), values(1, 1, "b"), values(1, 1, "c")}},
      {"odd_tail", {values(3, 17, "a"), values(3, 5, "b"), values(3, 31, "c")}},
      {"strided", {strided_copy(values(4, 3, "a")), values(4, 2, "b"), strided_copy(values(4, 5, "c"))}},
      {"large", {sample_normal({2, 3}, "a", 1e6), values(2, 3, "b"), values(2, 3, "c")}}};
  spec.roundings = 0;
  spec.bench = [values] {
    Tensors inputs;
    for (const char* stream : {"a", "b", "c"}) inputs.push_back(values(1024, 512, stream));
    return inputs;
  };
  return spec;
}

}  // namespace

std::vector<OpSpec> views_specs() {
  using Index = std::vector<std::int64_t>;
  return {
      view_spec(
          "reshape", "the same elements in row-major order",
          [](const Tensors& x) {
            return reshape(x[0], {2, x[0].dim(0), -1});
          },
          [](const Tensors& x) {
            return Tensor::from(x[0].to_vector<double>(), {2, x[0].dim(0), x[0].dim(1) * x[0].dim(2) / 2});
          }),
      view_spec(
          "flatten", "the same elements along one axis", [](const Tensors& x) { return flatten(x[0]); },
          [](const Tensors& x) { return Tensor::from(x[0].to_vector<double>(), {x[0].elements()}); }),
      view_spec(
          "squeeze", "x without axes of size 1",
          [](const Tensors& x) {
            const Tensor wide = reshape(x[0], {x[0].dim(0), 1, x[0].dim(1), 1, 4});
            return Tensors{squeeze(wide), squeeze(wide, 1), squeeze(wide, -2)};
          },
          [](const Tensors& x) {
            const std::vector<double> values = x[0].to_vector<double>();
            const std::int64_t a = x[0].dim(0), b = x[0].dim(1);
            std::vector<std::int64_t> sizes;
            for (const std::int64_t size : {a, b, std::int64_t{4}})
              if (size != 1) sizes.push_back(size);
            return Tensors{Tensor::from(values, Shape(sizes)), Tensor::from(values, {a, b, 1, 4}),
                           Tensor::from(values, {a, 1, b, 4})};
          }),
      view_spec(
          "unsqueeze", "x with a new axis of size 1",
          [](const Tensors& x) {
            return Tensors{unsqueeze(x[0], 0), unsqueeze(x[0], 2), unsqueeze(x[0], -1)};
          },
          [](const Tensors& x) {
            const std::vector<double> values = x[0].to_vector<double>();
            const std::int64_t a = x[0].dim(0), b = x[0].dim(1);
            return Tensors{Tensor::from(values, {1, a, b, 4}), Tensor::from(values, {a, b, 1, 4}),
                           Tensor::from(values, {a, b, 4, 1})};
          }),
      view_spec(
          "transpose", "y[k, j, i] = x[i, j, k]", [](const Tensors& x) { return transpose(x[0], 0, -1); },
          [](const Tensors& x) {
            return picked(x[0], {x[0].dim(2), x[0].dim(1), x[0].dim(0)}, [](const Index& i) {
              return Index{i[2], i[1], i[0]};
            });
          }),
      view_spec(
          "permute", "y[k, i, j] = x[i, j, k]",
          [](const Tensors& x) {
            return permute(x[0], {2, 0, -2});
          },
          [](const Tensors& x) {
            return picked(x[0], {x[0].dim(2), x[0].dim(0), x[0].dim(1)}, [](const Index& i) {
              return Index{i[1], i[2], i[0]};
            });
          }),
      view_spec(
          "narrow", "y[.., i] = x[.., start + i]",
          [](const Tensors& x) {
            return Tensors{narrow(x[0], -1, 1, 2), narrow(x[0], 2, 2, 2)};
          },
          [](const Tensors& x) {
            const Shape shape = {x[0].dim(0), x[0].dim(1), 2};
            return Tensors{picked(x[0], shape,
                                  [](const Index& i) {
                                    return Index{i[0], i[1], i[2] + 1};
                                  }),
                           picked(x[0], shape, [](const Index& i) {
                             return Index{i[0], i[1], i[2] + 2};
                           })};
          }),
      view_spec(
          "select", "y[i, j] = x[i, j, index]", [](const Tensors& x) { return select(x[0], 2, 3); },
          [](const Tensors& x) {
            return picked(x[0], {x[0].dim(0), x[0].dim(1)}, [](const Index& i) {
              return Index{i[0], i[1], 3};
            });
          }),
      view_spec(
          "expand", "y[n, i, j, m, k] = x[i, j, k]",
          [](const Tensors& x) {
            const Shape one = {x[0].dim(0), x[0].dim(1), 1, 4};
            return expand(reshape(x[0], one), {2, x[0].dim(0), x[0].dim(1), 3, 4});
          },
          [](const Tensors& x) {
            return picked(x[0], {2, x[0].dim(0), x[0].dim(1), 3, 4}, [](const Index& i) {
              return Index{i[1], i[2], i[4]};
            });
          }),
      view_spec(
          "split", "parts of an axis, in order",
          [](const Tensors& x) {
            return split(x[0], 2, {1, 0, 3});
          },
          [](const Tensors& x) {
            const auto part = [&](std::int64_t start, std::int64_t size) {
              return picked(x[0], {x[0].dim(0), x[0].dim(1), size}, [start](const Index& i) {
                return Index{i[0], i[1], i[2] + start};
              });
            };
            return Tensors{part(0, 1), part(1, 0), part(1, 3)};
          }),
      view_spec(
          "contiguous", "x in row-major order",
          [](const Tensors& x) { return contiguous(transpose(x[0], 1, 2)); },
          [](const Tensors& x) {
            return picked(x[0], {x[0].dim(0), x[0].dim(2), x[0].dim(1)}, [](const Index& i) {
              return Index{i[0], i[2], i[1]};
            });
          }),
      concat_spec(),
      view_spec(
          "stack", "y[i, n, j, k] = x_n[i, j, k]",
          [](const Tensors& x) {
            return Tensors{stack({narrow(x[0], 2, 0, 2), narrow(x[0], 2, 2, 2)}, 1),
                           stack({narrow(x[0], 2, 0, 2), narrow(x[0], 2, 2, 2)}, -1)};
          },
          [](const Tensors& x) {
            const std::int64_t a = x[0].dim(0), b = x[0].dim(1);
            return Tensors{picked(x[0], {a, 2, b, 2},
                                  [](const Index& i) {
                                    return Index{i[0], i[2], 2 * i[1] + i[3]};
                                  }),
                           picked(x[0], {a, b, 2, 2}, [](const Index& i) {
                             return Index{i[0], i[1], 2 * i[3] + i[2]};
                           })};
          }),
  };
}

}  // namespace eddy
