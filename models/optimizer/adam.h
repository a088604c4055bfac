// AdamW and Adam over a model's parameter arena. Moments are arenas with equal offsets. A step is one kernel
// call, or one for each stretch between parameters without a gradient.
#pragma once

#include <vector>

#include "models/optimizer/optimizer.h"

namespace eddy {

class AdamOptimizer final : public Optimizer {
 public:
  // Weight decay applies to every parameter with two axes or more (embedding tables included) and to no
  // other; `adam` has none.
  AdamOptimizer(const ParamStore& params, const OptimizerOptions& options);

  AdamScalars scalars(double learning_rate) const override;

 private:
  // Skips parameters that no gradient reached since zero_gradients: neither value (no decay) nor moments
  // change, as in PyTorch where a gradient is None. A gradient of zeros is a gradient. All parameters share
  // one count of steps.
  void update(ParamStore& params, const Tensor& numbers, const Tensor& norm) override;
  // "m.<parameter>" and "v.<parameter>".
  std::vector<Part> parts(const ParamStore& params) const override;

  // Adjacent parameters that a step changes.
  struct Stretch {
    std::int64_t begin, end;  // in the arenas
    Tensor decays;            // the table of its segments, on the device
  };
  std::vector<Stretch> stretches_of(const ParamStore& params);

  AdamOptions options_;
  double clip_;
  std::vector<DecaySegment> segments_;
  std::vector<Stretch> stretches_;  // of the last step, mostly the same at every step
  Tensor m_, v_;
};

// What Adam needs to know, with the usual defaults.
struct AdamSettings {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // above 0: AdamW, of every parameter with two axes or more
  double clip = 0;          // the largest global norm of the gradients; 0: no clipping
};

// Adam for a program of one's own: it holds the parameters that it updates.
//
//   Adam adam(net.params(), {.learning_rate = 1e-2});
//   adam.zero_gradients();
//   backward(loss);
//   adam.step();
class Adam {
 public:
  // `params` must outlive this object.
  // errors: ConfigError for a constant out of its range.
  explicit Adam(ParamStore& params, const AdamSettings& settings = {});

  // Marks all gradients as absent; call it before each backward pass, or gradients add up.
  void zero_gradients() { params_.zero_gradients(); }
  // Updates the parameters by their gradients. Returns the gradients' global norm before clipping. If the norm is
  // not finite, nothing changes.
  double step() { return optimizer_.step(params_, settings.learning_rate); }

  // learning_rate may change between steps; the other settings are read once.
  AdamSettings settings;

 private:
  ParamStore& params_;
  AdamOptimizer optimizer_;
};

}  // namespace eddy
