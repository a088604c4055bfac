// SGD with momentum, and Lion, over a model's parameter arena; ops/optimizer/momentum.h has the formulas.
#include "ops/optimizer/momentum.h"

#include "models/optimizer/decaying_optimizer.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

class MomentumOptimizer final : public DecayingOptimizer {
 public:
  MomentumOptimizer(ParamStore& params, const OptimizerOptions& options, const ParameterMask& held)
      : DecayingOptimizer(params, options, held, options.weight_decay),
        constants_{value_is(options.optimizer, OptimizerName::lion) ? detail::MomentumRule::lion
                                                                    : detail::MomentumRule::sgd,
                   options.beta1, options.beta2},
        m_(make_statistics()) {
    for (const double beta : {options.beta1, options.beta2})
      if (!(beta >= 0 && beta < 1))
        fail<ConfigError>("{}: betas {} and {} (each at least 0 and below 1)", options.optimizer,
                          options.beta1, options.beta2);
    if (!(options.weight_decay >= 0 && options.clip >= 0))
      fail<ConfigError>("{}: weight_decay {} and clip {} (each 0 or more)", options.optimizer,
                        options.weight_decay, options.clip);
  }

 private:
  void update(const Tensor& numbers, const Tensor& norm) override {
    for (const Range& range : ranges_of())
      detail::momentum_step_on_device(values_of(range), gradients_of(range), statistics_of(m_, range),
                                      range.decays, constants_, numbers, norm);
  }
  // "m.<parameter>".
  std::vector<Part> parts() const override { return parts_of({{"m", m_}}); }

  detail::MomentumConstants constants_;
  Tensor m_;
};

}  // namespace

std::unique_ptr<Optimizer> make_momentum(ParamStore& params, const OptimizerOptions& options,
                                         const ParameterMask& held) {
  return std::make_unique<MomentumOptimizer>(params, options, held);
}

}  // namespace eddy
