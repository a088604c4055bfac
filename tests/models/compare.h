// What the tests of models share: the distance of two tensors on the scale that parity is measured on, models
// with weights large enough to show a mistake, and one forward and backward with everything that came out.
//
// Weights of deviation 0.02 hide mistakes: a wrong mask changes the loss by 1e-4, a tanh GELU the logits by
// 3e-5. All models here are initialised with 0.2, and their norm gains and biases are moved away from 1 and
// 0.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/model.h"
#include "ops/loss/cross_entropy.h"
#include "tensor/random/philox.h"

namespace eddy::test {

inline std::vector<double> numbers(const Tensor& x) {
  return raw::cast(raw::contiguous(detach(x)), Dtype::f64).to_vector<double>();
}

// The largest difference of two tensors, and the largest magnitude of the second.
struct Distance {
  double error = 0, scale = 0;
  std::size_t worst = 0;  // row-major place of the largest difference, or of the first NaN
  bool within(double relative, double floor) const { return error <= relative * scale + floor; }
};

inline Distance distance(const Tensor& mine, const Tensor& expected) {
  REQUIRE(to_string(mine.shape()) == to_string(expected.shape()));
  const std::vector<double> a = numbers(mine), b = numbers(expected);
  Distance result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]);
    if (!(error <= result.error)) {
      result.error = error;
      result.worst = i;
      if (std::isnan(error)) break;
    }
    result.scale = std::max(result.scale, std::abs(b[i]));
  }
  return result;
}

// Fails unless max|mine - expected| <= relative max|expected| + floor; NaN fails.
inline void check_close(const std::string& name, const Tensor& mine, const Tensor& expected, double relative,
                        double floor = 1e-14) {
  const Distance found = distance(mine, expected);
  if (found.within(relative, floor)) return;
  const double got = numbers(mine)[found.worst], wanted = numbers(expected)[found.worst];
  FAIL_CHECK(name << " " << to_string(expected.shape()) << " differs at element " << found.worst << ": "
                  << got << " for " << wanted << ", error " << found.error << ", largest magnitude "
                  << found.scale << ", tolerance " << relative << " relative + " << floor);
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && numbers(a) == numbers(b);
}

// Uniform ids in [0, vocab).
inline Tensor random_ids(std::int64_t rows, std::int64_t columns, std::int64_t vocab, std::uint64_t seed) {
  const RandomKey key = random_key(seed, "test.ids", 0);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int64_t>(key.word(i) % static_cast<std::uint32_t>(vocab));
  return Tensor::from(ids, {rows, columns});
}

// What the graph of a forward pass keeps for the backward pass.
inline std::int64_t bytes_kept(const Model& model, const Tensor& tokens) {
  ForwardInput input;
  input.tokens = tokens;
  const ForwardOutput output = model.forward(input);
  return graph_stats().saved_bytes;
}

inline ModelConfig small_config(const std::string& model) {
  ModelConfig config;
  config.model = model;
  config.vocab = 11;
  config.context = 40;
  config.dim = 12;
  config.heads = 3;
  config.init_std = 0.2;
  return config;
}

// A model with random parameters, gains and biases included.
inline std::unique_ptr<Model> random_model(const ModelConfig& config, Dtype dtype = Dtype::f64,
                                           std::uint64_t seed = 3) {
  std::unique_ptr<Model> model = make_model(config, dtype);
  model->params().initialize(seed);
  for (const Parameter& parameter : model->params().parameters()) {
    if (parameter.shape.rank() != 1) continue;
    const RandomKey key = random_key(seed, ("test." + parameter.name).c_str(), 0);
    std::vector<double> values = numbers(parameter.value);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += 0.4 * (static_cast<double>(uniform01(key.word(i))) - 0.5);
    raw::copy_into(detach(parameter.value), raw::cast(Tensor::from(values, parameter.shape), dtype));
  }
  return model;
}

// What one call gives: logits, loss, and the gradient of every parameter (an undefined tensor where none
// arrived).
struct Outcome {
  Tensor logits;
  double loss = 0;
  std::map<std::string, Tensor> gradients;
};

inline Outcome run(Model& model, const ForwardInput& input, const Tensor& targets) {
  model.params().zero_gradients();
  const ForwardOutput output = model.forward(input);
  const Tensor loss = cross_entropy(output.logits, targets);
  Outcome outcome{raw::copy(detach(output.logits)), loss.item(), {}};
  backward(loss);
  for (const Parameter& parameter : model.params().parameters()) {
    const Tensor gradient = grad(parameter.value);
    outcome.gradients[parameter.name] = gradient.defined() ? raw::copy(gradient) : Tensor();
  }
  return outcome;
}

inline double loss_of(const Model& model, const ForwardInput& input, const Tensor& targets) {
  const NoGrad no_grad;
  return cross_entropy(model.forward(input).logits, targets).item();
}

// For every parameter tensor: the derivative of the loss along one random direction, by the five-point
// formula, against the inner product of the direction with the gradient; an absent gradient is zero. With a
// step of 1e-3 truncation and the rounding of the losses divided by the step are some 1e-12 each.
// `loss` gives it for the parameters as they are.
template <class Loss>
void check_directions(Model& model, const Outcome& outcome, double relative, Loss&& loss) {
  for (const Parameter& parameter : model.params().parameters()) {
    CAPTURE(parameter.name);
    const Tensor& arrived = outcome.gradients.at(parameter.name);
    const std::vector<double> start = numbers(parameter.value);
    const std::vector<double> gradient =
        arrived.defined() ? numbers(arrived) : std::vector<double>(start.size());
    std::vector<double> direction(start.size());
    const RandomKey key = random_key(9, ("direction." + parameter.name).c_str(), 0);
    double norm = 0, expected = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {
      direction[i] = static_cast<double>(uniform01(key.word(i))) - 0.5;
      norm += direction[i] * direction[i];
    }
    for (std::size_t i = 0; i < start.size(); ++i) {
      direction[i] /= std::sqrt(norm);
      expected += direction[i] * gradient[i];
    }
    const auto loss_at = [&](double step) {
      std::vector<double> moved = start;
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
      raw::copy_into(detach(parameter.value), Tensor::from(moved, parameter.shape));
      return loss();
    };
    constexpr double kStep = 1e-3;
    const double measured =
        (8 * (loss_at(kStep) - loss_at(-kStep)) - (loss_at(2 * kStep) - loss_at(-2 * kStep))) / (12 * kStep);
    raw::copy_into(detach(parameter.value), Tensor::from(start, parameter.shape));
    CAPTURE(expected);
    CAPTURE(measured);
    CHECK(std::abs(measured - expected) <= relative * std::abs(expected) + 0.01 * relative);
  }
}

inline void check_directions(Model& model, const ForwardInput& input, const Tensor& targets,
                             double relative = 1e-7) {
  check_directions(model, run(model, input, targets), relative,
                   [&] { return loss_of(model, input, targets); });
}

inline void check_outcomes(const Outcome& mine, const Outcome& expected, double relative,
                           double floor = 1e-14) {
  check_close("logits", mine.logits, expected.logits, relative, floor);
  CHECK(!(std::abs(mine.loss - expected.loss) > relative * std::abs(expected.loss) + floor));
  REQUIRE(mine.gradients.size() == expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    CAPTURE(name);
    REQUIRE(gradient.defined() == mine.gradients.at(name).defined());
    if (gradient.defined()) check_close("grad." + name, mine.gradients.at(name), gradient, relative, floor);
  }
}

// The text of the error of type E that `action` throws; "" when it throws none.
template <class E, class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace eddy::test
