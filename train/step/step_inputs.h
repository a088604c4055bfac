// What changes from step to step, in the memory of the device: tokens, targets, start flags, each batch's
// share of the loss, the optimizer's numbers and the count that dropout draws by. One buffer, filled on the
// host and sent by one copy, so that a step which was recorded once finds the numbers of each replay at the
// same addresses.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/optimizer/optimizer.h"
#include "train/step/batch.h"

namespace eddy {

class StepInputs {
 public:
  // Room for batches of these shapes. `dtype` is that of the shares: the parameters'.
  StepInputs(const std::vector<Batch>& batches, Dtype dtype, Device device);

  // Sends the contents of batches of the shapes the room was made for. `scalars` are the optimizer's, and
  // `step_base` is what DropoutContext::step_base will point at. Does not wait.
  void write(const std::vector<Batch>& batches, const AdamScalars& scalars, std::uint64_t step_base);

  struct Micro {
    Tensor tokens, targets;
    Tensor start;  // as Batch::start; undefined where that is
    Tensor share;  // scalar: the batch's part of all targets that are scored
  };
  const std::vector<Micro>& micros() const { return micros_; }
  const Tensor& scalars() const { return scalars_; }  // bytes of one AdamScalars
  const std::uint64_t* step_base() const { return static_cast<const std::uint64_t*>(step_base_.raw_data()); }

 private:
  Tensor on_host_, on_device_;  // the same on the CPU
  std::vector<Micro> micros_;
  Tensor scalars_, step_base_;
};

// The input of one of those batches, as it lies on the device: it can be recorded. A state is entered where
// one is given. `batch` has the shapes, sizes and flags.
ForwardInput step_input(const StepInputs& inputs, std::size_t micro, const Batch& batch,
                        const CarriedState* state, const ModelConfig& config);

// A view of a buffer of bytes as a row-major tensor that begins at a byte, which must suit the dtype.
Tensor view_of_bytes(const Tensor& bytes, std::int64_t first, const Shape& shape, Dtype dtype);

}  // namespace eddy
