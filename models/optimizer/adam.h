// AdamW and Adam over a model's parameter arena: moments are arenas with equal offsets, and a step is one
// kernel call, or one for each stretch between parameters that took no part in it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/optimizer/optimizer.h"
#include "models/params.h"
#include "ops/optimizer/optimizer.h"

namespace eddy {

class AdamOptimizer final : public Optimizer {
 public:
  // Decay as the config says, on every parameter with two axes or more (embedding tables included), none on
  // the others; `adam` has no decay at all.
  AdamOptimizer(const ParamStore& params, const TrainConfig& config);

  // A parameter that no gradient reached since the gradients were forgotten took no part in the loss: it is
  // left out whole, its value without decay and its moments as they are, as PyTorch leaves out one whose
  // gradient is None. A gradient of zeros is one. The count of steps is common to all parameters.
  Tensor apply(ParamStore& params, const Tensor& numbers) override;
  AdamScalars scalars(double learning_rate) const override;
  void count_step() override { ++steps_; }
  std::int64_t steps() const override { return steps_; }
  // "m.<parameter>", "v.<parameter>" and "steps".
  std::map<std::string, Tensor> save(const ParamStore& params) const override;
  void load(const ParamStore& params, const std::map<std::string, Tensor>& tensors,
            const std::string& file) override;

 private:
  // Parameters side by side that a step moves.
  struct Stretch {
    std::int64_t begin, end;  // in the arenas
    Tensor decays;            // the table of its segments, on the device
  };
  std::vector<Stretch> stretches_of(const ParamStore& params);

  AdamOptions options_;
  double clip_;
  std::vector<DecaySegment> segments_;
  std::vector<Stretch> stretches_;  // of the last step: as a rule they are those of every step
  Tensor m_, v_;
  std::int64_t steps_ = 0;
};

}  // namespace eddy
