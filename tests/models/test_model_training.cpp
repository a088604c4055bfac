// Models and the optimizer together: a few steps against a plain f64 optimizer written here, and what can and
// cannot be learned.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/optimizer/adam.h"
#include "ops/loss/cross_entropy.h"
#include "tests/models/recurrent_transformer/recurrent_transformer_case.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// AdamW by the book, one number at a time: Loshchilov and Hutter, algorithm 2, after clipping by the global
// norm.
struct PlainAdamW {
  double beta1, beta2, eps, decay, clip;
  int steps = 0;
  std::map<std::string, std::vector<double>> p, m, v;

  explicit PlainAdamW(const TrainConfig& config, const ParamStore& params)
      : beta1(config.beta1),
        beta2(config.beta2),
        eps(config.eps),
        decay(config.optimizer == "adamw" ? config.weight_decay : 0),
        clip(config.clip) {
    for (const Parameter& parameter : params.parameters()) {
      p[parameter.name] = numbers(parameter.value);
      m[parameter.name] = v[parameter.name] = std::vector<double>(p[parameter.name].size(), 0.0);
    }
  }

  double step(const ParamStore& params, const std::map<std::string, Tensor>& gradients, double rate) {
    ++steps;
    double squares = 0;
    for (const auto& [name, gradient] : gradients)
      for (const double g : numbers(gradient)) squares += g * g;
    const double norm = std::sqrt(squares), factor = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
    for (const Parameter& parameter : params.parameters()) {
      const std::vector<double> gradient = numbers(gradients.at(parameter.name));
      const double shrink = parameter.shape.rank() >= 2 ? 1 - rate * decay : 1.0;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const double g = factor * gradient[i];
        double &first = m[parameter.name][i], &second = v[parameter.name][i], &value = p[parameter.name][i];
        first = beta1 * first + (1 - beta1) * g;
        second = beta2 * second + (1 - beta2) * g * g;
        const double corrected = first / (1 - std::pow(beta1, steps)),
                     root = std::sqrt(second / (1 - std::pow(beta2, steps)));
        value = shrink * value - rate * corrected / (root + eps);
      }
    }
    return norm;
  }
};

// Steps on fresh random tokens; `targets_of` says what is to be predicted. Returns the mean loss on further
// tokens in evaluation, and its standard error.
template <class Targets>
std::pair<double, double> learn(const std::string& name, int steps, Targets&& targets_of) {
  ModelConfig config = block_config(name, 4);
  config.vocab = 4;
  config.dim = 16;
  config.heads = 2;
  config.positions = true;
  const auto model = make_model(config);
  model->params().initialize(1);
  TrainConfig train;
  train.weight_decay = 0;
  Adam optimizer(model->params(), train);
  ForwardInput input;
  for (int s = 0; s < steps; ++s) {
    input.tokens = random_ids(16, 17, 4, 1000 + static_cast<std::uint64_t>(s));
    const Tensor targets = targets_of(input.tokens);
    input.tokens = raw::narrow(input.tokens, 1, 0, 16);
    static_cast<void>(run(*model, input, targets));
    optimizer.step(1e-2);
  }
  const Tensor fresh = random_ids(64, 17, 4, 7);
  const NoGrad no_grad;
  input.tokens = raw::narrow(fresh, 1, 0, 16);
  const std::vector<double> losses =
      numbers(cross_entropy_rows(model->forward(input).logits, targets_of(fresh)));
  const auto n = static_cast<double>(losses.size());
  double mean = 0, square = 0;
  for (const double loss : losses) {
    mean += loss / n;
    square += loss * loss / n;
  }
  return {mean, std::sqrt((square - mean * mean) / n)};
}

}  // namespace

TEST_CASE(
    "model training: three steps equal a plain f64 optimizer in decay and clipping and bias correction") {
  for (const std::string& name : models_of("recurrent_transformer"))
    for (const bool clipped : {false, true})
      for (const std::string optimizer_name : {"adamw", "adam"}) {
        CAPTURE(name);
        CAPTURE(clipped);
        CAPTURE(optimizer_name);
        ModelConfig config = block_config(name, 4);
        config.layers = 2;
        config.positions = config.bias = true;
        const auto model = random_model(config);
        TrainConfig train;
        train.optimizer = optimizer_name;
        train.clip = clipped ? 0.1 : 0.0;
        Adam optimizer(model->params(), train);
        PlainAdamW plain(train, model->params());
        ForwardInput input;
        input.tokens = random_ids(3, 8, 11, 1);
        const Tensor targets = random_ids(3, 8, 11, 2);
        std::vector<double> losses;
        for (const double rate : {1e-2, 2e-2, 5e-3}) {
          const Outcome outcome = run(*model, input, targets);
          losses.push_back(outcome.loss);
          const double expected = plain.step(model->params(), outcome.gradients, rate);
          const double norm = optimizer.step(rate);
          CHECK(std::abs(norm - expected) <= 1e-12 * expected);
          if (clipped) CHECK(norm > 0.2);  // else the case tests nothing
          for (const Parameter& parameter : model->params().parameters())
            check_close(parameter.name, parameter.value,
                        Tensor::from(plain.p.at(parameter.name), parameter.shape), 1e-12);
        }
        CHECK(losses.back() < losses.front());
        CHECK(optimizer.steps() == 3);
        const std::map<std::string, Tensor> saved = optimizer.save();
        for (const Parameter& parameter : model->params().parameters()) {
          check_close("m", saved.at("m." + parameter.name),
                      Tensor::from(plain.m.at(parameter.name), parameter.shape), 1e-12, 1e-16);
          check_close("v", saved.at("v." + parameter.name),
                      Tensor::from(plain.v.at(parameter.name), parameter.shape), 1e-12, 1e-18);
        }
      }
}

TEST_CASE("model training: a parameter no gradient reached moves by its moments and decay alone") {
  ModelConfig config = small_config("unit_forget");
  config.positions = true;
  const auto model = random_model(config);
  TrainConfig train;
  train.clip = 0;
  Adam optimizer(model->params(), train);
  PlainAdamW plain(train, model->params());
  ForwardInput input;
  for (const std::int64_t time :
       {8, 3}) {  // the second call leaves rows 3 to 7 of the table without a gradient
    input.tokens = random_ids(2, time, 11, 1);
    const Outcome outcome = run(*model, input, random_ids(2, time, 11, 2));
    plain.step(model->params(), outcome.gradients, 1e-2);
    optimizer.step(1e-2);
    check_close("table", model->params().get("pos_embed.weight").value,
                Tensor::from(plain.p.at("pos_embed.weight"), {40, 12}), 1e-12);
  }
}

TEST_CASE("model training: a gradient that is not finite changes nothing and is no step") {
  const auto model = random_model(small_config("unit_forget"));
  TrainConfig train;
  Adam optimizer(model->params(), train);
  ForwardInput input;
  input.tokens = random_ids(2, 5, 11, 1);
  static_cast<void>(run(*model, input, random_ids(2, 5, 11, 2)));
  optimizer.step(1e-2);
  const Tensor before = raw::copy(model->params().values());
  const auto moments = optimizer.save();
  std::map<std::string, std::vector<double>> kept;
  for (const auto& [name, tensor] : moments) kept[name] = numbers(tensor);
  static_cast<void>(run(*model, input, random_ids(2, 5, 11, 2)));
  model->params().gradients().mutable_data<double>()[3] = std::nan("");
  CHECK(std::isnan(optimizer.step(1e-2)));
  CHECK(same_bits(model->params().values(), before));
  CHECK(optimizer.steps() == 1);
  for (const auto& [name, tensor] : optimizer.save()) CHECK_MESSAGE(numbers(tensor) == kept.at(name), name);
}

TEST_CASE("model training: uniformly random tokens cannot be predicted better than by chance") {
  for (const std::string& name : models_of("recurrent_transformer")) {
    CAPTURE(name);
    const auto next = [](const Tensor& tokens) { return raw::copy(raw::narrow(tokens, 1, 1, 16)); };
    const auto same = [](const Tensor& tokens) { return raw::copy(raw::narrow(tokens, 1, 0, 16)); };
    const auto [loss, error] = learn(name, 60, next);
    CAPTURE(loss);
    CAPTURE(error);
    CHECK(loss >= std::log(4.0) - 4 * error);  // a window that sees its target would be far below
    CHECK(loss <= std::log(4.0) + 0.3);
    // The same steps do learn what can be seen.
    const auto [control, control_error] = learn(name, 60, same);
    CAPTURE(control);
    CHECK(control <= 0.3);
  }
}
