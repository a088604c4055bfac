// Samples, reference and cost of the op in relu_mlp.h.
#include <algorithm>
#include <cstddef>

#include "ops/core/op_spec.h"
#include "ops/product/relu_mlp.h"

namespace eddy {
namespace {

// Inputs x, up, down and, if there are, up_bias and down_bias.
Tensors run(const Tensors& x) {
  const bool biased = x.size() > 3;
  return {relu_mlp(x[0], x[1], biased ? x[3] : Tensor(), x[2], biased ? x[4] : Tensor())};
}

// Rows of x times rows of the weight, plus the bias; plain loops.
std::vector<double> affine(const std::vector<double>& x, const Tensor& weight, const Tensor& bias) {
  const auto out = static_cast<std::size_t>(weight.dim(0)), in = static_cast<std::size_t>(weight.dim(1));
  const std::size_t rows = in == 0 ? 0 : x.size() / in;
  const std::vector<double> w = weight.to_vector<double>();
  const std::vector<double> b = bias.defined() ? bias.to_vector<double>() : std::vector<double>(out, 0.0);
  std::vector<double> y;
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t j = 0; j < out; ++j) {
      double sum = b[j];
      for (std::size_t i = 0; i < in; ++i) sum += x[row * in + i] * w[j * in + i];
      y.push_back(sum);
    }
  return y;
}

Tensors reference(const Tensors& x) {
  const bool biased = x.size() > 3;
  std::vector<double> h = affine(x[0].to_vector<double>(), x[1], biased ? x[3] : Tensor());
  for (double& value : h) value = std::max(value, 0.0);
  const std::vector<double> y = affine(h, x[2], biased ? x[4] : Tensor());
  return {Tensor::from(y, x[0].shape().with(-1, x[2].dim(0)))};
}

Tensors sample(const Shape& shape, std::int64_t mlp, std::int64_t out, bool biased, double scale = 1) {
  Tensors inputs{sample_normal(shape, "x", scale), sample_normal({mlp, shape.dim(-1)}, "up"),
                 sample_normal({out, mlp}, "down")};
  if (!biased) return inputs;
  inputs.push_back(sample_normal({mlp}, "up bias"));
  inputs.push_back(sample_normal({out}, "down bias"));
  return inputs;
}

}  // namespace

std::vector<OpSpec> relu_mlp_specs() {
  OpSpec mlp{"relu_mlp", "max(x Wu^T + bu, 0) Wd^T + bd"};
  mlp.run = run;
  mlp.reference = reference;
  const Tensors odd = sample({5, 7}, 9, 3, false);
  mlp.samples = {{"size_0", sample({0, 3}, 4, 2, true)},     {"size_1", sample({1, 1}, 1, 1, true)},
                 {"odd_tail", sample({5, 7}, 9, 3, true)},   {"no_bias", sample({2, 3, 5}, 6, 4, false)},
                 {"wide", sample({3, 4}, 131, 5, true)},     {"strided", strided_copies(odd)},
                 {"large", sample({4, 9}, 5, 6, false, 1e3)}};
  mlp.roundings = 32;
  mlp.bench = [] { return sample({4096, 384}, 1536, 384, true); };
  return {mlp};
}

}  // namespace eddy
