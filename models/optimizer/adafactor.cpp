// Adafactor's state.
#include "models/optimizer/adafactor.h"

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

void AdafactorOptimizer::update(ParamStore& params, const Tensor& numbers, const Tensor& norm) {
  adafactor_step_on_device(params.values(), params.gradients(), momentum_, second_, plan_, tables_, {},
                           numbers, norm);
}

std::vector<Optimizer::Part> AdafactorOptimizer::parts(const ParamStore& params) const {
  std::vector<Part> found;
  std::int64_t second = 0;
  // The second moments are stored one after the other, as the plan places them.
  const auto next_of_second = [&](const std::string& name, const Shape& shape) {
    found.push_back({name, raw::reshape(raw::narrow(second_, 0, second, shape.elements()), shape)});
    second += shape.elements();
  };
  for (const Parameter& parameter : params.parameters()) {
    const Shape& shape = parameter.shape;
    found.push_back({"m." + parameter.name, parameter.part_of(momentum_)});
    if (adafactor_factored(shape)) {
      next_of_second("r." + parameter.name, {shape[0]});
      next_of_second("c." + parameter.name, {shape[1]});
    } else {
      next_of_second("v." + parameter.name, shape);
    }
  }
  return found;
}

}  // namespace eddy
