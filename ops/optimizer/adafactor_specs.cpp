// Samples and references of the ops in adafactor.h.
#include <algorithm>
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/optimizer/adafactor.h"

namespace eddy {
namespace {

constexpr AdafactorOptions kOptions;
constexpr AdafactorScalars kScalars = {0.03, 4, 1.5};

// One parameter of the shape of p, at the arena's start.
Tensors adafactor_reference(const Tensors& x) {
  const Shape shape = x[0].shape();
  std::vector<double> p = x[0].to_vector<double>(), g = x[1].to_vector<double>(),
                      m = x[2].to_vector<double>(), second = x[3].to_vector<double>();
  const std::size_t n = p.size();
  double norm = 0, size = 0, update_size = 0;
  for (const double value : g) norm += value * value;
  for (double& value : g) value *= std::min(1.0, kScalars.clip / (std::sqrt(norm) + 1e-6));
  const double beta2 = 1 - std::pow(static_cast<double>(kScalars.step) + 1, -0.8);
  std::vector<double> u(n);
  if (shape.rank() == 2 && shape[0] >= 128 && shape[1] >= 128) {
    const std::size_t rows = static_cast<std::size_t>(shape[0]), columns = n / rows;
    for (double& value : second) value *= beta2;
    for (std::size_t i = 0; i < n; ++i) {
      const double square = (1 - beta2) * (g[i] * g[i] + 1e-30);
      second[i / columns] += square / static_cast<double>(columns);
      second[rows + i % columns] += square / static_cast<double>(rows);
    }
    double mean = 0;
    for (std::size_t i = 0; i < rows; ++i) mean += second[i] / static_cast<double>(rows);
    for (std::size_t i = 0; i < n; ++i)
      u[i] = g[i] / std::sqrt(second[i / columns] / mean * second[rows + i % columns]);
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      second[i] = beta2 * second[i] + (1 - beta2) * (g[i] * g[i] + 1e-30);
      u[i] = g[i] / std::sqrt(second[i]);
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    size += p[i] * p[i] / static_cast<double>(n);
    update_size += u[i] * u[i] / static_cast<double>(n);
  }
  const double rate = kScalars.lr * std::max(std::sqrt(size), 1e-3) / std::max(1.0, std::sqrt(update_size));
  for (std::size_t i = 0; i < n; ++i) {
    m[i] = 0.9 * m[i] + 0.1 * rate * u[i];
    p[i] -= m[i];
  }
  return {Tensor::from(p, shape), Tensor::from(m, shape), Tensor::from(second, x[3].shape())};
}

}  // namespace

std::vector<OpSpec> adafactor_specs() {
  OpSpec spec{"adafactor", "p - m, m = 0.9 m + 0.1 rate g / sqrt(second moment), factored for matrices"};
  spec.run = [](const Tensors& x) {
    const Tensor p = raw::copy(x[0]), m = raw::copy(x[2]), second = raw::copy(x[3]);
    const Tensor g = raw::contiguous(x[1]);
    adafactor_step(p, g, m, second, adafactor_plan({{0, p.shape()}}), kOptions, kScalars, l2_norm(g));
    return Tensors{p, m, second};
  };
  spec.reference = adafactor_reference;
  const auto sample = [](const Shape& shape, double scale) {
    const std::int64_t second = adafactor_factored(shape) ? shape[0] + shape[1] : shape.elements();
    return Tensors{sample_normal(shape, "p", 0.1), sample_normal(shape, "g", scale),
                   sample_normal(shape, "m", 0.01),
                   sample_uniform({second}, "second", 0.5 * scale * scale, 2 * scale * scale)};
  };
  // Small parameters: the least scale takes over.
  Tensors tiny = sample({3, 5}, 0.1);
  tiny[0] = sample_normal({3, 5}, "p", 1e-5);
  spec.samples = {{"size_0", sample({0}, 1), false},
                  {"size_1", sample({1}, 0.1), false},
                  {"odd_tail", sample({67}, 0.1), false},
                  {"matrix_with_a_short_side", sample({127, 130}, 0.001), false},
                  {"least_factored", sample({128, 128}, 0.001), false},
                  {"factored", sample({301, 131}, 0.001), false},
                  {"many_blocks", sample({40001}, 0.003), false},
                  {"clipped", sample({67}, 10), false},
                  {"tiny_parameters", tiny, false},
                  {"large", sample({33}, 1e6), false}};
  spec.roundings = 32;
  spec.bench = [sample] { return sample({2048, 2048}, 1); };
  return {spec};
}

}  // namespace eddy
