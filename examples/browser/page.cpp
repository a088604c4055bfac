// Texts and their states.
#include "examples/browser/page.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <variant>

#include "autograd/tape.h"
#include "examples/browser/floats.h"
#include "models/weights.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "tensor/files/strict_json.h"

namespace eddy::browser {
using namespace training;
namespace {

ModelConfig config_from(const std::string& text, const std::string& path) {
  const nlohmann::json given = json_of_text(text, path);
  ModelConfig config;
  KeyList keys;
  describe(keys, config);
  for (const ConfigField& field : keys.fields())
    if (const auto found = given.find(field.key); found != given.end()) try {
        std::visit([&](auto* target) { found->get_to(*target); }, field.target);
      } catch (const nlohmann::json::exception&) {
        fail<FormatError>("page: {}: {} is {}, which it cannot be", path, field.key, found->dump());
      }
  return config;
}

}  // namespace

Reader load_model(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto keys = file.metadata().find(kModelKey);
  if (keys == file.metadata().end())
    fail<FormatError>("page: {} does not say which model it is (write it with `example_browser pack`)", path);
  Reader reader{make_model(config_from(keys->second, path))};
  load_parameters(reader.model->params(), load_safetensors(file), path);
  return reader;
}

void Text::read(const Reader& reader, const std::vector<std::int32_t>& ids) {
  if (ids.empty()) fail<ValueError>("page: no tokens to read");
  const NoGrad no_grad;
  const PackedWeightScope packed(reader.packed);
  for (const std::int32_t id : ids) {
    logits_ = floats_of(reader.model->stream(Tensor::from(std::vector<std::int32_t>{id}, {1, 1}), state_));
    ++position_;
    for (auto& [name, kept] : frozen_) {
      const Tensor& now = tensor(name);
      // A part that has grown since is frozen as it is now.
      if (now.shape() != kept.shape()) kept = raw::copy(now);
      state_.set(name, raw::copy(kept));
    }
  }
}

std::int32_t Text::draw(const SampleOptions& options) const {
  return sample_token(logits_.data(), std::ssize(logits_), options, static_cast<std::uint64_t>(position_));
}

std::vector<StateView> Text::views() const {
  std::vector<StateView> views;
  for (const auto& [name, tensor] : state_) {
    if (!is_floating(tensor.dtype()) || tensor.elements() == 0) continue;
    StateView view{name, tensor.elements() / tensor.dim(-1), tensor.dim(-1), floats_of(tensor)};
    double squares = 0;
    for (const float value : view.values) squares += static_cast<double>(value) * static_cast<double>(value);
    view.norm = std::sqrt(squares);
    view.frozen = frozen_.count(name) > 0;
    views.push_back(std::move(view));
  }
  return views;
}

const Tensor& Text::tensor(const std::string& name) const {
  return state_.get(name);
}

void Text::forget(const std::string& name) {
  const Tensor& before = tensor(name);
  const Tensor zeros = Tensor::zeros(before.shape(), before.dtype(), before.device());
  if (frozen_.count(name) > 0) frozen_[name] = raw::copy(zeros);
  state_.set(name, zeros);
}

void Text::freeze(const std::string& name, bool on) {
  if (on)
    frozen_[name] = raw::copy(tensor(name));
  else
    frozen_.erase(name);
}

void Text::swap_state(Text& other) {
  std::swap(state_, other.state_);
  std::swap(frozen_, other.frozen_);
}

}  // namespace eddy::browser
