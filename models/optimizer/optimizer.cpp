// Optimizers by name, and a step that is waited for.
#include "models/optimizer/optimizer.h"

#include <cmath>

#include "models/optimizer/adafactor.h"
#include "models/optimizer/adam.h"
#include "ops/core/records.h"
#include "tensor/base/format.h"

namespace eddy {

double Optimizer::step(ParamStore& params, double learning_rate) {
  const AdamScalars numbers = scalars(learning_rate);
  const double norm = apply(params, records_on(params.values().device(), &numbers, 1)).item();
  if (std::isfinite(norm)) count_step();
  return norm;
}

std::unique_ptr<Optimizer> make_optimizer(const ParamStore& params, const TrainConfig& config) {
  if (config.optimizer == "adamw" || config.optimizer == "adam")
    return std::make_unique<AdamOptimizer>(params, config);
  if (config.optimizer == "adafactor") return std::make_unique<AdafactorOptimizer>(params, config);
  fail<ConfigError>("config: train.optimizer is {:?} (adamw, adam or adafactor)", config.optimizer);
}

}  // namespace eddy
