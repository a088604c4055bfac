// Streams, states, and the training of the parity model.
#include "examples/browser/page.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <variant>

#include "autograd/tape.h"
#include "models/weights.h"
#include "ops/cast/cast.h"
#include "ops/loss/cross_entropy.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "tensor/files/strict_json.h"
#include "tensor/random/philox.h"

namespace eddy::browser {
using namespace training;
namespace {

constexpr std::int64_t kBits = 16, kStreams = 64;  // of a step of the parity model

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

bool is_floating(const Tensor& x) {
  return x.dtype() == Dtype::f32 || x.dtype() == Dtype::f64 || x.dtype() == Dtype::bf16;
}

std::vector<float> floats_of(const Tensor& x) {
  return raw::contiguous(raw::cast(x, Dtype::f32)).to_vector<float>();
}

// Random bits, and behind each whether those so far are odd.
struct Streams {
  Tensor bits, odd;  // i32 [streams, bits]
};

Streams random_streams(std::uint64_t seed, const char* what, std::uint64_t number, std::int64_t streams,
                       std::int64_t bits) {
  if (streams < 1 || bits < 1)
    fail<ValueError>("page: {} streams of {} bits (at least 1 of each)", streams, bits);
  const RandomKey key = random_key(seed, what, number);
  std::vector<std::int32_t> tokens, parities;
  for (std::int64_t i = 0; i < streams * bits; ++i) {
    tokens.push_back(static_cast<std::int32_t>(key.word(static_cast<std::uint64_t>(i)) >> 31));
    parities.push_back(i % bits == 0 ? tokens.back() : tokens.back() ^ parities.back());
  }
  return {Tensor::from(tokens, {streams, bits}), Tensor::from(parities, {streams, bits})};
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void normalise(std::vector<double>& a) {
  const double length = std::sqrt(dot(a, a));
  for (double& x : a) x /= length > 0 ? length : 1;
}

void subtract(std::vector<double>& a, double factor, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= factor * b[i];
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
    if (!is_floating(tensor) || tensor.elements() == 0) continue;
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

Parity::Parity(std::uint64_t seed) : seed_(seed) {
  ModelConfig config;
  config.dim = 64;
  config.heads = 2;
  config.layers = 1;
  config.context = kBits;
  config.positions = false;
  config.vocab = config.n_out = 2;
  model_ = make_model(config);
  model_->params().initialize(seed);
  adam_ =
      std::make_unique<Adam>(model_->params(), OptimizerOptions{.learning_rate = 5e-4, .weight_decay = 0});
}

double Parity::step() {
  const Streams streams =
      random_streams(seed_, "page.train", static_cast<std::uint64_t>(steps()), kStreams, kBits);
  adam_->zero_gradients();
  ForwardInput input;
  input.tokens = streams.bits;
  const Tensor loss = cross_entropy(model_->forward(input).logits, streams.odd);
  backward(loss);
  adam_->step();
  return loss.item();
}

double Parity::accuracy(std::int64_t bits) const {
  const NoGrad no_grad;
  const Streams streams =
      random_streams(seed_, "page.test", static_cast<std::uint64_t>(steps()), kStreams, bits);
  State state;
  const std::vector<float> logits = floats_of(model_->stream(streams.bits, state));
  const std::vector<std::int32_t> odd = streams.odd.to_vector<std::int32_t>();
  std::int64_t right = 0;
  for (std::size_t i = 0; i < odd.size(); ++i) right += (logits[2 * i + 1] > logits[2 * i]) == (odd[i] == 1);
  return static_cast<double>(right) / static_cast<double>(odd.size());
}

std::vector<Parity::Point> Parity::states(std::int64_t count, std::int64_t bits) const {
  const NoGrad no_grad;
  // The same streams at every call, so that points move and do not jump.
  const Streams streams = random_streams(seed_, "page.states", 0, count, bits);
  const std::vector<std::int32_t> odd = streams.odd.to_vector<std::int32_t>();
  std::vector<std::vector<double>> vectors;
  std::vector<Point> points;
  State state;
  for (std::int64_t t = 0; t < bits; ++t) {
    static_cast<void>(model_->stream(raw::contiguous(raw::narrow(streams.bits, 1, t, 1)), state));
    std::vector<std::vector<double>> rows(static_cast<std::size_t>(count));
    for (const auto& [name, tensor] : state) {
      if (!is_floating(tensor)) continue;
      const std::vector<float> values = floats_of(tensor);
      const auto width = values.size() / rows.size();
      for (std::size_t i = 0; i < values.size(); ++i)
        rows[i / width].push_back(static_cast<double>(values[i]));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      vectors.push_back(std::move(rows[static_cast<std::size_t>(i)]));
      points.push_back({0, 0, odd[static_cast<std::size_t>(i * bits + t)] == 1});
    }
  }
  const std::size_t size = vectors.front().size();
  std::vector<double> mean(size), even_mean(size), odd_mean(size);
  double odds = 0;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    subtract(points[i].odd ? odd_mean : even_mean, -1, vectors[i]);
    subtract(mean, -1, vectors[i]);
    odds += points[i].odd ? 1 : 0;
  }
  const auto all = static_cast<double>(vectors.size());
  std::vector<double> sideways(size), upwards(size, 1.0);
  subtract(sideways, -1 / std::max(1.0, odds), odd_mean);
  subtract(sideways, 1 / std::max(1.0, all - odds), even_mean);
  normalise(sideways);
  // The largest principal direction of what is left without `sideways`, by power iteration.
  for (std::vector<double>& vector : vectors) subtract(vector, 1 / all, mean);
  constexpr int kIterations = 20;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    subtract(upwards, dot(upwards, sideways), sideways);
    normalise(upwards);
    std::vector<double> next(size);
    for (const std::vector<double>& vector : vectors) subtract(next, -dot(vector, upwards), vector);
    upwards = std::move(next);
  }
  subtract(upwards, dot(upwards, sideways), sideways);
  normalise(upwards);
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    points[i].sideways = static_cast<float>(dot(vectors[i], sideways));
    points[i].upwards = static_cast<float>(dot(vectors[i], upwards));
  }
  return points;
}

}  // namespace eddy::browser
