// An optimizer that keeps the gradients of a step and moves nothing.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "models/optimizer/optimizer.h"
#include "ops/core/op_check.h"

namespace eddy::test {

class GradientKeeper final : public Optimizer {
 public:
  explicit GradientKeeper(ParamStore& params) : Optimizer(params, {}) {}
  detail::AdamScalars scalars(double rate) const override { return {rate, steps() + 1, 0}; }
  Tensor apply(const Tensor&, const Tensor&) override {
    reached.clear();
    for (const Parameter& parameter : params_.parameters())
      reached.push_back(grad(parameter.value).defined());
    params_.zero_missing_gradients();
    gradients = raw::copy(params_.gradients());
    return Tensor::full({}, norm, Dtype::f64);
  }
  void apply_with_norm(const Tensor& numbers, const Tensor&) override {
    static_cast<void>(apply(numbers, {}));
  }
  void update(const Tensor&, const Tensor&) override {}
  std::vector<Part> parts() const override { return {}; }

  Tensor gradients;
  std::vector<bool> reached;  // of each parameter: whether it has a gradient
  double norm = 1;            // what it says of the gradient
};

inline std::vector<double> doubles(const Tensor& x) {
  return raw::cast(raw::contiguous(x), Dtype::f64).to_vector<double>();
}

}  // namespace eddy::test
