// AdamW and Adam over a model's parameter arena. Moments are arenas with equal offsets. A step is one kernel
// call, or one for each range between parameters without a gradient.
#pragma once

#include <vector>

#include "models/optimizer/decaying_optimizer.h"

namespace eddy {

// Adam and AdamW; ops/optimizer/optimizer.h has the formulas.
class Adam final : public DecayingOptimizer {
 public:
  // Weight decay applies to every parameter with two axes or more (embedding tables included) and to no
  // other; the optimizer "adam" has none, whatever weight_decay is.
  // errors: ConfigError for a constant out of its range, or a name other than adamw and adam.
  explicit Adam(ParamStore& params, const OptimizerOptions& options = {}, const ParameterMask& held = {});

 private:
  void update(const Tensor& numbers, const Tensor& norm) override;
  // "m.<parameter>" and "v.<parameter>".
  std::vector<Part> parts() const override;

  detail::AdamConstants constants_;
  Tensor m_, v_;
};

}  // namespace eddy
