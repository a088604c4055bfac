// One optimizer step: forward, loss and backward over its batches, then the optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/optimizer/optimizer.h"
#include "train/step/batch.h"
#include "train/step/recorder.h"

namespace eddy::training {

class ArenaBuckets;
class Ranks;
struct EnqueuedStep;
struct StepInputs;

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

// Enqueues a step that begins from `carried`, which stays as it is, and waits for nothing: collect_step reads it.
// `inputs` become tensors on the device. `memory` is that of the steps' numbers (collect_step.h), or undefined.
// errors: those of the model.
EnqueuedStep begin_step(Model& model, Optimizer& optimizer, StepInputs& inputs,
                        const std::vector<Batch>& batches, const CarriedState& carried, const Tensor& memory,
                        Recorder* recorder);

}  // namespace eddy::training
