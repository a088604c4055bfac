// What the tests of models share: the distance of two tensors on the scale that parity is measured on, models
// with weights large enough to show a mistake, one forward and backward with everything that came out, and
// gradients against differences of the loss.
//
// Weights of deviation 0.02 hide mistakes: a wrong mask changes the loss by 1e-4, a tanh GELU the logits by
// 3e-5. All models here are initialised with 0.2, and their norm gains and biases are moved away from 1 and
// 0.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "ops/loss/cross_entropy.h"
#include "tensor/random/philox.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace eddy::test {

// A small configuration with a name that says what is special about it. Each family lists its own in the
// <family>_case.h of its folder; every_model.h combines them.
struct ModelCase {
  std::string name;
  ModelConfig config;
};

// The registered models of a family.
inline std::vector<std::string> models_of(const std::string& family) {
  std::vector<std::string> names;
  for (const ModelEntry& entry : model_registry())
    if (entry.family == family) names.push_back(entry.model);
  return names;
}

// All digits of a number.
inline std::string exact(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
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
                  << exact(got) << " for " << exact(wanted) << ", error " << found.error
                  << ", largest magnitude " << found.scale << ", tolerance " << relative << " relative + "
                  << floor);
}

// The same for every tensor of two states, which must have the same names.
inline void check_states(const State& mine, const State& expected, double relative, double floor = 1e-14) {
  REQUIRE(mine.size() == expected.size());
  for (const auto& [name, tensor] : expected)
    check_close("state " + name, mine.get(name), tensor, relative, floor);
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && numbers(a) == numbers(b);
}

// The entries first .. first + count - 1 of axis 1, copied: tokens or logits of a stretch of time.
inline Tensor part(const Tensor& x, std::int64_t first, std::int64_t count) {
  return raw::copy(raw::narrow(x, 1, first, count));
}

inline State copy_of(const State& state) {
  State copied;
  for (const auto& [name, tensor] : state) copied.set(name, raw::copy(tensor));
  return copied;
}

inline double largest_magnitude(const Tensor& x) {
  double result = 0;
  for (const double value : numbers(x)) result = std::max(result, std::abs(value));
  return result;
}

// "name [shape]" of every parameter of a model, in their order.
inline std::vector<std::string> listed(const ModelConfig& config) {
  const ParamStore counted = count_parameters(config);
  std::vector<std::string> lines;
  for (const Parameter& parameter : counted.parameters())
    lines.push_back(parameter.name + " " + to_string(parameter.shape));
  return lines;
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

// What one call gives: logits, loss, the gradient of every parameter (an undefined tensor where none
// arrived), and the state to be carried on.
struct Outcome {
  Tensor logits;
  double loss = 0;
  std::map<std::string, Tensor> gradients;
  State state;
};

inline Outcome run(Model& model, const ForwardInput& input, const Tensor& targets) {
  model.params().zero_gradients();
  const ForwardOutput output = model.forward(input);
  const Tensor loss = cross_entropy(output.logits, targets);
  Outcome outcome{raw::copy(detach(output.logits)), loss.item(), {}, output.state.detach()};
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

// Steps for differences of a loss that has all its derivatives, and of one with kinks: a ReLU that changes
// sides, or one stored key that overtakes another. A kink inside a step adds its share of the step to the
// difference, so the steps are short and shrink until none lies in them.
inline constexpr double kSmoothSteps[] = {1e-3, 2e-4};
inline constexpr double kKinkSteps[] = {2e-5, 4e-6, 1.6e-6};

// The parameters that have the same place in all layers: "layers.*.attn.wq.weight" has those of layers.0,
// layers.1 and so on.
inline std::map<std::string, std::vector<Parameter>> by_place(const ParamStore& params) {
  std::map<std::string, std::vector<Parameter>> places;
  for (const Parameter& parameter : params.parameters()) {
    std::string place;
    for (const char c : parameter.name)
      if (c < '0' || c > '9')
        place += c;
      else if (!place.ends_with('*'))
        place += '*';
    places[place].push_back(parameter);
  }
  return places;
}

// For the parameters of each place: the derivative of the loss along one random direction, by differences,
// against the inner product of the direction with the gradient; an absent gradient is zero. A mistake in any
// element shows, as no direction is blind to it. Steps of 1e-4 and more take the five-point formula, which
// leaves h^4 / 30 of the fifth derivative, 1e-13 of it and less; the short ones take two points, which leave
// h^2 / 6 of the third, 1e-10 and less. The tolerance is 1e-8 of the slope for that, and the rounding of the
// losses over the step: 3/2 of it with five points. A loss of sums of some hundred terms is off by 16 units
// in its last place. `loss` gives it for the parameters as they are.
template <class Loss>
void check_directions(Model& model, const Outcome& outcome, std::span<const double> steps, Loss&& loss) {
  for (const auto& [place, parameters] : by_place(model.params())) {
    std::vector<std::vector<double>> starts, directions;
    double norm = 0, expected = 0;
    for (const Parameter& parameter : parameters) {
      const std::vector<double>& start = starts.emplace_back(numbers(parameter.value));
      std::vector<double>& direction = directions.emplace_back(start.size());
      const Tensor& arrived = outcome.gradients.at(parameter.name);
      const std::vector<double> gradient =
          arrived.defined() ? numbers(arrived) : std::vector<double>(start.size());
      const RandomKey key = random_key(9, ("direction." + parameter.name).c_str(), 0);
      for (std::size_t i = 0; i < start.size(); ++i) {
        direction[i] = static_cast<double>(uniform01(key.word(i))) - 0.5;
        norm += direction[i] * direction[i];
        expected += direction[i] * gradient[i];
      }
    }
    norm = std::sqrt(norm);
    expected /= norm;
    const auto move = [&](double step) {
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        std::vector<double> moved = starts[p];
        for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += step / norm * directions[p][i];
        raw::copy_into(detach(parameters[p].value), Tensor::from(moved, parameters[p].shape));
      }
    };
    const auto loss_at = [&](double step) {
      move(step);
      return loss();
    };
    const double rounding = 16 * std::numeric_limits<double>::epsilon() * std::max(1.0, outcome.loss);
    double measured = 0, error = 0, tolerance = 0, used = 0;
    for (const double h : steps) {
      used = h;
      const bool five_points = h >= 1e-4;
      const double inner = loss_at(h) - loss_at(-h);
      measured = five_points ? (8 * inner - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h) : inner / (2 * h);
      error = std::abs(measured - expected);
      tolerance = 1e-8 * std::abs(expected) + (five_points ? 1.5 : 1.0) * rounding / h;
      if (error <= tolerance) break;
    }
    move(0);
    if (!(error <= tolerance))
      FAIL_CHECK(place << ": the loss rises by " << exact(measured) << " and the gradient says "
                       << exact(expected) << ", error " << error << ", tolerance " << tolerance << " at step "
                       << used);
  }
}

inline void check_directions(Model& model, const ForwardInput& input, const Tensor& targets,
                             std::span<const double> steps = kSmoothSteps) {
  check_directions(model, run(model, input, targets), steps, [&] { return loss_of(model, input, targets); });
}

inline void check_outcomes(const Outcome& mine, const Outcome& expected, double relative,
                           double floor = 1e-14) {
  check_close("logits", mine.logits, expected.logits, relative, floor);
  check_close("loss", Tensor::full({1}, mine.loss, Dtype::f64), Tensor::full({1}, expected.loss, Dtype::f64),
              relative, floor);
  check_states(mine.state, expected.state, relative, floor);
  REQUIRE(mine.gradients.size() == expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    CAPTURE(name);
    REQUIRE(gradient.defined() == mine.gradients.at(name).defined());
    if (gradient.defined()) check_close("grad." + name, mine.gradients.at(name), gradient, relative, floor);
  }
}

}  // namespace eddy::test
