// What a training loop asks of an optimizer: one step over the arenas, and its state for a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "models/params.h"
#include "train/run_config.h"
#include "train/schedule.h"

namespace eddy {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step with the gradients in the arena. Returns their norm before clipping. A norm that is not finite
  // changes nothing and does not count as a step.
  virtual double step(ParamStore& params, double learning_rate) = 0;
  // Steps taken so far.
  virtual std::int64_t steps() const = 0;
  // The whole state by name: "steps", and "<what>.<parameter>" for what is kept of each parameter.
  virtual std::map<std::string, Tensor> save(const ParamStore& params) const = 0;
  // Takes over what save gave; `file` stands for the source in errors. errors: FormatError when a name is
  // missing or has another shape or dtype; nothing is changed then.
  virtual void load(const ParamStore& params, const std::map<std::string, Tensor>& tensors,
                    const std::string& file) = 0;
};

// The optimizer that config.optimizer names: adamw, adam or adafactor. errors: ConfigError for another name.
std::unique_ptr<Optimizer> make_optimizer(const ParamStore& params, const TrainConfig& config);

}  // namespace eddy
