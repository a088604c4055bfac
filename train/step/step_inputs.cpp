// The buffer's layout: scalars, step base, then tokens, targets, share and flags of each batch, each aligned
// to 64 bytes.
#include "train/step/step_inputs.h"

#include <cstring>

namespace eddy {
namespace {

constexpr std::int64_t kAlign = 64;

// Assigns aligned offsets in a buffer, one after the other.
class Places {
 public:
  std::int64_t next(std::int64_t bytes) {
    const std::int64_t first = end_;
    end_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return first;
  }
  std::int64_t end() const { return end_; }

 private:
  std::int64_t end_ = 0;
};

std::int64_t bytes_of(const Shape& shape, Dtype dtype) {
  return shape.elements() * static_cast<std::int64_t>(dtype_bytes(dtype));
}

}  // namespace

Tensor view_of_bytes(const Tensor& bytes, std::int64_t first, const Shape& shape, Dtype dtype) {
  std::int64_t strides[kMaxRank] = {}, step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return Tensor::over(bytes.buffer(), first / static_cast<std::int64_t>(dtype_bytes(dtype)), shape, strides,
                      dtype);
}

StepInputs::StepInputs(const std::vector<Batch>& batches, Dtype dtype, Device device) {
  Places places;
  const std::int64_t scalars = places.next(sizeof(AdamScalars)), base = places.next(sizeof(std::uint64_t));
  struct Place {
    std::int64_t tokens, targets, share, start;
  };
  std::vector<Place> of_batch;
  for (const Batch& batch : batches)
    of_batch.push_back({places.next(batch.tokens.bytes()), places.next(batch.targets.bytes()),
                        places.next(bytes_of({}, dtype)),
                        places.next(batch.start.defined() ? batch.start.bytes() : 0)});
  on_host_ = Tensor::zeros({places.end()}, Dtype::u8);
  on_device_ = device == kCpu ? on_host_ : Tensor::empty({places.end()}, Dtype::u8, device);
  scalars_ = raw::narrow(on_device_, 0, scalars, sizeof(AdamScalars));
  step_base_ = view_of_bytes(on_device_, base, {}, Dtype::i64);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Batch& batch = batches[i];
    micros_.push_back(
        {view_of_bytes(on_device_, of_batch[i].tokens, batch.tokens.shape(), batch.tokens.dtype()),
         view_of_bytes(on_device_, of_batch[i].targets, batch.targets.shape(), batch.targets.dtype()),
         batch.start.defined()
             ? view_of_bytes(on_device_, of_batch[i].start, batch.start.shape(), batch.start.dtype())
             : Tensor(),
         view_of_bytes(on_device_, of_batch[i].share, {}, dtype)});
  }
}

ForwardInput micro_batch_input(const StepInputs& inputs, std::size_t micro, const Batch& batch,
                               const CarriedState* state, const ModelConfig& config) {
  ForwardInput input;
  input.tokens = inputs.micro_batches()[micro].tokens;
  input.block = batch.block;
  input.tail = batch.tail;
  if (state != nullptr) state->set_input(input, batch, config);
  if (const Device device = input.tokens.device(); input.start.defined() && !(device == kCpu)) {
    // A copy on the device, so that a replay uses its own step's flags and not the captured step's.
    const Tensor& flags = inputs.micro_batches()[micro].start;
    input.start = Tensor::zeros(input.start.shape(), flags.dtype(), device);
    raw::copy_into(raw::narrow(input.start, 1, 0, 1), flags);
  }
  return input;
}

void StepInputs::write(const std::vector<Batch>& batches, const AdamScalars& scalars,
                       std::uint64_t step_base) {
  // The offsets are the same in both buffers.
  const auto on_host = [this](const Tensor& x) {
    return view_of_bytes(on_host_, x.offset() * static_cast<std::int64_t>(dtype_bytes(x.dtype())), x.shape(),
                         x.dtype());
  };
  std::memcpy(on_host(scalars_).raw_data(), &scalars, sizeof scalars);
  std::memcpy(on_host(step_base_).raw_data(), &step_base, sizeof step_base);
  std::int64_t scored = 0;
  for (const Batch& batch : batches) scored += batch.scored;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    raw::copy_into(on_host(micros_[i].tokens), batches[i].tokens);
    raw::copy_into(on_host(micros_[i].targets), batches[i].targets);
    if (batches[i].start.defined()) raw::copy_into(on_host(micros_[i].start), batches[i].start);
    // share = 1 / (all scored targets / this batch's): exactly 1 / batches when all batches have as many.
    const double shares = static_cast<double>(scored) / static_cast<double>(batches[i].scored);
    raw::fill(on_host(micros_[i].share), batches[i].scored > 0 ? 1.0 / shares : 0.0);
  }
  if (!(on_device_.device() == kCpu))
    raw::copy_into(on_device_, raw::to_device(on_host_, on_device_.device()));
}

}  // namespace eddy
