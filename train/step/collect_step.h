// Reading back a step that was enqueued. The step itself waits for nothing, so its numbers can be read when the
// device has something else to do.
#pragma once

#include <cstddef>
#include <vector>

#include "train/step/step_inputs.h"

namespace eddy::training {

// The norm of a step's gradient and the losses of its local micro-batches, where the device writes them: one buffer,
// read by one copy.
class StepNumbers {
 public:
  // In `memory` (make_memory), where the norm of the step before stands until store_norm; in memory of its own without.
  StepNumbers(std::size_t losses, Device device, const Tensor& memory = {});
  static Tensor make_memory(std::size_t losses, Device device);
  // The norm of the step before, in the memory that it shares with this one; undefined without.
  Tensor norm_before() const;
  // Enqueue a copy of a scalar. A loss that is not stored stays 0.
  void store_norm(const Tensor& norm) { store(0, norm); }
  void store_loss(std::size_t i, const Tensor& loss);

  struct Values {
    double norm = 0;
    std::vector<double> losses;
  };
  // Waits for the device. The second returns what a copy of all() on the host holds.
  Values read() const;
  Values values_in(const Tensor& on_host) const;
  const Tensor& all() const { return numbers_; }

 private:
  static Tensor slot(const Tensor& numbers, std::size_t i, Dtype dtype);
  void store(std::size_t i, const Tensor& value);

  std::size_t losses_;
  bool is_shared_;
  Tensor numbers_;  // bytes, 8 for each number
  Dtype loss_dtype_ = Dtype::f32;
};

// The work of a step, enqueued on the device.
struct EnqueuedStep {
  StepNumbers numbers;
  GraphStats graph{};  // as StepResult::graph
  CarriedState before{}, after{};
  Tensor gradient_norms{};  // of each parameter, where the step computed them
  bool stopped = false;
};

// What a step's numbers say: its loss and norm, or that they are not finite, without the reason.
StepResult result_of(const StepInputs& inputs, const EnqueuedStep& work, const StepNumbers::Values& numbers);

// Waits for a step, reads its numbers, and counts the optimizer's step if it was taken. With carry_state `carried`
// becomes the state after the step; after a loss that is not finite it is cleared, since it may be the cause. To find
// the source of a value that is not finite, the step is computed again.
// errors: those of the model and of Ranks::exchange.
StepResult collect_step(const Model& model, Optimizer& optimizer, const StepInputs& inputs,
                        const EnqueuedStep& work, CarriedState& carried);

}  // namespace eddy::training
