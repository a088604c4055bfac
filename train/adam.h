// AdamW and Adam over a model's parameter arena: moments are arenas with equal offsets, one kernel call per
// step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/params.h"
#include "ops/optimizer.h"
#include "train/run_config.h"

namespace eddy {

class AdamOptimizer {
 public:
  // Decay as the config says, on every parameter with two axes or more (embedding tables included), none on
  // the others; `adam` has no decay at all.
  AdamOptimizer(const ParamStore& params, const TrainConfig& config);

  // One step with the gradients in the arena. Returns their norm before clipping. A norm that is not finite
  // changes nothing and does not count as a step.
  double step(ParamStore& params, double learning_rate);

  std::int64_t steps() const { return steps_; }
  // Moments and the step count, for a checkpoint. errors of load: FormatError when names or shapes differ.
  std::map<std::string, Tensor> save(const ParamStore& params) const;
  void load(const ParamStore& params, const std::map<std::string, Tensor>& tensors, const std::string& file);

 private:
  AdamOptions options_;
  double clip_;
  std::vector<DecaySegment> segments_;
  Tensor m_, v_;
  std::int64_t steps_ = 0;
};

// The learning rate of optimizer step `step`, counted from 0: linear warm-up over `warmup` steps, then
// constant, or down to min_learning_rate at the last step along a cosine or a line.
double learning_rate_at(const TrainConfig& config, std::int64_t step);

}  // namespace eddy
