// Samples and references of the ops in adafactor.h.
#include <algorithm>
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/optimizer/adafactor.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace eddy {
namespace {

constexpr detail::AdafactorOptions kOptions;
constexpr detail::AdafactorScalars kScalars = {0.03, 4, 1.5};

double root_mean_square(const Tensor& x) {
  return std::sqrt(sum(x * x).item<double>() / std::max(1.0, static_cast<double>(x.elements())));
}

// One parameter of the shape of p, at the arena's start.
Tensors adafactor_reference(const Tensors& x) {
  const Shape shape = x[0].shape();
  const double norm = std::sqrt(sum(x[1] * x[1]).item<double>());
  const Tensor g = x[1] * std::min(1.0, kScalars.clip / (norm + 1e-6));
  const double beta2 = 1 - std::pow(static_cast<double>(kScalars.step) + 1, -0.8);
  const Tensor squares = (1 - beta2) * (g * g + 1e-30), before = beta2 * x[3];
  Tensor second, u;
  if (shape.rank() == 2 && shape[0] >= 128 && shape[1] >= 128) {
    const Tensor rows = narrow(before, 0, 0, shape[0]) + mean(squares, 1),
                 columns = narrow(before, 0, shape[0], shape[1]) + mean(squares, 0);
    second = concat({rows, columns}, 0);
    u = g / sqrt(reshape(rows / mean(rows), {shape[0], 1}) * columns);
  } else {
    second = before + reshape(squares, before.shape());
    u = g / sqrt(reshape(second, shape));
  }
  const double rate =
      kScalars.lr * std::max(root_mean_square(x[0]), 1e-3) / std::max(1.0, root_mean_square(u));
  const Tensor m = 0.9 * x[2] + 0.1 * rate * u;
  return {x[0] - m, m, second};
}

}  // namespace

std::vector<OpSpec> adafactor_specs() {
  OpSpec spec{"adafactor", "p - m, m = 0.9 m + 0.1 rate g / sqrt(second moment), factored for matrices"};
  spec.run = [](const Tensors& x) {
    const Tensor p = raw::copy(x[0]), m = raw::copy(x[2]), second = raw::copy(x[3]);
    const Tensor g = raw::contiguous(x[1]);
    detail::adafactor_step(p, g, m, second, detail::adafactor_plan({{0, p.shape()}}), kOptions, kScalars,
                           l2_norm(g));
    return Tensors{p, m, second};
  };
  spec.reference = adafactor_reference;
  const auto sample = [](const Shape& shape, double scale) {
    const std::int64_t second = detail::adafactor_factored(shape) ? shape[0] + shape[1] : shape.elements();
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
