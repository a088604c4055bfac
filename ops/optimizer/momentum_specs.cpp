// Samples and references of the ops in momentum.h.
#include <algorithm>
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/core/records.h"
#include "ops/optimizer/arena_samples.h"
#include "ops/optimizer/momentum.h"

namespace eddy {
namespace {

constexpr detail::AdamScalars kMomentumScalars = {0.01, 1, 1.5};

OpSpec momentum_spec(const char* name, const char* formula, const detail::MomentumConstants& constants) {
  OpSpec spec{name, formula};
  spec.run = [constants](const Tensors& x) {
    const Tensor p = raw::copy(x[0]), m = raw::copy(x[2]), g = raw::contiguous(x[1]);
    detail::momentum_step_on_device(
        p, g, m, detail::decay_table(detail::sample_segments(p.elements()), p.elements(), p.device()),
        constants, upload_records(p.device(), &kMomentumScalars, 1), l2_norm(g));
    return Tensors{p, m};
  };
  spec.reference = [constants](const Tensors& x) {
    std::vector<double> p = x[0].to_vector<double>(), m = x[2].to_vector<double>();
    const std::vector<double> g = x[1].to_vector<double>();
    double squares = 0;
    for (const double value : g) squares += value * value;
    const double factor = std::min(1.0, kMomentumScalars.clip / (std::sqrt(squares) + 1e-6));
    for (std::size_t i = 0; i < p.size(); ++i) {
      double decay = 0;
      for (const detail::DecaySegment& segment : detail::sample_segments(std::ssize(p)))
        if (static_cast<std::int64_t>(i) >= segment.begin && static_cast<std::int64_t>(i) < segment.end)
          decay = segment.decay;
      const double gradient = factor * g[i],
                   mixed = constants.beta1 * m[i] + (1 - constants.beta1) * gradient;
      const double rate = kMomentumScalars.lr, kept = p[i] * (1 - rate * decay);
      switch (constants.rule) {
        case detail::MomentumRule::sgd:
          m[i] = constants.beta1 * m[i] + gradient;
          p[i] = kept - rate * m[i];
          break;
        case detail::MomentumRule::lion:
          m[i] = constants.beta2 * m[i] + (1 - constants.beta2) * gradient;
          p[i] = kept - rate * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0);
          break;
        case detail::MomentumRule::nesterov:
          m[i] = constants.beta1 * m[i] + gradient;
          p[i] = gradient + constants.beta1 * m[i];
          break;
        case detail::MomentumRule::given:
          p[i] = kept - rate * g[i];
          break;
      }
    }
    return Tensors{Tensor::from(p, x[0].shape()), Tensor::from(m, x[0].shape())};
  };
  const auto sample = [](std::int64_t n, double scale) {
    return Tensors{sample_normal({n}, "p"), sample_normal({n}, "g", scale), sample_normal({n}, "m", scale)};
  };
  detail::set_arena_samples(spec, sample);
  return spec;
}

}  // namespace

std::vector<OpSpec> momentum_specs() {
  return {
      momentum_spec("sgd", "m = beta1 m + g, p (1 - lr decay) - lr m", {detail::MomentumRule::sgd, 0.9, 0}),
      momentum_spec("lion", "p (1 - lr decay) - lr sign(beta1 m + (1 - beta1) g)",
                    {detail::MomentumRule::lion, 0.9, 0.99}),
      momentum_spec("nesterov", "m = beta1 m + g, g + beta1 m", {detail::MomentumRule::nesterov, 0.95, 0}),
      momentum_spec("given", "p (1 - lr decay) - lr g, without clipping",
                    {detail::MomentumRule::given, 0, 0})};
}

}  // namespace eddy
