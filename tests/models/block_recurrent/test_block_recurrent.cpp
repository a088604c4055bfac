// The Block-Recurrent family computed in several ways that must agree: segment by segment with banded
// attention, block by block with dense masks, in other segments, in several calls, and token by token.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/models/block_recurrent/block_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// Sums of some tens of terms of size 1 in another order, through three layers and up to eight blocks.
constexpr double kTolerance = 1e-10;

// Streams `tokens` in portions of changing size.
Tensor streamed(const Model& model, const Tensor& tokens, State& state,
                const std::vector<std::int64_t>& sizes) {
  std::vector<Tensor> logits;
  std::int64_t at = 0;
  for (std::size_t i = 0; at < tokens.dim(1); ++i) {
    const std::int64_t length = std::min(sizes[i % sizes.size()], tokens.dim(1) - at);
    logits.push_back(model.stream(part(tokens, at, length), state));
    at += length;
  }
  return concat(logits, 1);
}

}  // namespace

TEST_CASE("block_recurrent: banded attention in whole segments equals dense masks block by block") {
  for (const auto& [name, config] : block_recurrent_variants()) {
    CAPTURE(name);
    const auto model = randomised(config);
    const std::int64_t segments = 32 / config.segment;
    std::vector<std::int64_t> starts(static_cast<std::size_t>(2 * segments), 0);
    starts[0] = 1;
    starts[static_cast<std::size_t>(segments) + 1] = 1;
    const State state = evaluate(*model, random_ids(2, 16, 13, 8)).state;
    ForwardInput input = input_of(random_ids(2, 32, 13, 1), state, flags(starts, 2));
    const Tensor targets = random_ids(2, 32, 13, 2);
    const Outcome fast = run(*model, input, targets);
    const State fast_state = evaluate(*model, input.tokens, state, input.start).state;
    input.literal = true;
    check_outcomes(run(*model, input, targets), fast, kTolerance, 1e-12);
    const NoGrad no_grad;
    check_states(model->forward(input).state, fast_state, kTolerance);
  }
}

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
  for (const auto& [name, config] : block_recurrent_variants()) {
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

TEST_CASE("block_recurrent: calls that carry the state equal one call of several segments") {
  for (const auto& [name, config] : block_recurrent_variants()) {
    CAPTURE(name);
    const auto model = randomised(config);
    const Tensor tokens = random_ids(2, 32, 13, 4);
    const ForwardOutput whole = evaluate(*model, tokens);
    const ForwardOutput first = evaluate(*model, part(tokens, 0, 16));
    const ForwardOutput second = evaluate(*model, part(tokens, 16, 16), first.state);
    check_close("logits", second.logits, raw::narrow(whole.logits, 1, 16, 16), kTolerance);
    check_states(second.state, whole.state, kTolerance);
  }
}

TEST_CASE("block_recurrent: streaming from a document's start equals whole segments in any portions") {
  for (const auto& [name, config] : block_recurrent_variants()) {
    const auto model = randomised(config);
    const Tensor tokens = random_ids(2, 32, 13, 5);
    const Tensor expected = evaluate(*model, tokens).logits;
    for (const std::vector<std::int64_t>& sizes :
         std::vector<std::vector<std::int64_t>>{{1}, {3, 1, 5}, {4}, {32}, {7, 25}}) {
      CAPTURE(name);
      CAPTURE(sizes[0]);
      State state;
      check_close("logits", streamed(*model, tokens, state, sizes), expected, kTolerance);
    }
  }
}

TEST_CASE("block_recurrent: streams and whole segments take over each other's state") {
  for (const auto& [name, config] : block_recurrent_variants()) {
    CAPTURE(name);
    const auto model = randomised(config);
    const Tensor tokens = random_ids(2, 48, 13, 6);
    const ForwardOutput whole = evaluate(*model, tokens);
    State state = evaluate(*model, part(tokens, 0, 16)).state;
    const Tensor between = streamed(*model, part(tokens, 16, 16), state, {3});
    check_close("stream", between, raw::narrow(whole.logits, 1, 16, 16), kTolerance);
    const ForwardOutput after = evaluate(*model, part(tokens, 32, 16), state);
    check_close("after", after.logits, raw::narrow(whole.logits, 1, 32, 16), kTolerance);
    check_states(after.state, whole.state, kTolerance);
  }
}

TEST_CASE("block_recurrent: a stream's memory does not grow") {
  for (const auto& [name, config] : block_recurrent_variants()) {
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
  for (const auto& [name, config] : block_recurrent_variants()) {
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
