// AdamW and Adam over a model's parameter arena: moments are arenas with equal offsets, one kernel call per
// step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/params.h"
#include "ops/optimizer.h"
#include "train/optimizer.h"

namespace eddy {

class AdamOptimizer final : public Optimizer {
 public:
  // Decay as the config says, on every parameter with two axes or more (embedding tables included), none on
  // the others; `adam` has no decay at all.
  AdamOptimizer(const ParamStore& params, const TrainConfig& config);

  double step(ParamStore& params, double learning_rate) override;
  std::int64_t steps() const override { return steps_; }
  // "m.<parameter>", "v.<parameter>" and "steps".
  std::map<std::string, Tensor> save(const ParamStore& params) const override;
  void load(const ParamStore& params, const std::map<std::string, Tensor>& tensors,
            const std::string& file) override;

 private:
  AdamOptions options_;
  double clip_;
  std::vector<DecaySegment> segments_;
  Tensor m_, v_;
  std::int64_t steps_ = 0;
};

}  // namespace eddy
