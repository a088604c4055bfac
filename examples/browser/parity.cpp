// The parity model: its streams, training, and the view of its state.
#include "examples/browser/parity.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/state.h"
#include "autograd/tape.h"
#include "examples/browser/floats.h"
#include "ops/loss/cross_entropy.h"
#include "ops/reduce/softmax.h"
#include "tensor/base/format.h"
#include "tensor/random/philox.h"

namespace eddy::browser {
namespace {

constexpr std::int64_t kBits = 16, kStreams = 64;  // of a step

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

Parity::Parity(std::uint64_t seed, bool recurrent) : seed_(seed), recurrent_(recurrent) {
  ModelConfig config;
  config.model = recurrent ? "unit_forget" : "regular";
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

std::vector<float> Parity::answers(const std::vector<std::int32_t>& bits) const {
  const NoGrad no_grad;
  State state;
  const Tensor logits = model_->stream(Tensor::from(bits, {1, std::ssize(bits)}), state);
  const std::vector<float> both = floats_of(softmax(logits));
  std::vector<float> odd;
  for (std::size_t i = 1; i < both.size(); i += 2) odd.push_back(both[i]);
  return odd;
}

std::vector<Parity::Point> Parity::states(std::int64_t count, std::int64_t bits) const {
  if (!recurrent_) fail<ValueError>("page: without recurrence there is no state to look at");
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
      if (!is_floating(tensor.dtype())) continue;
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
