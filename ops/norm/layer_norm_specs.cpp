// Samples, references and costs of the ops in layer_norm.h.
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/norm/layer_norm.h"

namespace eddy {
namespace {

constexpr double kEps = 1e-5;

Tensor reference_layer_norm(const Tensors& inputs) {
  const std::int64_t width = inputs[0].dim(-1), rows = width == 0 ? 0 : inputs[0].elements() / width;
  std::vector<double> x = inputs[0].to_vector<double>();
  const std::vector<double> weight =
      inputs.size() > 1 ? inputs[1].to_vector<double>() : std::vector<double>();
  const std::vector<double> bias = inputs.size() > 2 ? inputs[2].to_vector<double>() : std::vector<double>();
  for (std::int64_t r = 0; r < rows; ++r) {
    double* const row = x.data() + r * width;
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < width; ++i) mean += row[i] / static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i)
      variance += std::pow(row[i] - mean, 2) / static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      const std::size_t at = static_cast<std::size_t>(i);
      row[i] = (row[i] - mean) / std::sqrt(variance + kEps) * (weight.empty() ? 1 : weight[at]) +
               (bias.empty() ? 0 : bias[at]);
    }
  }
  return Tensor::from(x, inputs[0].shape());
}

Tensors sample(const Shape& shape, double scale = 1) {
  return {sample_normal(shape, "x", scale), sample_normal({shape.dim(-1)}, "weight"),
          sample_normal({shape.dim(-1)}, "bias")};
}

}  // namespace

std::vector<OpSpec> layer_norm_specs() {
  OpSpec spec;
  spec.name = "layer_norm";
  spec.formula = "(x - mean) / sqrt(variance + eps) weight + bias, last axis";
  spec.run = [](const Tensors& x) {
    return Tensors{layer_norm(x[0], x.size() > 1 ? x[1] : Tensor(), x.size() > 2 ? x[2] : Tensor(), kEps)};
  };
  spec.reference = [](const Tensors& x) { return Tensors{reference_layer_norm(x)}; };
  const Tensors dense = sample({5, 7});
  spec.samples = {
      {"size_0", sample({3, 0})},
      {"no_rows", sample({0, 5})},
      {"size_1", sample({2, 1})},
      {"odd_tail", sample({3, 37})},
      {"many_rows", sample({131, 3}), false},
      {"rank_3", sample({2, 3, 9})},
      {"no_bias", {dense[0], dense[1]}},
      {"no_weight", {dense[0]}},
      {"strided", {strided_copy(dense[0]), strided_copy(dense[1]), strided_copy(dense[2])}},
      {"time_step", {raw::select(sample_normal({3, 4, 9}, "x"), 1, 2), sample({9})[1], sample({9})[2]}},
      {"large", sample({3, 65}, 1e4), false}};
  spec.roundings = 64;  // two sums over the row, and n is a difference
  spec.bench = [] {
    Tensors inputs = sample({4096, 384});
    for (Tensor& x : inputs) x = raw::cast(x, Dtype::f32);
    return inputs;
  };
  spec.cost = [](const Tensors& x) {
    return OpCost{8.0 * static_cast<double>(x[0].elements()), 2.0 * static_cast<double>(x[0].bytes())};
  };

  OpSpec added = spec;
  added.name = "add_layer_norm";
  added.formula = "s = x + d and (s - mean) / sqrt(variance + eps) weight + bias, last axis";
  added.run = [](const Tensors& x) {
    const SumAndNorm y =
        add_layer_norm(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), x.size() > 3 ? x[3] : Tensor(), kEps);
    return Tensors{y.sum, y.norm};
  };
  added.reference = [](const Tensors& x) {
    const Tensor sum = raw::copy(x[0]);
    raw::add_into(sum, x[1]);
    Tensors inputs{sum};
    inputs.insert(inputs.end(), x.begin() + 2, x.end());
    return Tensors{sum, reference_layer_norm(inputs)};
  };
  for (OpSample& one : added.samples) {
    const Tensor& x = one.inputs[0];
    const Tensor delta = sample_normal(x.shape(), "delta", 0.5);
    one.inputs.insert(one.inputs.begin() + 1, x.contiguous() ? delta : strided_copy(delta));
  }
  added.bench = [bench = spec.bench] {
    Tensors inputs = bench();
    inputs.insert(inputs.begin() + 1, raw::copy(inputs[0]));
    return inputs;
  };
  added.cost = [](const Tensors& x) {
    return OpCost{9.0 * static_cast<double>(x[0].elements()), 4.0 * static_cast<double>(x[0].bytes())};
  };
  return {spec, added};
}

}  // namespace eddy
