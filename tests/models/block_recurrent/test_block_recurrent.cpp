// The Block-Recurrent family computed in several ways that must agree: in windows over all buckets, in other
// segments, in gradients call by call; and its streams' memory and errors.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/models/block_recurrent/block_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// Sums of some tens of terms of size 1 in another order, through three layers and up to eight blocks.
constexpr double kTolerance = 1e-10;

}  // namespace

TEST_CASE("block_recurrent: windows over all buckets agree with dense masks") {
  for (const std::int64_t window : {15, 17, 130}) {
    CAPTURE(window);
    ModelConfig config = recurrent_config("fixed", "skip");
    config.window = window;
    config.segment = 2 * window;
    const auto model = randomised(config);
    ForwardInput input = input_of(random_ids(1, 2 * window, 13, 1));
    const Tensor targets = random_ids(1, 2 * window, 13, 2);
    const Outcome fast = run(*model, input, targets);
    input.literal = true;
    check_outcomes(run(*model, input, targets), fast, kTolerance, 1e-12);
  }
}

TEST_CASE("block_recurrent: one segment equals two and four in logits and final states") {
  for (const auto& [name, config] : block_recurrent_cases()) {
    // Models whose numbers depend on where segments end.
    if (config.segment == config.window || config.clear_state || !config.cache ||
        config.model == "memorizing")
      continue;
    CAPTURE(name);
    const Tensor tokens = random_ids(2, 32, 13, 3);
    ModelConfig changed = config;
    changed.segment = 32;
    const ForwardOutput whole = evaluate(*randomised(changed), tokens);
    for (const std::int64_t segment : {16, 8}) {
      CAPTURE(segment);
      changed.segment = segment;
      const ForwardOutput cut = evaluate(*randomised(changed), tokens);
      check_close("logits", cut.logits, whole.logits, kTolerance);
      check_states(cut.state, whole.state, kTolerance);
    }
  }
}

TEST_CASE("block_recurrent: a shorter last segment is one that ends early") {
  const auto model = randomised(recurrent_config("lstm", "single"));
  const Tensor tokens = random_ids(2, 24, 13, 3);
  const ForwardOutput both = evaluate(*model, tokens), first = evaluate(*model, part(tokens, 0, 16));
  const ForwardOutput second = evaluate(*model, part(tokens, 16, 8), first.state);
  check_close("logits", raw::narrow(both.logits, 1, 16, 8), second.logits, kTolerance);
  check_states(second.state, both.state, kTolerance);
}

TEST_CASE("block_recurrent: a stream's memory does not grow") {
  for (const auto& [name, config] : block_recurrent_cases()) {
    CAPTURE(name);
    const auto model = randomised(config);
    State state;
    static_cast<void>(model->stream(random_ids(1, 5, 13, 7), state));
    const std::int64_t bytes = state.bytes();
    static_cast<void>(model->stream(random_ids(1, 90, 13, 7), state));
    CHECK(state.bytes() == bytes);
    CHECK(model->stream_room(state) == -1);
  }
}

TEST_CASE("block_recurrent: whole segments cannot go on inside a stream's block") {
  const auto model = randomised(recurrent_config("fixed", "skip"));
  State state;
  static_cast<void>(model->stream(random_ids(2, 6, 13, 1), state));
  const std::string text =
      error_of<ValueError>([&] { static_cast<void>(evaluate(*model, random_ids(2, 4, 13, 1), state)); });
  CHECK(contains(text, "after 6 tokens"));
  static_cast<void>(model->stream(random_ids(2, 2, 13, 1), state));
  CHECK_NOTHROW(static_cast<void>(evaluate(*model, random_ids(2, 4, 13, 1), state)));
}

TEST_CASE("block_recurrent: a failed stream leaves its state as it was") {
  const auto model = randomised(recurrent_config("fixed", "skip"));
  State state;
  static_cast<void>(model->stream(random_ids(2, 6, 13, 1), state));
  const State before = copy_of(state);
  const Tensor bad = Tensor::from(std::vector<std::int64_t>{1, 2, 3, 13}, {2, 2});
  CHECK_THROWS_AS(static_cast<void>(model->stream(bad, state)), ValueError);
  CHECK_THROWS_AS(static_cast<void>(model->stream(random_ids(3, 2, 13, 1), state)), ShapeError);
  check_states(state, before, 0);
}

TEST_CASE("block_recurrent: f32 agrees with f64") {
  for (const auto& [name, config] : block_recurrent_cases()) {
    CAPTURE(name);
    const Tensor tokens = random_ids(2, 16, 13, 9);
    const auto narrow_model = randomised(config, 5, Dtype::f32), wide_model = randomised(config);
    // The same parameters: what f32 holds.
    for (const Parameter& parameter : wide_model->params().parameters())
      set_values(parameter, numbers(narrow_model->params().get(parameter.name).value));
    // Rounding of 1e-7 per operation, amplified by scales of 3 in three layers; the bound of the golden
    // cases.
    check_close("logits", evaluate(*narrow_model, tokens).logits, evaluate(*wide_model, tokens).logits, 1e-4,
                1e-6);
  }
}

TEST_CASE("block_recurrent: gradients of several segments are those of their calls one by one") {
  for (const auto& [name, config] : block_recurrent_cases()) {
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
