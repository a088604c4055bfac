// The inputs of a step in device memory: everything that changes from step to step. They are in one buffer,
// which is filled on the host and sent in one copy. So a captured step finds them at the same addresses in
// every replay.
//
//   for the step        the optimizer's scalars, the step count that numbers the dropout masks
//   for each batch      tokens, targets, its share of the loss, start flags
#pragma once

#include <cstdint>
#include <vector>

#include "ops/optimizer/optimizer.h"
#include "train/step/batch.h"

namespace eddy {

class StepInputs {
 public:
  // Allocates the buffer for batches of these shapes. `dtype` is that of the parameters and of the shares.
  StepInputs(const std::vector<Batch>& batches, Dtype dtype, Device device);

  // Sends the contents of batches, which have the shapes given to the constructor. `scalars` are the
  // optimizer's; DropoutContext::step_base points to `step_base` on the device. Does not wait for the device.
  void write(const std::vector<Batch>& batches, const AdamScalars& scalars, std::uint64_t step_base);

  struct MicroBatch {
    Tensor tokens, targets;
    Tensor start;  // as Batch::start; undefined where that is
    Tensor share;  // scalar: the batch's scored targets / those of all batches
  };
  const std::vector<MicroBatch>& micro_batches() const { return micros_; }
  const Tensor& scalars() const { return scalars_; }  // the bytes of one AdamScalars
  const std::uint64_t* step_base() const { return static_cast<const std::uint64_t*>(step_base_.raw_data()); }

 private:
  Tensor on_host_, on_device_;  // the same tensor if the device is the CPU
  std::vector<MicroBatch> micros_;
  Tensor scalars_, step_base_;
};

// Returns the model's input for one of those batches as views of the device buffer, so that the forward pass
// can be captured. It contains `state` if that is not null. `batch` gives shapes, sizes and flags.
ForwardInput micro_batch_input(const StepInputs& inputs, std::size_t micro, const Batch& batch,
                               const CarriedState* state, const ModelConfig& config);

// Returns a row-major view of a buffer of bytes from byte `first` on, which must be aligned for the dtype.
Tensor view_of_bytes(const Tensor& bytes, std::int64_t first, const Shape& shape, Dtype dtype);

}  // namespace eddy
