// Adam's state and its checks.
#include "models/optimizer/adam.h"

#include "tensor/base/format.h"

namespace eddy {
namespace {

void check(const OptimizerOptions& options) {
  if (!value_is(options.optimizer, OptimizerName::adamw) && !value_is(options.optimizer, OptimizerName::adam))
    fail<ConfigError>("Adam: optimizer is {:?} (adamw or adam; make_optimizer makes all)", options.optimizer);
  const auto require = [](bool holds, const char* name, double value, const char* rule) {
    if (!holds) fail<ConfigError>("Adam: {} is {} ({})", name, value, rule);
  };
  require(options.beta1 >= 0 && options.beta1 < 1, "beta1", options.beta1, "at least 0 and below 1");
  require(options.beta2 >= 0 && options.beta2 < 1, "beta2", options.beta2, "at least 0 and below 1");
  require(options.eps > 0, "eps", options.eps, "above 0");
  require(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  require(options.clip >= 0, "clip", options.clip, "0 or more");
}

}  // namespace

Adam::Adam(ParamStore& params, const OptimizerOptions& options, const ParameterMask& held)
    : DecayingOptimizer(params, options, held,
                        value_is(options.optimizer, OptimizerName::adamw) ? options.weight_decay : 0),
      constants_{options.beta1, options.beta2, options.eps} {
  check(options);
  m_ = make_statistics();
  v_ = make_statistics();
}

void Adam::update(const Tensor& numbers, const Tensor& norm) {
  for (const Range& range : ranges_of())
    detail::adamw_step_on_device(values_of(range), gradients_of(range), statistics_of(m_, range),
                                 statistics_of(v_, range), range.decays, constants_, numbers, norm);
}

std::vector<Optimizer::Part> Adam::parts() const {
  return parts_of({{"m", m_}, {"v", v_}});
}

}  // namespace eddy
