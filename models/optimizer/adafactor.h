// Adafactor over a model's parameter arena; ops/optimizer/adafactor.h has the formulas.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/optimizer/optimizer.h"
#include "models/params.h"
#include "ops/optimizer/adafactor.h"

namespace eddy {

class AdafactorOptimizer final : public Optimizer {
 public:
  // The constants are those of ops/optimizer/adafactor.h; of the options only `clip` is used. There is no
  // weight decay.
  AdafactorOptimizer(const ParamStore& params, const OptimizerOptions& options);

  AdamScalars scalars(double learning_rate) const override;
  Tensor apply(ParamStore& params, const Tensor& numbers) override;
  void count_step() override { ++steps_; }
  std::int64_t steps() const override { return steps_; }
  // "m.<parameter>" and "steps"; for a factored parameter "r.<parameter>" [rows] and "c.<parameter>"
  // [columns], for others "v.<parameter>".
  std::map<std::string, Tensor> save(const ParamStore& params) const override;
  void load(const ParamStore& params, const std::map<std::string, Tensor>& tensors,
            const std::string& file) override;

 private:
  // A part of the state: its name in a checkpoint, and a view of it.
  struct Part {
    std::string name;
    Tensor view;
  };
  std::vector<Part> parts(const ParamStore& params) const;

  double clip_;
  AdafactorPlan plan_;
  AdafactorTables tables_;
  Tensor momentum_, second_;
  std::int64_t steps_ = 0;
};

}  // namespace eddy
