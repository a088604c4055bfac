// Samples and references of the ops in optimizer.h.
#include <algorithm>
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/optimizer/arena_samples.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

namespace eddy {
namespace {

constexpr detail::AdamConstants kAdamConstants = {0.9, 0.98, 1e-6};
constexpr detail::AdamScalars kAdamScalars = {0.01, 3, 1.5};

Tensors adam_reference(const Tensors& x) {
  const double norm = sqrt(sum(x[1] * x[1])).item<double>(), t = static_cast<double>(kAdamScalars.step);
  const Tensor g = x[1] * std::min(1.0, kAdamScalars.clip / (norm + 1e-6));
  const Tensor m = kAdamConstants.beta1 * x[2] + (1 - kAdamConstants.beta1) * g,
               v = kAdamConstants.beta2 * x[3] + (1 - kAdamConstants.beta2) * g * g;
  const Tensor decay = Tensor::zeros(x[0].shape(), Dtype::f64);
  for (const detail::DecaySegment& segment : detail::sample_segments(x[0].elements()))
    raw::fill(raw::narrow(decay, 0, segment.begin, segment.end - segment.begin), segment.decay);
  const Tensor corrected_m = m / (1 - std::pow(kAdamConstants.beta1, t)),
               corrected_v = v / (1 - std::pow(kAdamConstants.beta2, t));
  return {x[0] - kAdamScalars.lr * (decay * x[0] + corrected_m / (sqrt(corrected_v) + kAdamConstants.eps)), m,
          v};
}

OpSpec adamw_spec() {
  OpSpec spec{"adamw", "p (1 - lr decay) - lr m^ / (sqrt(v^) + eps)"};
  spec.run = [](const Tensors& x) {
    const Tensor p = raw::copy(x[0]), m = raw::copy(x[2]), v = raw::copy(x[3]), g = raw::contiguous(x[1]);
    detail::adamw_step(p, g, m, v, detail::sample_segments(p.elements()), kAdamConstants, kAdamScalars,
                       l2_norm(g));
    return Tensors{p, m, v};
  };
  spec.reference = adam_reference;
  const auto sample = [](std::int64_t n, double scale) {
    return Tensors{sample_normal({n}, "p"), sample_normal({n}, "g", scale), sample_normal({n}, "m", scale),
                   sample_uniform({n}, "v", 0, 2 * scale * scale)};
  };
  detail::set_arena_samples(spec, sample);
  return spec;
}

OpSpec norm_spec() {
  OpSpec spec{"l2_norm", "sqrt(sum of x^2)"};
  spec.run = [](const Tensors& x) { return l2_norm(raw::contiguous(x[0])); };
  spec.reference = [](const Tensors& x) {
    long double sum = 0;
    for (const double value : x[0].to_vector<double>()) sum += static_cast<long double>(value) * value;
    return Tensor::full({}, static_cast<double>(std::sqrt(sum)), Dtype::f64);
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "x"); };
  spec.samples = {{"size_0", {values({0})}, false},
                  {"size_1", {values({1})}, false},
                  {"odd_tail", {values({3, 37})}, false},
                  {"strided", {strided_copy(values({5, 7}))}, false},
                  {"many_blocks", {values({3 * detail::kNormBlock + 5})}, false},
                  {"large", {sample_normal({33}, "x", 1e6)}, false}};
  spec.roundings =
      64;  // each of 16 lanes adds up to 1024 squares of one sign; roundings of random sign grow by a root
  spec.bench = [values] { return values({1 << 22}); };
  return spec;
}

}  // namespace

std::vector<OpSpec> optimizer_specs() {
  return {adamw_spec(), norm_spec()};
}

}  // namespace eddy
