// Adafactor's state.
#include "models/optimizer/adafactor.h"

#include "autograd/tape.h"
#include "ops/optimizer/optimizer.h"
#include "tensor/base/format.h"

namespace eddy {

AdafactorOptimizer::AdafactorOptimizer(const ParamStore& params, const OptimizerOptions& options)
    : clip_(options.clip) {
  std::vector<AdafactorParameter> shapes;
  for (const Parameter& parameter : params.parameters())
    shapes.push_back({parameter.offset, parameter.shape});
  plan_ = adafactor_plan(shapes);
  const Tensor& values = params.values();
  tables_ = adafactor_tables(plan_, values.device());
  momentum_ = Tensor::zeros(values.shape(), values.dtype(), values.device());
  second_ = Tensor::zeros({plan_.second_elements}, values.dtype(), values.device());
}

AdamScalars AdafactorOptimizer::scalars(double learning_rate) const {
  const AdafactorScalars next{learning_rate, steps_, clip_};
  check_scalars("adafactor_step", next, 0);
  return next;
}

Tensor AdafactorOptimizer::apply(ParamStore& params, const Tensor& numbers) {
  params.zero_missing_gradients();
  const Tensor norm = l2_norm(params.gradients());
  adafactor_step_on_device(params.values(), params.gradients(), momentum_, second_, plan_, tables_, {},
                           numbers, norm);
  params.wrote_values("optimizer.step");
  return norm;
}

std::vector<AdafactorOptimizer::Part> AdafactorOptimizer::parts(const ParamStore& params) const {
  std::vector<Part> found;
  std::int64_t second = 0;
  // The second moments are stored one after the other, as the plan places them.
  const auto next_of_second = [&](const std::string& name, const Shape& shape) {
    found.push_back({name, raw::reshape(raw::narrow(second_, 0, second, shape.elements()), shape)});
    second += shape.elements();
  };
  for (const Parameter& parameter : params.parameters()) {
    const Shape& shape = parameter.shape;
    found.push_back({"m." + parameter.name,
                     raw::reshape(raw::narrow(momentum_, 0, parameter.offset, shape.elements()), shape)});
    if (adafactor_factored(shape)) {
      next_of_second("r." + parameter.name, {shape[0]});
      next_of_second("c." + parameter.name, {shape[1]});
    } else {
      next_of_second("v." + parameter.name, shape);
    }
  }
  return found;
}

std::map<std::string, Tensor> AdafactorOptimizer::save(const ParamStore& params) const {
  std::map<std::string, Tensor> tensors{{"steps", Tensor::from(std::vector<std::int64_t>{steps_}, {1})}};
  for (const Part& part : parts(params)) tensors.emplace(part.name, part.view);
  return tensors;
}

void AdafactorOptimizer::load(const ParamStore& params, const std::map<std::string, Tensor>& tensors,
                              const std::string& file) {
  const auto find = [&](const std::string& name, const Shape& shape, Dtype dtype) -> const Tensor& {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.shape() != shape || found->second.dtype() != dtype)
      fail<FormatError>("optimizer: {} in {} is missing, or is not {} of {} (was it saved by adafactor?)",
                        name, file, to_string(shape), dtype_name(dtype));
    return found->second;
  };
  const std::vector<Part> all = parts(params);
  for (const Part& part : all) find(part.name, part.view.shape(), part.view.dtype());
  steps_ = find("steps", {1}, Dtype::i64).item_int();
  for (const Part& part : all)
    raw::copy_into(part.view,
                   raw::to_device(find(part.name, part.view.shape(), part.view.dtype()), part.view.device()));
}

}  // namespace eddy
