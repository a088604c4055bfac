// What optimizers with weight decay and moments in arenas have in common: which parameters a step changes, and the
// decay of each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/optimizer/optimizer.h"

namespace eddy {

// A step is one kernel call, or one for each range between parameters without a gradient.
//
// It skips parameters that no gradient reached since zero_gradients: neither value (no decay) nor moments change, as in
// PyTorch where a gradient is None. A gradient of zeros is a gradient. All parameters share one count of steps.
class DecayingOptimizer : public Optimizer {
 public:
  // Steps are counted from 1.
  detail::AdamScalars scalars(double learning_rate) const override;

 protected:
  // The decay applies to every parameter with two axes or more.
  DecayingOptimizer(ParamStore& params, const OptimizerOptions& options, const ParameterMask& held,
                    double decay);

  // Adjacent parameters that a step changes.
  struct Range {
    std::int64_t begin, end;  // in the arenas
    std::int64_t at;          // of `begin` in the moments
    Tensor decays;            // the table of its segments, on the device
  };
  // Those of this step.
  std::vector<Range> ranges_of();
  // Their parts of the arenas, and of moments.
  Tensor values_of(const Range& range) const;
  Tensor gradients_of(const Range& range) const;
  Tensor statistics_of(const Tensor& moments, const Range& range) const;
  // "<name>.<parameter>" of each of these moments, for every held parameter.
  std::vector<Part> parts_of(const std::vector<std::pair<std::string, Tensor>>& moments) const;

 private:
  double clip_;
  std::vector<detail::DecaySegment> segments_;
  std::vector<Range> ranges_;  // of the last step, mostly the same at every step
};

}  // namespace eddy
