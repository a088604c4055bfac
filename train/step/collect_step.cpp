// The numbers of a step, and what follows from them.
#include "train/step/collect_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/transfer.h"
#include "train/step/explain.h"

namespace eddy::training {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// On a counting device there are no numbers to read.
StepResult counted_step(Optimizer& optimizer, const StepInputs& inputs, const EnqueuedStep& work,
                        CarriedState& carried) {
  if (inputs.options.carry_state) carried = work.after;
  optimizer.count_step();
  StepResult result;
  result.loss = kNaN;
  result.graph = work.graph;
  return result;
}

}  // namespace

StepNumbers::StepNumbers(std::size_t losses, Device device, const Tensor& memory)
    : losses_(losses),
      is_shared_(memory.defined()),
      numbers_(is_shared_ ? memory : make_memory(losses, device)) {
  constexpr std::int64_t kNorm = sizeof(double);
  if (is_shared_) raw::fill(raw::narrow(numbers_, 0, kNorm, numbers_.dim(0) - kNorm), 0);
}

Tensor StepNumbers::make_memory(std::size_t losses, Device device) {
  return Tensor::zeros({static_cast<std::int64_t>(sizeof(double) * (1 + losses))}, Dtype::u8, device);
}

Tensor StepNumbers::norm_before() const {
  return is_shared_ ? slot(numbers_, 0, Dtype::f64) : Tensor();
}

// Number i, a scalar of f64, or of f32 in the first half of its bytes.
Tensor StepNumbers::slot(const Tensor& numbers, std::size_t i, Dtype dtype) {
  const std::size_t scalars = sizeof(double) / dtype_bytes(dtype);
  const std::int64_t no_strides[1] = {};
  return Tensor::over(numbers.buffer(), static_cast<std::int64_t>(i * scalars), {}, no_strides, dtype);
}

void StepNumbers::store(std::size_t i, const Tensor& value) {
  raw::copy_into(slot(numbers_, i, value.dtype()), value);
}

void StepNumbers::store_loss(std::size_t i, const Tensor& loss) {
  store(1 + i, loss);
  loss_dtype_ = loss.dtype();
}

StepNumbers::Values StepNumbers::read() const {
  return values_in(raw::to_device(numbers_, kCpu));
}

StepNumbers::Values StepNumbers::values_in(const Tensor& on_host) const {
  Values values;
  values.norm = slot(on_host, 0, Dtype::f64).item();
  for (std::size_t i = 0; i < losses_; ++i) values.losses.push_back(slot(on_host, 1 + i, loss_dtype_).item());
  return values;
}

StepResult result_of(const StepInputs& inputs, const EnqueuedStep& work, const StepNumbers::Values& numbers) {
  StepResult result;
  result.graph = work.graph;
  const std::vector<double> losses = inputs.gather(numbers.losses);
  const std::int64_t scored = inputs.all_scored();
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (inputs.scored[i] == 0) continue;
    // A micro-batch's mean loss is weighted by its share of the scored targets.
    result.loss += losses[i] / (static_cast<double>(scored) / static_cast<double>(inputs.scored[i]));
    if (std::isfinite(losses[i]) || !result.finite) continue;
    result.finite = false;
    result.bad_loss = i;
  }
  if (!result.finite) return result;
  if (scored == 0) {
    result.loss = result.grad_norm = kNaN;
    return result;
  }
  result.grad_norm = numbers.norm;
  result.finite = std::isfinite(result.grad_norm);
  return result;
}

StepResult collect_step(const Model& model, Optimizer& optimizer, const StepInputs& inputs,
                        const EnqueuedStep& work, CarriedState& carried) {
  if (model.params().values().device().type == DeviceType::counting)
    return counted_step(optimizer, inputs, work, carried);
  if (work.stopped) {
    StepResult result;
    result.graph = work.graph;
    result.stopped = true;
    return result;
  }
  StepResult result = result_of(inputs, work, work.numbers.read());
  if (result.bad_loss) {
    result.problem = "the loss is not finite; " + explain_loss(model, inputs, *result.bad_loss, work.before);
    carried = {};
    return result;
  }
  if (inputs.options.carry_state) carried = work.after;
  if (result.finite) {
    if (inputs.all_scored() > 0) optimizer.count_step();
    return result;
  }
  result.problem = "the gradient is not finite; " + explain_gradient(model, work.gradient_norms);
  if (!inputs.on_all_ranks(is_finite(carried.state))) carried = {};
  return result;
}

}  // namespace eddy::training
