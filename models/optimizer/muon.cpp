// Muon's step, and which parameters are matrices.
#include "models/optimizer/muon.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "autograd/tape.h"
#include "ops/optimizer/momentum.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/product.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

constexpr double kUpdateSize = 0.2;  // the root mean square of an update at rate 1

// The marks of what is held and, as `matrices` says, a hidden matrix or not.
ParameterMask held_of(const ParamStore& params, const ParameterMask& held, bool matrices) {
  const std::vector<Parameter>& all = params.parameters();
  if (!held.empty() && held.size() != all.size()) return held;  // Optimizer refuses it
  ParameterMask marks(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    marks[i] = (held.empty() || held[i]) && (hidden_matrices(all[i]) > 0) == matrices;
  return marks;
}

OptimizerOptions options_of_rest(OptimizerOptions options) {
  options.optimizer = value_name(OptimizerName::adamw);
  return options;
}

}  // namespace

std::int64_t hidden_matrices(const Parameter& parameter) {
  if (parameter.shape.rank() != 2) return 0;
  const std::string_view name = parameter.name;
  const std::size_t point = name.rfind('.');
  const std::string_view last = point == name.npos ? name : name.substr(point + 1);
  const auto stacked = [&](std::int64_t count) { return parameter.shape[0] % count == 0 ? count : 1; };
  if (last == "w_ih" || last == "w_hh") return stacked(4);
  if (last != "weight") return 0;
  const std::string_view before = point == name.npos ? std::string_view() : name.substr(0, point);
  const std::string_view module = before.substr(before.rfind('.') + 1);  // npos + 1 is 0
  if (module == "embed" || module == "pos_embed" || module == "head") return 0;
  return module == "wqkv" ? stacked(3) : 1;
}

Tensor orthogonal(const Tensor& direction) {
  constexpr int kIterations = 5;
  constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315, kLeastNorm = 1e-7;
  const NoGrad no_grad;
  const bool wide = direction.dim(0) <= direction.dim(1);  // X X^T is smaller than X^T X
  Tensor x = direction / (sqrt(sum(direction * direction)) + kLeastNorm);
  const std::int64_t side = std::min(x.dim(0), x.dim(1));
  for (int i = 0; i < kIterations; ++i) {
    const Tensor turned = raw::transpose(x, 0, 1);
    const Tensor a = Tensor::empty({side, side}, x.dtype(), x.device());
    detail::multiply_into(a, wide ? x : turned, wide ? turned : x, 0);
    const Tensor odd = raw::copy(a), next = raw::copy(x);
    detail::multiply_into(odd, kQuintic * a, a, kCubic);
    detail::multiply_into(next, wide ? odd : x, wide ? x : odd, kLinear);
    x = next;
  }
  return x;
}

Muon::Muon(ParamStore& params, const OptimizerOptions& options, const ParameterMask& held)
    : DecayingOptimizer(params, options, held_of(params, held, true), options.weight_decay),
      momentum_(options.matrix_momentum),
      rate_(options.matrix_rate),
      rest_(params, options_of_rest(options), held_of(params, held, false)),
      momenta_(make_statistics()) {
  if (!(momentum_ >= 0 && momentum_ < 1))
    fail<ConfigError>("muon: matrix_momentum is {} (at least 0 and below 1)", momentum_);
  if (!(rate_ > 0 && std::isfinite(rate_))) fail<ConfigError>("muon: matrix_rate is {} (above 0)", rate_);
}

void Muon::update(const Tensor& numbers, const Tensor& norm) {
  rest_.apply_with_norm(numbers, norm);
  for (const Range& range : ranges_of()) {
    const Tensor values = values_of(range), momenta = statistics_of(momenta_, range);
    const Tensor directions = Tensor::empty(values.shape(), values.dtype(), values.device());
    detail::momentum_step_on_device(directions, gradients_of(range), momenta, range.decays,
                                    {detail::MomentumRule::nesterov, momentum_, 0}, numbers, norm);
    for (const Parameter& parameter : params_.parameters()) {
      if (parameter.offset < range.begin || parameter.offset >= range.end) continue;
      const std::int64_t matrices = hidden_matrices(parameter);
      if (matrices == 0) continue;  // one of no elements, at the place of the next one
      const std::int64_t count = parameter.shape.elements() / matrices;
      const Shape shape{parameter.shape[0] / matrices, parameter.shape[1]};
      const double size = rate_ * kUpdateSize * std::sqrt(static_cast<double>(std::max(shape[0], shape[1])));
      for (std::int64_t i = 0; i < matrices && count > 0; ++i) {
        const Tensor part = raw::reshape(
            raw::narrow(directions, 0, parameter.offset - range.begin + i * count, count), shape);
        raw::copy_into(part, size * orthogonal(part));
      }
    }
    detail::momentum_step_on_device(values, directions, momenta, range.decays,
                                    {detail::MomentumRule::given, 0, 0}, numbers, norm);
  }
}

std::vector<Optimizer::Part> Muon::parts() const {
  std::vector<Part> found = parts_of({{"momentum", momenta_}});
  for (const auto& [name, view] : rest_.save())
    if (name != "steps") found.push_back({name, view});
  return found;
}

}  // namespace eddy
