// Adam's state.
#include "train/adam.h"

#include <cmath>

#include "autograd/tape.h"
#include "tensor/format.h"

namespace eddy {

AdamOptimizer::AdamOptimizer(const ParamStore& params, const TrainConfig& config)
    : options_{config.beta1, config.beta2, config.eps}, clip_(config.clip) {
  const Tensor& values = params.values();
  m_ = Tensor::zeros(values.shape(), values.dtype(), values.device());
  v_ = Tensor::zeros(values.shape(), values.dtype(), values.device());
  if (config.optimizer == "adamw" && config.weight_decay > 0)
    for (const Parameter& parameter : params.parameters())
      if (parameter.shape.rank() >= 2)
        segments_.push_back(
            {parameter.offset, parameter.offset + parameter.shape.elements(), config.weight_decay});
}

double AdamOptimizer::step(ParamStore& params, double learning_rate) {
  params.settle_gradients();
  const Tensor norm = l2_norm(params.gradients());
  const double norm_value = norm.item();
  if (!std::isfinite(norm_value)) return norm_value;
  ++steps_;
  adamw_step(params.values(), params.gradients(), m_, v_, segments_, options_, {learning_rate, steps_, clip_},
             norm);
  wrote_in_place(params.values(), "optimizer.step");
  return norm_value;
}

std::map<std::string, Tensor> AdamOptimizer::save(const ParamStore& params) const {
  std::map<std::string, Tensor> tensors{{"steps", Tensor::from(std::vector<std::int64_t>{steps_}, {1})}};
  for (const Parameter& parameter : params.parameters()) {
    const auto part = [&](const Tensor& arena) {
      return raw::reshape(raw::narrow(arena, 0, parameter.offset, parameter.shape.elements()),
                          parameter.shape);
    };
    tensors.emplace("m." + parameter.name, part(m_));
    tensors.emplace("v." + parameter.name, part(v_));
  }
  return tensors;
}

void AdamOptimizer::load(const ParamStore& params, const std::map<std::string, Tensor>& tensors,
                         const std::string& file) {
  const auto find = [&](const std::string& name, const Shape& shape, Dtype dtype) -> const Tensor& {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.shape() != shape || found->second.dtype() != dtype)
      fail<FormatError>("optimizer: {} in {} is missing, or is not {} of {}", name, file, to_string(shape),
                        dtype_name(dtype));
    return found->second;
  };
  for (const Parameter& parameter : params.parameters())
    for (const char* moment : {"m.", "v."}) find(moment + parameter.name, parameter.shape, m_.dtype());
  steps_ = find("steps", {1}, Dtype::i64).item_int();
  for (const Parameter& parameter : params.parameters())
    for (const Tensor* arena : {&m_, &v_})
      raw::copy_into(
          raw::reshape(raw::narrow(*arena, 0, parameter.offset, parameter.shape.elements()), parameter.shape),
          raw::to_device(find((arena == &m_ ? "m." : "v.") + parameter.name, parameter.shape, m_.dtype()),
                         arena->device()));
}

}  // namespace eddy
