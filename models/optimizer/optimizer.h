// What a training loop asks of an optimizer: one step over the arenas, and its state for a checkpoint.
//
// A step is asked for and not waited for: its numbers (learning rate, count, clipping) lie in the memory of
// the device, and so does the decision that a norm which is not finite moves nothing. Who asked looks at the
// norm later and says whether the step counts. So a step can be recorded once and replayed with other
// numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "models/optimizer/schedule.h"
#include "models/params.h"
#include "ops/optimizer/optimizer.h"
#include "train/config/run_config.h"

namespace eddy {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The numbers of the next step.
  // errors: ValueError for a learning rate that is negative or not finite.
  virtual AdamScalars scalars(double learning_rate) const = 0;
  // Asks for one step with the gradients in the arena; `numbers` holds the bytes of scalars() on the
  // parameters' device and is read when the step is computed. Returns the gradients' norm before clipping,
  // one f64 on that device. A norm that is not finite changes nothing.
  virtual Tensor apply(ParamStore& params, const Tensor& numbers) = 0;
  // Counts a step that was asked for: its norm was finite.
  virtual void count_step() = 0;
  // Steps counted so far.
  virtual std::int64_t steps() const = 0;

  // One step, waited for and counted where it is one. Returns the gradients' norm.
  double step(ParamStore& params, double learning_rate);

  // The whole state by name: "steps", and "<what>.<parameter>" for what is kept of each parameter.
  virtual std::map<std::string, Tensor> save(const ParamStore& params) const = 0;
  // Takes over what save gave; `file` stands for the source in errors.
  // errors: FormatError when a name is missing or has another shape or dtype; nothing is changed then.
  virtual void load(const ParamStore& params, const std::map<std::string, Tensor>& tensors,
                    const std::string& file) = 0;
};

// The optimizer that config.optimizer names: adamw, adam or adafactor.
// errors: ConfigError for another name.
std::unique_ptr<Optimizer> make_optimizer(const ParamStore& params, const TrainConfig& config);

}  // namespace eddy
