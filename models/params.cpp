// The parameter store and its arenas.
#include "models/params.h"

#include <algorithm>
#include <cmath>

#include "autograd/node.h"
#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "tensor/random/random_tensors.h"

namespace eddy {
namespace {

constexpr std::int64_t kAlignElements = 16;  // 64 bytes of f32: rows of kernels start on a cache line

}  // namespace

Tensor ParamScope::param(const std::string& name, const Shape& shape, Init init) const {
  return store_.declare(prefix_ + name, shape, init);
}

Tensor ParamScope::omitted(const std::string& name, const std::string& why) const {
  store_.omitted_.emplace(prefix_ + name, why);
  return {};
}

ParamStore::ParamStore(const ParamStore& counted, Dtype dtype, Device device, MatmulPrecision precision)
    : parameters_(counted.parameters_), index_(counted.index_), arena_elements_(counted.arena_elements_) {
  const Dtype kept = dtype == Dtype::bf16 ? Dtype::f32 : dtype;
  values_ = Tensor::zeros({arena_elements_}, kept, device);
  gradients_ = Tensor::zeros({arena_elements_}, kept, device);
  mark_parameters(values_, precision, dtype == Dtype::bf16);
  for (Parameter& parameter : parameters_) {
    parameter.value = parameter.part_of(values_);
    require_grad(parameter.value);
    set_grad_storage(parameter.value, parameter.part_of(gradients_));
  }
}

Tensor ParamStore::declare(const std::string& name, const Shape& shape, Init init) {
  if (values_.defined()) {
    if (next_ >= parameters_.size() || parameters_[next_].name != name || parameters_[next_].shape != shape)
      fail<ValueError>(
          "model: parameter {} {} was not declared so in the counting pass (constructors must declare the "
          "same parameters each time)",
          name, to_string(shape));
    return parameters_[next_++].value;
  }
  if (!index_.emplace(name, parameters_.size()).second)
    fail<ValueError>("model: parameter {} is declared twice", name);
  parameters_.push_back({name, shape, init, arena_elements_, {}});
  arena_elements_ += (shape.elements() + kAlignElements - 1) / kAlignElements * kAlignElements;
  return {};
}

const Parameter* ParamStore::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &parameters_[found->second];
}

const Parameter& ParamStore::get(const std::string& name) const {
  const Parameter* found = find(name);
  if (found == nullptr)
    fail<ValueError>("model: no parameter {} (it has {} parameters)", name, parameters_.size());
  return *found;
}

std::int64_t ParamStore::count() const {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters_) total += parameter.shape.elements();
  return total;
}

void ParamStore::initialize(std::uint64_t seed) {
  for (const Parameter& parameter : parameters_) {
    std::vector<double> values(static_cast<std::size_t>(parameter.shape.elements()));
    const RandomKey key = random_key(seed, ("init." + parameter.name).c_str(), 0);
    switch (parameter.init.kind) {
      case Init::Kind::zeros:
        break;
      case Init::Kind::ones:
        std::fill(values.begin(), values.end(), 1.0);
        break;
      case Init::Kind::normal:
        fill_normal(values, key, parameter.init.deviation);
        if (parameter.init.mean != 0)
          for (double& value : values) value += parameter.init.mean;
        break;
      case Init::Kind::truncated_normal:
        fill_truncated_normal(values, key, parameter.init.deviation);
        break;
      case Init::Kind::uniform:
        fill_uniform(values, key, parameter.init.deviation);
        break;
    }
    raw::copy_into(detach(parameter.value),
                   raw::to_device(raw::cast(Tensor::from(values, parameter.shape), parameter.value.dtype()),
                                  parameter.value.device()));
  }
  if (!values_.defined()) return;
  wrote_in_place(values_, "initialize");
  renew_bf16_copy();
}

void ParamStore::renew_bf16_copy() const {
  if (activations() == Dtype::bf16) static_cast<void>(raw::to_bf16(values_));
}

void ParamStore::zero_gradients() {
  for (const Parameter& parameter : parameters_) zero_grad(parameter.value);
}

void ParamStore::mark_gradients(const std::vector<bool>& present) {
  if (present.size() != parameters_.size())
    fail<ValueError>("model: {} marks for the gradients of {} parameters (one for each)", present.size(),
                     parameters_.size());
  // The storage is the arena's, which holds the sum already.
  for (std::size_t i = 0; i < present.size(); ++i)
    detail::variable_of(parameters_[i].value)->node->slot(0).written = present[i];
}

void ParamStore::zero_missing_gradients() {
  for (const Parameter& parameter : parameters_)
    if (!grad(parameter.value).defined()) raw::fill(parameter.part_of(gradients_), 0);
}

}  // namespace eddy
