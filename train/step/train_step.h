// One optimizer step: forward, loss and backward over its batches, then the optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/optimizer/optimizer.h"
#include "tensor/transfer.h"
#include "train/step/batch.h"
#include "train/step/recorder.h"

namespace eddy::training {

class ArenaBuckets;
class Ranks;

struct StepOptions {
  double learning_rate = 0;
  std::uint64_t seed = 0;  // of dropout
  std::int64_t step = 0;   // optimizer steps done before; numbers the dropout masks
  bool carry_state = false;
  std::int64_t micro_batches = 1;  // parts of each batch: a power of two
  Recompute recompute = Recompute::none;
  // With ranks, `batches` and `carried` hold this rank's rows, `scored` has the number of scored targets of each
  // micro-batch of the step, batch by batch, those of other ranks too, and `buckets` are those of all ranks. The
  // optimizer holds buckets->shard_of(rank). Without ranks, `scored` and `buckets` are not read.
  Ranks* ranks = nullptr;
  const ArenaBuckets* buckets = nullptr;
  std::vector<std::int64_t> scored{};
  // Called between two batches of a step that is not captured: true ends the step, which then has no effect.
  std::function<bool()> stop{};
};

struct StepResult {
  double loss = 0;       // mean over the scored targets of all batches, nats
  double grad_norm = 0;  // before clipping
  bool finite = true;    // when not, no parameter changed
  bool stopped = false;  // ended by StepOptions::stop: nothing changed, and the numbers mean nothing
  std::string problem;   // what was not finite, and which op, module or parameter it came from; else empty
  GraphStats graph;      // of the last batch, when its backward pass began
  std::optional<std::size_t> bad_loss{};  // the first micro-batch whose loss is not finite
};

// Runs one optimizer step over `batches`, all with the same weights, and returns its result. The gradient is
// that of the mean loss over all scored targets; reducer.h has the order of its sum. With carry_state the state
// is carried from batch to batch and stored in `carried`; after a loss that is not finite it is cleared, because it
// may be the cause. A step without scored targets advances the state and changes no parameter; its loss is NaN. If
// the loss or a gradient is not finite, no parameter changes. With a recorder of the model's parameters, the step is
// captured and replayed if the device supports it. On a counting device (ops/cost/counting.h) the loss is NaN.
// aliasing: with a recorder, the next call may overwrite the tensors in `carried`; copy those that you keep.
// errors: those of the model.
StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options, Recorder* recorder = nullptr);

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

// The number of scored targets of each micro-batch, batch by batch.
std::vector<std::int64_t> scored_targets(const std::vector<Batch>& batches, std::int64_t micro_batches);

}  // namespace eddy::training
