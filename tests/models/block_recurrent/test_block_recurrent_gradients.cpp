// Gradients of the Block-Recurrent family against finite differences, with everything that is carried held
// constant.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/models/block_recurrent/block_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// Differences along one random direction of every parameter: a mistake in any element shows, as no direction
// is blind to it. Central differences at h and 2 h, extrapolated: the error is some h^4 + 1e-16 / h.
void check_gradients(Model& model, const ForwardInput& input, const Tensor& targets) {
  constexpr double kTolerance = 1e-8;  // slopes are below 1
  const Outcome outcome = run(model, input, targets);
  const auto loss = [&] {
    const NoGrad no_grad;
    return cross_entropy(model.forward(input).logits, targets).item();
  };
  for (const Parameter& parameter : model.params().parameters()) {
    const std::vector<double> values = numbers(parameter.value);
    const RandomKey key = random_key(9, ("test.direction." + parameter.name).c_str(), 0);
    std::vector<double> direction(values.size());
    double length = 0, expected = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      direction[i] = static_cast<double>(uniform01(key.word(i))) - 0.5;
      length += direction[i] * direction[i];
    }
    const Tensor& gradient = outcome.gradients.at(parameter.name);
    const std::vector<double> slopes =
        gradient.defined() ? numbers(gradient) : std::vector<double>(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      direction[i] /= std::sqrt(length);
      expected += direction[i] * slopes[i];
    }
    const auto difference = [&](double h) {
      const auto at = [&](double step) {
        std::vector<double> moved = values;
        for (std::size_t i = 0; i < values.size(); ++i) moved[i] += step * direction[i];
        set_values(parameter, moved);
        return loss();
      };
      return (at(h) - at(-h)) / (2 * h);
    };
    double found = 0;
    for (const double step : {2e-4, 2e-5, 2e-6}) {
      found = (4 * difference(step) - difference(2 * step)) / 3;
      if (std::abs(found - expected) <= kTolerance) break;
    }
    set_values(parameter, values);
    CAPTURE(parameter.name);
    CAPTURE(found);
    CAPTURE(expected);
    CHECK(std::abs(found - expected) <= kTolerance);
  }
}

}  // namespace

TEST_CASE("block_recurrent: gradients of every parameter equal finite differences at a document's start") {
  for (const auto& [name, config] : block_recurrent_variants()) {
    if (config.model == "block_recurrent" && config.gate != "fixed") continue;  // the test below has them
    CAPTURE(name);
    auto model = randomised(config);
    const Tensor targets = random_ids(1, config.segment, 13, 2);
    check_gradients(*model, input_of(random_ids(1, config.segment, 13, 1)), targets);
  }
}

TEST_CASE("block_recurrent: gradients of every parameter equal finite differences behind a carried state") {
  for (const auto& [name, config] : block_recurrent_variants()) {
    CAPTURE(name);
    auto model = randomised(config);
    const State state = evaluate(*model, random_ids(2, 16, 13, 3)).state;
    const Tensor targets = random_ids(2, config.segment, 13, 2);
    check_gradients(*model, input_of(random_ids(2, config.segment, 13, 1), state, flags({1, 0}, 2)), targets);
  }
}

TEST_CASE("block_recurrent: gradients of several segments are those of their calls one by one") {
  for (const auto& [name, config] : block_recurrent_variants()) {
    CAPTURE(name);
    auto model = randomised(config);
    const std::int64_t segment = config.segment;
    const Tensor tokens = random_ids(2, 3 * segment, 13, 4), targets = random_ids(2, 3 * segment, 13, 5);
    const Outcome whole = run(*model, input_of(tokens), targets);
    std::map<std::string, std::vector<double>> sums;
    State state;
    for (std::int64_t s = 0; s < 3; ++s) {
      const ForwardInput input = input_of(part(tokens, s * segment, segment), state);
      const Outcome one = run(*model, input, part(targets, s * segment, segment));
      for (const auto& [parameter, gradient] : one.gradients) {
        if (!gradient.defined()) continue;
        const std::vector<double> values = numbers(gradient);
        std::vector<double>& sum = sums[parameter];
        sum.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i] / 3;
      }
      state = evaluate(*model, input.tokens, state).state;
    }
    for (const auto& [parameter, gradient] : whole.gradients) {
      CHECK(gradient.defined() == sums.contains(parameter));
      if (gradient.defined())
        check_close(parameter, Tensor::from(sums[parameter], gradient.shape()), gradient, 1e-10);
    }
  }
}
