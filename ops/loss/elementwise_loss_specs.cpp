// Samples and references of the ops in elementwise_loss.h.
#include <algorithm>
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/loss/elementwise_loss.h"

namespace eddy {
namespace {

// An average of `loss` over the elements of x, of which `values` makes samples, and of targets in [low, high).
template <class Values>
OpSpec loss_spec(const char* name, const char* formula, Tensor (*op)(const Tensor&, const Tensor&),
                 double (*loss)(double, double), Values values, double low, double high) {
  OpSpec spec{name, formula};
  spec.run = [op](const Tensors& x) { return op(x[0], x[1]); };
  spec.reference = [loss](const Tensors& x) {
    const std::vector<double> a = x[0].to_vector<double>(), b = x[1].to_vector<double>();
    double total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) total += loss(a[i], b[i]);
    return Tensor::full({}, total / static_cast<double>(a.size()), Dtype::f64);
  };
  const auto pair = [=](const Shape& shape, double scale = 1) {
    return Tensors{values(shape, scale), sample_uniform(shape, "targets", low, high)};
  };
  spec.samples = {{"size_1", pair({1})},
                  {"scalar", pair({})},
                  {"odd_tail", pair({3, 37})},
                  {"strided", strided_copies(pair({5, 7}))},
                  {"many", pair({3, 5000}), false},
                  {"large", pair({33}, 40), false}};
  spec.roundings = 64;
  spec.bench = [pair] { return pair({2048, 1024}); };
  return spec;
}

}  // namespace

std::vector<OpSpec> elementwise_loss_specs() {
  const auto normal = [](const Shape& shape, double scale) { return sample_normal(shape, "x", scale); };
  const auto probability = [](const Shape& shape, double) { return sample_uniform(shape, "p", 0.1, 0.9); };
  const auto logarithm = [](const Shape& shape, double scale) {
    return sample_uniform(shape, "log", -3 * scale, -0.1);
  };
  OpSpec binary = loss_spec(
      "binary_cross_entropy", "mean of -(t log p + (1 - t) log(1 - p))", binary_cross_entropy,
      [](double p, double t) {
        return -(t * std::max(std::log(p), -100.0) + (1 - t) * std::max(std::log1p(-p), -100.0));
      },
      probability, 0, 1);
  binary.samples.push_back(
      {"certain", {Tensor::from({0.0, 1.0, 0.0, 1.0}, {4}), Tensor::from({0.0, 1.0, 1.0, 0.0}, {4})}, false});
  OpSpec divergence = loss_spec(
      "kl_div", "mean of t (log t - x)", kl_div,
      [](double x, double t) { return t == 0 ? 0 : t * (std::log(t) - x); }, logarithm, 0.1, 1);
  divergence.samples.push_back(
      {"zero_target", {Tensor::from({-1.0, -0.5}, {2}), Tensor::from({0.0, 1.0}, {2})}, false});
  return {
      loss_spec(
          "mse_loss", "mean of (x - t)^2", mse_loss, [](double x, double t) { return (x - t) * (x - t); },
          normal, -1, 1),
      loss_spec(
          "binary_cross_entropy_with_logits", "mean of log(1 + e^x) - x t", binary_cross_entropy_with_logits,
          [](double x, double t) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))) - x * t; },
          normal, 0, 1),
      binary, divergence};
}

}  // namespace eddy
