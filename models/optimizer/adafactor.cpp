// Adafactor over a model's parameter arena; ops/optimizer/adafactor.h has the formulas.
#include "ops/optimizer/adafactor.h"

#include "models/optimizer/optimizer.h"

namespace eddy {
namespace {

class AdafactorOptimizer final : public Optimizer {
 public:
  // The constants are those of ops/optimizer/adafactor.h; of the options it reads `learning_rate` and
  // `clip`. There is no weight decay.
  AdafactorOptimizer(ParamStore& params, const OptimizerOptions& options, const ParameterMask& held)
      : Optimizer(params, options, held), clip_(options.clip), momentum_(make_statistics()) {
    const Tensor& values = params.values();
    std::int64_t second = 0;
    for (const ParameterRange& range : held_) {
      std::vector<detail::AdafactorParameter> shapes;
      for (std::size_t i = range.first; i < range.last; ++i) {
        const Parameter& parameter = params.parameters()[i];
        shapes.push_back({parameter.offset - range.begin, parameter.shape});
      }
      Plan& plan = plans_.emplace_back(Plan{detail::adafactor_plan(shapes), {}, second});
      plan.tables = detail::adafactor_tables(plan.plan, values.device());
      second += plan.plan.second_elements;
    }
    second_ = Tensor::zeros({second}, values.dtype(), values.device());
  }

  detail::AdamScalars scalars(double learning_rate) const override {
    const detail::AdafactorScalars next{learning_rate, steps_, clip_};
    detail::check_scalars("adafactor_step", next, 0);
    return next;
  }

 private:
  // A call for each range: what happens to a parameter does not depend on the others.
  void update(const Tensor& numbers, const Tensor& norm) override {
    for (std::size_t i = 0; i < held_.size(); ++i) {
      const ParameterRange& range = held_[i];
      const Plan& plan = plans_[i];
      const auto part = [](const Tensor& arena, std::int64_t begin, std::int64_t count) {
        return count == arena.elements() ? arena : raw::narrow(arena, 0, begin, count);
      };
      const std::int64_t count = range.end - range.begin;
      detail::adafactor_step_on_device(
          part(params_.values(), range.begin, count), part(params_.gradients(), range.begin, count),
          part(momentum_, range.at, count), part(second_, plan.second, plan.plan.second_elements), plan.plan,
          plan.tables, {}, numbers, norm);
    }
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
    for (const ParameterRange& range : held_)
      for (std::size_t i = range.first; i < range.last; ++i) {
        const Parameter& parameter = params_.parameters()[i];
        const Shape& shape = parameter.shape;
        found.push_back({"m." + parameter.name, part_of(momentum_, range, parameter)});
        if (detail::adafactor_factored(shape)) {
          next_of_second("r." + parameter.name, {shape[0]});
          next_of_second("c." + parameter.name, {shape[1]});
        } else {
          next_of_second("v." + parameter.name, shape);
        }
      }
    return found;
  }

  // Of a range of held parameters.
  struct Plan {
    detail::AdafactorPlan plan;
    detail::AdafactorTables tables;
    std::int64_t second = 0;  // its offset in second_
  };

  double clip_;
  std::vector<Plan> plans_;
  Tensor momentum_, second_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(ParamStore& params, const OptimizerOptions& options,
                                          const ParameterMask& held) {
  return std::make_unique<AdafactorOptimizer>(params, options, held);
}

}  // namespace eddy
