// The same numbers of every model in another way: in f32, with any number of threads, and in batches of other
// rows.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tensor/threads/thread_pool.h"
#include "tests/models/every_model.h"

using namespace eddy;
using namespace eddy::test;

namespace {

Tensor rows_in(const Tensor& x, const std::vector<std::int64_t>& order) {
  const Tensor result = raw::copy(x);
  for (std::size_t row = 0; row < order.size(); ++row)
    raw::copy_into(raw::narrow(result, 0, static_cast<std::int64_t>(row), 1),
                   raw::narrow(x, 0, order[row], 1));
  return result;
}

// The logits of two calls, the second from the state of the first.
std::vector<Tensor> two_calls(const Model& model, const Tensor& first, const Tensor& second) {
  const ForwardOutput before = forwarded(model, first);
  return {before.logits, forwarded(model, second, before.state).logits};
}

}  // namespace

// Rounding of 6e-8 per operation through some tens of layer calls, more where scales of 3 amplify it; gradients
// are sums of larger numbers. The bounds are those of the golden cases (tests/golden/README.md).
TEST_CASE("model precision: f32 is near f64 in logits and loss and gradients and states and streams") {
  for (const auto& [name, config] : every_case()) {
    CAPTURE(config.model);
    CAPTURE(name);
    const auto single = model_of(config, Dtype::f32), exact = model_of(config);
    for (const Parameter& parameter : exact->params().parameters())
      raw::copy_into(detach(parameter.value),
                     raw::cast(detach(single->params().get(parameter.name).value), Dtype::f64));
    const std::int64_t time = call_time(config);
    const Tensor tokens = random_ids(2, time, config.vocab, 9), targets = targets_for(*exact, 2, time);
    const ForwardInput input = input_for(config, tokens);
    const Outcome mine = run(*single, input, targets), expected = run(*exact, input, targets);
    check_close("logits", mine.logits, expected.logits, config.family == "staircase" ? 2e-5 : 1e-4, 1e-6);
    CHECK(std::abs(mine.loss - expected.loss) <= 1e-4 * expected.loss);
    check_states(mine.state, expected.state, 1e-4, 1e-6);
    for (const auto& [parameter, gradient] : expected.gradients) {
      REQUIRE(gradient.defined() == mine.gradients.at(parameter).defined());
      if (gradient.defined()) check_close(parameter, mine.gradients.at(parameter), gradient, 1e-3, 1e-6);
    }
    State state, exact_state;
    for (std::int64_t t = 0; t < time; ++t)
      check_close("stream", single->stream(part(tokens, t, 1), state),
                  exact->stream(part(tokens, t, 1), exact_state), 1e-4, 1e-5);
  }
}

TEST_CASE("model precision: equal calls give equal bits with any number of threads") {
  const int before = thread_count();
  for (const ModelName& name : model_registry()) {
    const ModelConfig config = plain_config(name);
    CAPTURE(config.model);
    const auto model = model_of(config, Dtype::f32);
    const std::int64_t time = uneven_time(config);
    const ForwardInput input = input_for(config, random_ids(33, time, config.vocab, 1));
    const Tensor targets = targets_for(*model, 33, time);
    const Outcome first = run(*model, input, targets);
    for (const int threads : {before, 1, 2, 3}) {
      set_thread_count(threads);
      const Outcome again = run(*model, input, targets);
      CHECK(same_bits(again.logits, first.logits));
      CHECK(again.loss == first.loss);
      for (const auto& [key, tensor] : first.state)
        CHECK_MESSAGE(same_bits(again.state.get(key), tensor), key);
      for (const auto& [parameter, gradient] : first.gradients)
        if (gradient.defined()) CHECK_MESSAGE(same_bits(again.gradients.at(parameter), gradient), parameter);
    }
    set_thread_count(before);
  }
}

TEST_CASE("model precision: rows of a batch know nothing of each other") {
  const std::vector<std::int64_t> order{3, 0, 6, 2, 5, 1, 4};
  for_every_case([&](const ModelConfig& config, Model& model) {
    const Tensor first = random_ids(7, call_time(config), config.vocab, 4),
                 second = random_ids(7, call_time(config), config.vocab, 5);
    const bool carries = !carried_state(model, 1).empty();
    const auto logits = [&](const Tensor& a, const Tensor& b) {
      return carries ? two_calls(model, a, b) : std::vector<Tensor>{forwarded(model, a).logits};
    };
    const std::vector<Tensor> straight = logits(first, second),
                              mixed = logits(rows_in(first, order), rows_in(second, order)),
                              alone = logits(raw::copy(raw::narrow(first, 0, 2, 1)),
                                             raw::copy(raw::narrow(second, 0, 2, 1)));
    for (std::size_t call = 0; call < straight.size(); ++call) {
      CAPTURE(call);
      check_close("permuted", mixed[call], rows_in(straight[call], order), kOrder);
      check_close("alone", alone[call], raw::narrow(straight[call], 0, 2, 1), kOrder);
    }
  });
}
