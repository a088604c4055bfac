// Optimizers by name.
#include "train/optimizer.h"

#include "tensor/format.h"
#include "train/adafactor.h"
#include "train/adam.h"

namespace eddy {

std::unique_ptr<Optimizer> make_optimizer(const ParamStore& params, const TrainConfig& config) {
  if (config.optimizer == "adamw" || config.optimizer == "adam")
    return std::make_unique<AdamOptimizer>(params, config);
  if (config.optimizer == "adafactor") return std::make_unique<AdafactorOptimizer>(params, config);
  fail<ConfigError>("config: train.optimizer is {:?} (adamw, adam or adafactor)", config.optimizer);
}

}  // namespace eddy
