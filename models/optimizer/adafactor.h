// Adafactor over a model's parameter arena; ops/optimizer/adafactor.h has the formulas.
#pragma once

#include <vector>

#include "models/optimizer/optimizer.h"
#include "ops/optimizer/adafactor.h"

namespace eddy {

class AdafactorOptimizer final : public Optimizer {
 public:
  // The constants are those of ops/optimizer/adafactor.h; of the options only `clip` is used. There is no
  // weight decay.
  AdafactorOptimizer(const ParamStore& params, const OptimizerOptions& options);

  AdamScalars scalars(double learning_rate) const override;

 private:
  void update(ParamStore& params, const Tensor& numbers, const Tensor& norm) override;
  // "m.<parameter>"; for a factored parameter "r.<parameter>" [rows] and "c.<parameter>" [columns], for others
  // "v.<parameter>".
  std::vector<Part> parts(const ParamStore& params) const override;

  double clip_;
  AdafactorPlan plan_;
  AdafactorTables tables_;
  Tensor momentum_, second_;
};

}  // namespace eddy
