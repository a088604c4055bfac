// The steps of a run one behind the other, of which a GPU may have two under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "models/optimizer/optimizer.h"
#include "tensor/transfer.h"
#include "train/step/train_step.h"

namespace eddy::training {

// The steps of one run, of which a GPU may have two: step s + 1 is enqueued before the numbers of step s are read, so
// that the GPU does not wait for the host.
//
//   host     launch s   launch s + 1   collect s   launch s + 2   collect s + 1
//   device         s ------------ numbers s + 1 ------------ numbers s + 2
//
// Results and bits are those of train_step. Where step s turns out not to be finite, it has changed nothing, and step
// s + 1 changes nothing either: it reads the norm of step s on the device (l2_norm). The host then forgets step s + 1,
// computes step s once more to find the reason, and the caller launches step s + 1 again. On the CPU, on a counting
// device and with ranks a launch is a whole step.
// memory: of a step with another behind it the state that it began from, if states are carried.
class StepQueue {
 public:
  // They must outlive this object. All steps have so many batches and micro-batches a batch.
  StepQueue(Model& model, Recorder& recorder, std::int64_t batches, std::int64_t micro_batches);
  ~StepQueue();

  // Begins a step; false where StepOptions::stop ended it. `carried` becomes the state after it.
  // errors: those of train_step. Steps that were under way before remain so.
  bool launch(Optimizer& optimizer, const std::vector<Batch>& batches, CarriedState& carried,
              const StepOptions& options);
  // Whether another step may be launched behind the one under way: on a GPU, with a state of no more than 32 MiB.
  bool may_run_ahead() const;
  // How many steps are under way.
  std::size_t under_way() const { return steps_.size(); }
  // Waits for the oldest step and returns its result. Where that is not finite, no step is under way any more, and
  // `carried` is the state after this one.
  // errors: those of train_step; the step is then still under way.
  StepResult collect(Optimizer& optimizer, CarriedState& carried);

 private:
  struct Step;

  bool is_late(const StepOptions& options) const;
  void drop(std::size_t i);

  Model& model_;
  Recorder& recorder_;
  Tensor numbers_;  // of all steps (collect_step.h)
  std::deque<std::unique_ptr<Step>> steps_;
  std::vector<std::unique_ptr<HostCopy>> idle_;  // those of steps are reused
};

}  // namespace eddy::training
