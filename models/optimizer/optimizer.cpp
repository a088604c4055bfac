// Optimizers by name, and a step that waits for its result.
#include "models/optimizer/optimizer.h"

#include <cmath>

#include "models/optimizer/adafactor.h"
#include "models/optimizer/adam.h"
#include "ops/core/records.h"
#include "tensor/base/format.h"

namespace eddy {

double Optimizer::step(ParamStore& params, double learning_rate) {
  const AdamScalars numbers = scalars(learning_rate);
  const double norm = apply(params, upload_records(params.values().device(), &numbers, 1)).item();
  if (std::isfinite(norm)) count_step();
  return norm;
}

std::unique_ptr<Optimizer> make_optimizer(const ParamStore& params, const OptimizerOptions& options) {
  if (options.optimizer == "adamw" || options.optimizer == "adam")
    return std::make_unique<AdamOptimizer>(params, options);
  if (options.optimizer == "adafactor") return std::make_unique<AdafactorOptimizer>(params, options);
  fail<ConfigError>("config: train.optimizer is {:?} (adamw, adam or adafactor)", options.optimizer);
}

}  // namespace eddy
