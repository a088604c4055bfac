// Adafactor over a model's parameter arena; ops/optimizer/adafactor.h has the formulas.
#include "ops/optimizer/adafactor.h"

#include "models/optimizer/optimizer.h"

namespace eddy {
namespace {

class AdafactorOptimizer final : public Optimizer {
 public:
  // The constants are those of ops/optimizer/adafactor.h; of the options it reads `learning_rate` and
  // `clip`. There is no weight decay.
  AdafactorOptimizer(ParamStore& params, const OptimizerOptions& options)
      : Optimizer(params, options), clip_(options.clip) {
    std::vector<AdafactorParameter> shapes;
    for (const Parameter& parameter : params.parameters())
      shapes.push_back({parameter.offset, parameter.shape});
    plan_ = adafactor_plan(shapes);
    const Tensor& values = params.values();
    tables_ = adafactor_tables(plan_, values.device());
    momentum_ = Tensor::zeros(values.shape(), values.dtype(), values.device());
    second_ = Tensor::zeros({plan_.second_elements}, values.dtype(), values.device());
  }

  AdamScalars scalars(double learning_rate) const override {
    const AdafactorScalars next{learning_rate, steps_, clip_};
    check_scalars("adafactor_step", next, 0);
    return next;
  }

 private:
  void update(const Tensor& numbers, const Tensor& norm) override {
    adafactor_step_on_device(params_.values(), params_.gradients(), momentum_, second_, plan_, tables_, {},
                             numbers, norm);
  }
  // "m.<parameter>"; for a factored parameter "r.<parameter>" [rows] and "c.<parameter>" [columns], for others
  // "v.<parameter>".
  std::vector<Part> parts() const override {
    std::vector<Part> found;
    std::int64_t second = 0;
    // The second moments are stored one after the other, as the plan places them.
    const auto next_of_second = [&](const std::string& name, const Shape& shape) {
      found.push_back({name, raw::reshape(raw::narrow(second_, 0, second, shape.elements()), shape)});
      second += shape.elements();
    };
    for (const Parameter& parameter : params_.parameters()) {
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

  double clip_;
  AdafactorPlan plan_;
  AdafactorTables tables_;
  Tensor momentum_, second_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(ParamStore& params, const OptimizerOptions& options) {
  return std::make_unique<AdafactorOptimizer>(params, options);
}

}  // namespace eddy
