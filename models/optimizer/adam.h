// AdamW and Adam over a model's parameter arena. Moments are arenas with equal offsets. A step is one kernel
// call, or one for each range between parameters without a gradient.
#pragma once

#include <vector>

#include "models/optimizer/optimizer.h"

namespace eddy {

// Adam and AdamW; ops/optimizer/optimizer.h has the formulas.
class Adam final : public Optimizer {
 public:
  // Weight decay applies to every parameter with two axes or more (embedding tables included) and to no
  // other; the optimizer "adam" has none, whatever weight_decay is.
  // errors: ConfigError for a constant out of its range, or a name other than adamw and adam.
  explicit Adam(ParamStore& params, const OptimizerOptions& options = {}, const ParameterMask& held = {});

  AdamScalars scalars(double learning_rate) const override;

 private:
  // Skips parameters that no gradient reached since zero_gradients: neither value (no decay) nor moments
  // change, as in PyTorch where a gradient is None. A gradient of zeros is a gradient. All parameters share
  // one count of steps.
  void update(const Tensor& numbers, const Tensor& norm) override;
  // "m.<parameter>" and "v.<parameter>".
  std::vector<Part> parts() const override;

  // Adjacent parameters that a step changes.
  struct Range {
    std::int64_t begin, end;  // in the arenas
    std::int64_t at;          // of `begin` in the moments
    Tensor decays;            // the table of its segments, on the device
  };
  std::vector<Range> ranges_of();

  AdamConstants constants_;
  double clip_;
  std::vector<DecaySegment> segments_;
  std::vector<Range> ranges_;  // of the last step, mostly the same at every step
  Tensor m_, v_;
};

}  // namespace eddy
