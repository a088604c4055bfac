// Samples and references of the ops in rearrange.h.
#include "ops/composed/rearrange.h"
#include "ops/core/op_spec.h"

namespace eddy {
namespace {

// A tensor [a, b] whose element (i, j) is that of x at from(i, j), [rows, columns], or `value` where the row is -1.
template <class From>
Tensor placed_in_matrix(const Tensor& x, std::int64_t a, std::int64_t b, double value, From&& from) {
  const std::vector<double> values = x.to_vector<double>();
  std::vector<double> result;
  for (std::int64_t i = 0; i < a; ++i)
    for (std::int64_t j = 0; j < b; ++j) {
      const auto [row, column] = from(i, j);
      const bool inside = row >= 0 && column >= 0 && row < x.dim(0) && column < x.dim(1);
      result.push_back(inside ? values[static_cast<std::size_t>(row * x.dim(1) + column)] : value);
    }
  return Tensor::from(result, {a, b});
}

OpSpec rearrange_spec(const char* name, const char* formula, OpFunction run, OpFunction reference) {
  OpSpec spec{name, formula};
  spec.run = std::move(run);
  spec.reference = std::move(reference);
  const auto values = [name](const Shape& shape) { return sample_normal(shape, name); };
  spec.samples = {{"size_0", {values({3, 0})}},
                  {"size_1", {values({1, 1})}},
                  {"odd_tail", {values({3, 37})}},
                  {"strided", {strided_copy(values({5, 7}))}},
                  {"large", {sample_normal({2, 3}, name, 1e6)}}};
  spec.roundings = 4;  // of gradients that are sums
  spec.bench = [name] { return sample_normal({1024, 512}, name); };
  return spec;
}

struct PlaceInMatrix {
  std::int64_t row, column;
};

}  // namespace

std::vector<OpSpec> rearrange_specs() {
  return {
      rearrange_spec(
          "pad", "x with 1.5 around it",
          [](const Tensors& x) {
            return pad(x[0], {2, 1, 0, 3}, 1.5);
          },
          [](const Tensors& x) {
            return placed_in_matrix(x[0], x[0].dim(0) + 3, x[0].dim(1) + 3, 1.5,
                                    [](std::int64_t i, std::int64_t j) {
                                      return PlaceInMatrix{i, j - 2};
                                    });
          }),
      rearrange_spec(
          "repeat", "y[i, j] = x[i mod rows, j mod columns]",
          [](const Tensors& x) {
            return repeat(x[0], {2, 3});
          },
          [](const Tensors& x) {
            return placed_in_matrix(x[0], 2 * x[0].dim(0), 3 * x[0].dim(1), 0,
                                    [&](std::int64_t i, std::int64_t j) {
                                      return PlaceInMatrix{i % x[0].dim(0), j % x[0].dim(1)};
                                    });
          }),
      rearrange_spec(
          "flip", "y[i, j] = x[i, columns - 1 - j]", [](const Tensors& x) { return flip(x[0], 1); },
          [](const Tensors& x) {
            return placed_in_matrix(x[0], x[0].dim(0), x[0].dim(1), 0, [&](std::int64_t i, std::int64_t j) {
              return PlaceInMatrix{i, x[0].dim(1) - 1 - j};
            });
          }),
      rearrange_spec(
          "roll", "y[i, j] = x[i, (j - 2) mod columns]", [](const Tensors& x) { return roll(x[0], 2, -1); },
          [](const Tensors& x) {
            return placed_in_matrix(x[0], x[0].dim(0), x[0].dim(1), 0, [&](std::int64_t i, std::int64_t j) {
              const std::int64_t columns = x[0].dim(1);
              return PlaceInMatrix{i, ((j - 2) % columns + columns) % columns};
            });
          })};
}

}  // namespace eddy
