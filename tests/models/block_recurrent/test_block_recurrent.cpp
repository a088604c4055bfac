// The Block-Recurrent family computed in several ways that must agree: in windows over all buckets and in other
// segments.
#include <doctest/doctest.h>

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
