// The parameter store and its arenas.
#include "models/params.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {
namespace {

constexpr std::int64_t kAlignElements = 16;  // 64 bytes of f32: rows of kernels start on a cache line

constexpr std::int64_t kGrain = 1 << 13;  // random numbers to a piece of work

// Normals from pairs of Philox words by Box and Muller's transform, computed in f64 on every platform.
void fill_normal(std::vector<double>& values, const RandomKey& key, double deviation) {
  const auto count = static_cast<std::int64_t>(values.size());
  parallel_for((count + 1) / 2, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      const Philox4 words = key.words(static_cast<std::uint64_t>(pair));
      const double radius = std::sqrt(-2.0 * std::log((words.word[0] + 0.5) * 0x1p-32));
      const double angle = 6.283185307179586476925 * (words.word[1] + 0.5) * 0x1p-32;
      const auto i = static_cast<std::size_t>(2 * pair);
      values[i] = deviation * radius * std::cos(angle);
      if (i + 1 < values.size()) values[i + 1] = deviation * radius * std::sin(angle);
    }
  });
}

// The same, but what lies beyond two standard deviations is drawn again, which leaves this part of the
// deviation.
constexpr double kTruncatedDeviation = 0.8796256610342398;
void fill_truncated_normal(std::vector<double>& values, const RandomKey& key, double deviation) {
  const double widened = deviation / kTruncatedDeviation;
  std::vector<double> drawn;
  std::uint64_t draw = 0;
  for (std::size_t filled = 0; filled < values.size();) {
    drawn.resize(std::min(values.size() - filled, std::size_t{1} << 22));
    parallel_for(static_cast<std::int64_t>(drawn.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Philox4 words = key.words(draw + static_cast<std::uint64_t>(i));
        const double radius = std::sqrt(-2.0 * std::log((words.word[0] + 0.5) * 0x1p-32));
        drawn[static_cast<std::size_t>(i)] =
            radius * std::cos(6.283185307179586476925 * (words.word[1] + 0.5) * 0x1p-32);
      }
    });
    draw += drawn.size();
    for (const double value : drawn)
      if (std::abs(value) <= 2) values[filled++] = value * widened;
  }
}

void fill_uniform(std::vector<double>& values, const RandomKey& key, double limit) {
  parallel_for(static_cast<std::int64_t>(values.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      values[static_cast<std::size_t>(i)] =
          limit * ((key.word(static_cast<std::uint64_t>(i)) + 0.5) * 0x1p-31 - 1);
  });
}

}  // namespace

Tensor ParamScope::param(const std::string& name, const Shape& shape, Init init) const {
  return store_.declare(prefix_ + name, shape, init);
}

Tensor ParamScope::omitted(const std::string& name, const std::string& why) const {
  store_.omitted_.emplace(prefix_ + name, why);
  return {};
}

ParamStore::ParamStore(const ParamStore& counted, Dtype dtype, Device device)
    : parameters_(counted.parameters_), index_(counted.index_), arena_elements_(counted.arena_elements_) {
  const Dtype kept = dtype == Dtype::bf16 ? Dtype::f32 : dtype;
  values_ = Tensor::zeros({arena_elements_}, kept, device);
  gradients_ = Tensor::zeros({arena_elements_}, kept, device);
  if (dtype == Dtype::bf16) values_.buffer()->keep_bf16_copy();
  for (Parameter& parameter : parameters_) {
    const auto view = [&](const Tensor& arena) {
      return raw::reshape(raw::narrow(arena, 0, parameter.offset, parameter.shape.elements()),
                          parameter.shape);
    };
    parameter.value = view(values_);
    require_grad(parameter.value);
    set_grad_storage(parameter.value, view(gradients_));
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
  if (values_.defined()) wrote_values("initialize");
}

void ParamStore::wrote_values(const char* writer) {
  wrote_in_place(values_, writer);
  if (activations() == Dtype::bf16) static_cast<void>(raw::to_bf16(values_));
}

void ParamStore::zero_gradients() {
  for (const Parameter& parameter : parameters_) zero_grad(parameter.value);
}

void ParamStore::zero_missing_gradients() {
  for (const Parameter& parameter : parameters_)
    if (!grad(parameter.value).defined()) {
      const Tensor region = raw::narrow(gradients_, 0, parameter.offset, parameter.shape.elements());
      raw::fill(region, 0);
    }
}

}  // namespace eddy
