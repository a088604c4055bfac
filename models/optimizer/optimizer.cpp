// Optimizers by name, a step that waits for its result, and the schedules' formulas.
#include "models/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>

#include "models/optimizer/adam.h"
#include "ops/core/records.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

constexpr double kPi = 3.14159265358979323846;

// rsqrt and block_cosine: the share of the warm-up times the schedule at max(t, W).
double block_recurrent_rate(const ScheduleOptions& options, double highest, double t) {
  const double warmup = static_cast<double>(options.warmup);
  const double share = warmup > 0 ? std::min(t, warmup) / warmup : 1;
  const double at = std::max(t, warmup);
  if (options.schedule == "rsqrt") return share * highest / std::sqrt(std::max(at, 1.0));
  const double done = at / std::max(1.0, static_cast<double>(options.steps));
  const double low = options.min_learning_rate;
  return share *
         (done <= 1 ? low + (highest - low) * 0.5 * (1 + std::cos(kPi * done)) : 2 * low * std::exp2(-done));
}

}  // namespace

double Optimizer::step(double learning_rate) {
  const AdamScalars numbers = scalars(learning_rate);
  const double norm = apply(upload_records(params_.values().device(), &numbers, 1)).item();
  if (std::isfinite(norm)) count_step();
  return norm;
}

Tensor Optimizer::apply(const Tensor& numbers) {
  params_.zero_missing_gradients();
  const Tensor norm = l2_norm(params_.gradients());
  update(numbers, norm);
  params_.renew_bf16_copy();
  return norm;
}

std::map<std::string, Tensor> Optimizer::save() const {
  std::map<std::string, Tensor> tensors{{"steps", Tensor::from(std::vector<std::int64_t>{steps_}, {1})}};
  for (const Part& part : parts()) tensors.emplace(part.name, part.view);
  return tensors;
}

void Optimizer::load(const std::map<std::string, Tensor>& tensors, const std::string& file) {
  const auto find = [&](const std::string& name, const Shape& shape, Dtype dtype) -> const Tensor& {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.shape() != shape || found->second.dtype() != dtype)
      fail<FormatError>(
          "optimizer: {} in {} is missing, or is not {} of {} (was it saved by this optimizer?)", name, file,
          to_string(shape), dtype_name(dtype));
    return found->second;
  };
  const std::vector<Part> all = parts();
  for (const Part& part : all) find(part.name, part.view.shape(), part.view.dtype());
  steps_ = find("steps", {1}, Dtype::i64).item_int();
  for (const Part& part : all)
    raw::copy_into(part.view, raw::to_device(tensors.at(part.name), part.view.device()));
}

std::unique_ptr<Optimizer> make_optimizer(ParamStore& params, const OptimizerOptions& options) {
  if (options.optimizer == "adamw" || options.optimizer == "adam")
    return std::make_unique<Adam>(params, options);
  if (options.optimizer == "adafactor") return make_adafactor(params, options);
  fail<ConfigError>("config: train.optimizer is {:?} (adamw, adam or adafactor)", options.optimizer);
}

double learning_rate_at(const ScheduleOptions& options, double learning_rate, std::int64_t step) {
  if (options.schedule == "rsqrt" || options.schedule == "block_cosine")
    return block_recurrent_rate(options, learning_rate, static_cast<double>(step));
  if (step < options.warmup)
    return learning_rate * static_cast<double>(step + options.warmup_from) /
           static_cast<double>(options.warmup);
  if (options.schedule == "constant") return learning_rate;
  const double span = std::max(1.0, static_cast<double>(options.steps - options.warmup));
  const double done = std::min(1.0, static_cast<double>(step - options.warmup) / span);
  const double share = options.schedule == "cosine" ? 0.5 * (1 + std::cos(kPi * done)) : 1 - done;
  return options.min_learning_rate + (learning_rate - options.min_learning_rate) * share;
}

}  // namespace eddy
