// Samples, references and costs of the ops in rms_norm.h.
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/norm/rms_norm.h"

namespace eddy {
namespace {

constexpr double kEps = 1e-5;

Tensor reference_rms_norm(const Tensors& inputs) {
  const std::int64_t width = inputs[0].dim(-1), rows = width == 0 ? 0 : inputs[0].elements() / width;
  std::vector<double> x = inputs[0].to_vector<double>();
  const std::vector<double> weight =
      inputs.size() > 1 ? inputs[1].to_vector<double>() : std::vector<double>();
  for (std::int64_t r = 0; r < rows; ++r) {
    double* const row = x.data() + r * width;
    double mean_square = 0;
    for (std::int64_t i = 0; i < width; ++i) mean_square += row[i] * row[i] / static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i)
      row[i] *= (weight.empty() ? 1 : weight[static_cast<std::size_t>(i)]) / std::sqrt(mean_square + kEps);
  }
  return Tensor::from(x, inputs[0].shape());
}

Tensors sample(const Shape& shape, double scale = 1) {
  return {sample_normal(shape, "x", scale), sample_normal({shape.dim(-1)}, "weight")};
}

}  // namespace

std::vector<OpSpec> rms_norm_specs() {
  OpSpec spec;
  spec.name = "rms_norm";
  spec.formula = "x / sqrt(mean(x^2) + eps) weight, last axis";
  spec.run = [](const Tensors& x) { return Tensors{rms_norm(x[0], x.size() > 1 ? x[1] : Tensor(), kEps)}; };
  spec.reference = [](const Tensors& x) { return Tensors{reference_rms_norm(x)}; };
  const Tensors dense = sample({5, 7});
  // One element of the size of sqrt(eps): with a larger one dx is only what rounding leaves of g - g.
  const double near_eps = 3e-3;
  spec.samples = {{"size_0", sample({3, 0})},
                  {"no_rows", sample({0, 5})},
                  {"size_1", sample({2, 1}, near_eps)},
                  {"odd_tail", sample({3, 37})},
                  {"many_rows", sample({131, 3}), false},
                  {"rank_3", sample({2, 3, 9})},
                  {"no_weight", {dense[0]}},
                  {"strided", {strided_copy(dense[0]), strided_copy(dense[1])}},
                  {"time_step", {raw::select(sample_normal({3, 4, 9}, "x"), 1, 2), sample({9})[1]}},
                  {"large", sample({3, 65}, 1e4), false}};
  spec.roundings = 32;
  spec.bench = [] {
    Tensors inputs = sample({4096, 384});
    for (Tensor& x : inputs) x = raw::cast(x, Dtype::f32);
    return inputs;
  };
  spec.cost = [](const Tensors& x) {
    return OpCost{5.0 * static_cast<double>(x[0].elements()), 2.0 * static_cast<double>(x[0].bytes())};
  };

  OpSpec added = spec;
  added.name = "add_rms_norm";
  added.formula = "s = x + d and s / sqrt(mean(s^2) + eps) weight, last axis";
  added.run = [](const Tensors& x) {
    const SumAndNorm y = add_rms_norm(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), kEps);
    return Tensors{y.sum, y.norm};
  };
  added.reference = [](const Tensors& x) {
    const Tensor sum = raw::copy(x[0]);
    raw::add_into(sum, x[1]);
    Tensors inputs{sum};
    inputs.insert(inputs.end(), x.begin() + 2, x.end());
    return Tensors{sum, reference_rms_norm(inputs)};
  };
  for (OpSample& one : added.samples) {
    const Tensor& x = one.inputs[0];
    const Tensor delta = sample_normal(x.shape(), "delta", one.label == "size_1" ? near_eps : 0.5);
    one.inputs.insert(one.inputs.begin() + 1, x.contiguous() ? delta : strided_copy(delta));
  }
  added.bench = [bench = spec.bench] {
    Tensors inputs = bench();
    inputs.insert(inputs.begin() + 1, raw::copy(inputs[0]));
    return inputs;
  };
  added.cost = [](const Tensors& x) {
    return OpCost{6.0 * static_cast<double>(x[0].elements()), 4.0 * static_cast<double>(x[0].bytes())};
  };

  OpSpec placed = spec;
  placed.name = "rms_norm_add";
  placed.formula = "x / sqrt(mean(x^2) + eps) weight + table, last axes";
  placed.run = [](const Tensors& x) { return Tensors{rms_norm_add(x[0], x[1], x[2], kEps)}; };
  placed.reference = [](const Tensors& x) {
    const Tensor y = reference_rms_norm({x[0], x[1]});
    raw::add_into(y, raw::expand(x[2], y.shape()));
    return Tensors{y};
  };
  const auto with_table = [](const Shape& shape, const Shape& table, double scale = 1) {
    Tensors inputs = sample(shape, scale);
    inputs.push_back(sample_normal(table, "table"));
    return inputs;
  };
  const Tensors rows = with_table({2, 5, 7}, {5, 7});
  placed.samples = {{"size_0", with_table({3, 0}, {3, 0})},
                    {"no_rows", with_table({0, 4, 5}, {4, 5})},
                    {"size_1", with_table({2, 1}, {1}, near_eps)},
                    {"odd_tail", with_table({3, 37}, {3, 37})},
                    {"repeated", rows},
                    {"many_rows", with_table({131, 3}, {3}), false},
                    {"strided", {strided_copy(rows[0]), strided_copy(rows[1]), strided_copy(rows[2])}},
                    {"large", with_table({3, 2, 65}, {2, 65}, 1e4), false}};
  placed.bench = [] {
    Tensors inputs = sample({8, 512, 384});
    inputs.push_back(sample_normal({512, 384}, "table"));
    for (Tensor& x : inputs) x = raw::cast(x, Dtype::f32);
    return inputs;
  };
  return {spec, added, placed};
}

}  // namespace eddy
