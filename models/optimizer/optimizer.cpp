// Optimizers by name, and a step that waits for its result.
#include "models/optimizer/optimizer.h"

#include <cmath>

#include "models/optimizer/adafactor.h"
#include "models/optimizer/adam.h"
#include "ops/core/records.h"
#include "tensor/base/format.h"

namespace eddy {

double Optimizer::step(ParamStore& params, double learning_rate) {
  const AdamScalars numbers = scalars(learning_rate);
  const double norm = apply(params, upload_records(params.values().device(), &numbers, 1)).item();
  if (std::isfinite(norm)) count_step();
  return norm;
}

Tensor Optimizer::apply(ParamStore& params, const Tensor& numbers) {
  params.zero_missing_gradients();
  const Tensor norm = l2_norm(params.gradients());
  update(params, numbers, norm);
  params.wrote_values("optimizer.step");
  return norm;
}

std::map<std::string, Tensor> Optimizer::save(const ParamStore& params) const {
  std::map<std::string, Tensor> tensors{{"steps", Tensor::from(std::vector<std::int64_t>{steps_}, {1})}};
  for (const Part& part : parts(params)) tensors.emplace(part.name, part.view);
  return tensors;
}

void Optimizer::load(const ParamStore& params, const std::map<std::string, Tensor>& tensors,
                     const std::string& file) {
  const auto find = [&](const std::string& name, const Shape& shape, Dtype dtype) -> const Tensor& {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.shape() != shape || found->second.dtype() != dtype)
      fail<FormatError>(
          "optimizer: {} in {} is missing, or is not {} of {} (was it saved by this optimizer?)", name, file,
          to_string(shape), dtype_name(dtype));
    return found->second;
  };
  const std::vector<Part> all = parts(params);
  for (const Part& part : all) find(part.name, part.view.shape(), part.view.dtype());
  steps_ = find("steps", {1}, Dtype::i64).item_int();
  for (const Part& part : all)
    raw::copy_into(part.view, raw::to_device(tensors.at(part.name), part.view.device()));
}

std::unique_ptr<Optimizer> make_optimizer(const ParamStore& params, const OptimizerOptions& options) {
  if (options.optimizer == "adamw" || options.optimizer == "adam")
    return std::make_unique<AdamOptimizer>(params, options);
  if (options.optimizer == "adafactor") return std::make_unique<AdafactorOptimizer>(params, options);
  fail<ConfigError>("config: train.optimizer is {:?} (adamw, adam or adafactor)", options.optimizer);
}

}  // namespace eddy
