// Streams of the staircase family: token by token or many at once, from the beginning or from a carried state
// in mid-sequence, the numbers are those of whole segments.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/models/staircase/staircase_oracle.h"

namespace {

using namespace eddy;
using namespace eddy::test;

constexpr double kClose = 1e-11;  // as for segments: rounding of f64 sums

// Streams tokens in pieces of the given lengths, over and over, and returns the logits of all.
Tensor streamed(const Model& model, const Tensor& tokens, State& state,
                const std::vector<std::int64_t>& lengths) {
  std::vector<Tensor> parts;
  std::vector<double> all;
  const std::int64_t batch = tokens.dim(0), time = tokens.dim(1);
  Tensor logits = Tensor::zeros({batch, time, model.config().n_out}, Dtype::f64);
  std::size_t turn = 0;
  for (std::int64_t t = 0; t < time;) {
    const std::int64_t count = std::min(lengths[turn++ % lengths.size()], time - t);
    raw::copy_into(raw::narrow(logits, 1, t, count), model.stream(columns(tokens, t, count), state));
    t += count;
  }
  return logits;
}

}  // namespace

TEST_CASE("staircase stream: any pieces give the logits of whole segments") {
  for (const auto& [name, config] : staircase_variants()) {
    CAPTURE(name);
    const auto model = random_model(config);
    const Tensor tokens = random_ids(2, 3 * config.segment, config.vocab, 21);
    const Tensor expected = forward_of(*model, tokens).logits;
    for (const std::vector<std::int64_t>& lengths :
         std::vector<std::vector<std::int64_t>>{{1}, {3, 1, 7, 2}, {1000}}) {
      State state;
      check_close("logits", streamed(*model, tokens, state, lengths), expected, kClose);
      CHECK(model->stream_room(state) == -1);
    }
  }
}

TEST_CASE("staircase stream: a carried state goes on in mid-sequence") {
  for (const auto& [name, config] : staircase_variants()) {
    CAPTURE(name);
    const auto model = random_model(config);
    const std::int64_t segment = config.segment;
    const Tensor tokens = random_ids(2, 4 * segment, config.vocab, 22);
    const Tensor expected = forward_of(*model, tokens).logits;
    State state = forward_of(*model, columns(tokens, 0, segment)).state;
    check_close("stream after segment",
                streamed(*model, columns(tokens, segment, 2 * segment), state, {1, 4}),
                columns(expected, segment, 2 * segment), kClose);
    // And back: where a segment may begin, a stream's state serves forward.
    const ForwardOutput rest = forward_of(*model, columns(tokens, 3 * segment, segment), state);
    check_close("segment after stream", rest.logits, columns(expected, 3 * segment, segment), kClose);
  }
}

TEST_CASE("staircase stream: a stream's state at a segment's end is the state of the segment") {
  for (const auto& [name, config] : staircase_variants()) {
    CAPTURE(name);
    const auto model = random_model(config);
    const Tensor tokens = random_ids(2, 2 * config.segment, config.vocab, 23);
    const Tensor more = random_ids(2, config.segment, config.vocab, 24);
    State stream;
    streamed(*model, tokens, stream, {5});
    const ForwardOutput a = forward_of(*model, more, stream),
                        b = forward_of(*model, more, forward_of(*model, tokens).state);
    check_close("logits", a.logits, b.logits, kClose);
    for (const auto& [part, tensor] : b.state) check_close(part, a.state.get(part), tensor, kClose);
  }
}

TEST_CASE("staircase stream: copies of a state go on independently") {
  for (const auto& [name, config] : staircase_variants()) {
    CAPTURE(name);
    const auto model = random_model(config);
    const Tensor tokens = random_ids(1, 17, config.vocab, 25), other = random_ids(1, 9, config.vocab, 26);
    State straight;
    const Tensor expected = streamed(*model, tokens, straight, {1});
    State state;
    streamed(*model, columns(tokens, 0, 8), state, {1});
    State copy = state;
    streamed(*model, other, copy, {2});
    check_close("first", streamed(*model, columns(tokens, 8, 9), state, {1}), columns(expected, 8, 9),
                kClose);
  }
}

TEST_CASE("staircase stream: its state does not grow") {
  for (const auto& [name, config] : staircase_variants()) {
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
