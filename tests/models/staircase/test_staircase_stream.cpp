// Streams of the staircase family: how large their state is, and what they refuse.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tensor/base/error.h"
#include "tests/models/staircase/staircase_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

}  // namespace

TEST_CASE("staircase stream: its state does not grow") {
  for (const auto& [name, config] : staircase_cases()) {
    CAPTURE(name);
    const auto model = random_model(config);
    State state;
    std::int64_t largest = 0;
    const std::int64_t settled = 2 * (config.steps + 1) * config.chunk + 2 * config.span;
    for (std::int64_t t = 0; t < 2 * settled; ++t) {
      model->stream(random_ids(1, 1, config.vocab, static_cast<std::uint64_t>(t)), state);
      if (t < settled)
        largest = std::max(largest, state.bytes());
      else
        CHECK(state.bytes() <= largest);
    }
  }
}

TEST_CASE("staircase stream: other batch sizes and the middle of a chunk are refused") {
  const auto model = random_model(staircase_config("staircase"));
  State state;
  model->stream(random_ids(2, 4, 13, 27), state);
  CHECK(contains(error_of<ShapeError>([&] { model->stream(random_ids(3, 1, 13, 28), state); }), "batch"));
  CHECK(contains(error_of<ValueError>([&] { forward_of(*model, random_ids(2, 3, 13, 29), state); }),
                 "1 of 3 tokens"));
  ModelConfig official = staircase_config("staircase");
  official.carry = "official";
  const auto other = random_model(official);
  State early;
  other->stream(random_ids(2, 3, 13, 27), early);
  CHECK(contains(error_of<ValueError>([&] { forward_of(*other, random_ids(2, 6, 13, 29), early); }),
                 "official"));
}
