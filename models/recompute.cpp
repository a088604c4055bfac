// Checkpoints of models.
#include "models/recompute.h"

#include <utility>

#include "autograd/checkpoint.h"
#include "ops/product/packed_weights.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"

namespace eddy {

Recompute recompute_named(const std::string& name) {
  if (const auto value = value_named<Recompute>(name)) return *value;
  fail<ConfigError>("config: train.recompute is {:?} ({})", name, value_choice<Recompute>());
}

std::vector<Tensor> recomputed(bool again, std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn,
                               const std::vector<Tensor>& inputs) {
  if (!again) return fn(inputs);
  return checkpoint(
      [packed = PackedWeightScope::current(), fn = std::move(fn)](const std::vector<Tensor>& in) {
        const PackedWeightScope loop(packed);
        return fn(in);
      },
      inputs);
}

Tensor recomputed(bool again, std::function<Tensor(const std::vector<Tensor>&)> fn,
                  const std::vector<Tensor>& inputs) {
  return recomputed(
      again, [one = std::move(fn)](const std::vector<Tensor>& in) { return std::vector<Tensor>{one(in)}; },
      inputs)[0];
}

}  // namespace eddy
