// What every model refuses: tokens that are no batch of sequences of its ids, more tokens than its context has
// room for, and states and start flags that are not its own. A refused call leaves the state as it was.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/eddy/config.h"
#include "tests/models/every_model.h"

using namespace eddy;
using namespace eddy::test;

namespace {

void check_unchanged(const State& state, const State& before) {
  REQUIRE(state.size() == before.size());
  for (const auto& [name, tensor] : before) CHECK_MESSAGE(same_bits(state.get(name), tensor), name);
}

// The text with which a stream refuses tokens. Its state stays as it was.
template <class E>
std::string refused_stream(const Model& model, const Tensor& tokens, const State& given) {
  State state = copy_of(given);
  const std::string text = error_of<E>([&] { static_cast<void>(model.stream(tokens, state)); });
  check_unchanged(state, given);
  return text;
}

// The texts with which a model refuses tokens: both forms, a stream that begins and one that goes on.
template <class E>
std::vector<std::string> refused(const Model& model, const Tensor& tokens, const State& begun) {
  std::vector<std::string> texts;
  for (const bool literal : {false, true}) {
    ForwardInput input;
    input.tokens = tokens;
    input.literal = literal;
    input.tail = 1;
    texts.push_back(error_of<E>([&] { model.forward(input); }));
  }
  for (const State& state : {State(), begun}) texts.push_back(refused_stream<E>(model, tokens, state));
  return texts;
}

template <class E>
void check_refused(const Model& model, const Tensor& tokens, const State& begun, const std::string& part) {
  for (const std::string& text : refused<E>(model, tokens, begun)) {
    CAPTURE(text);
    CHECK(contains(text, part));
  }
}

State stream_of(const Model& model, std::int64_t batch, std::int64_t length) {
  State state;
  static_cast<void>(model.stream(random_ids(batch, length, model.config().vocab, 4), state));
  return state;
}

// The state with one tensor in place of another.
State with(const State& state, const std::string& name, const Tensor& tensor) {
  State changed = copy_of(state);
  changed.set(name, tensor);
  return changed;
}

std::string problem(const auto& call, const State& state) {
  return error_of<Error>([&] { call(copy_of(state)); });
}

// Checks that `call` takes `good` and refuses it with any one of its tensors missing, renamed, of another width
// or of another dtype, and with one tensor more.
void check_states_refused(const State& good, const auto& call) {
  CHECK(problem(call, good).empty());
  CHECK(contains(problem(call, with(good, "more", Tensor::zeros({1}, Dtype::f64))), "holds more"));
  for (const auto& [name, tensor] : good) {
    CAPTURE(name);
    State renamed = copy_of(good);
    renamed.erase(name);
    // What a cached staircase has finished may be missing, and no state at all begins a sequence.
    if (!name.ends_with("done") && !renamed.empty()) CHECK(!problem(call, renamed).empty());
    renamed.set(name + "_", tensor);
    const std::string text = problem(call, renamed);
    CHECK(!text.empty());
    if (!is_floating(tensor.dtype())) {
      const Tensor negative = Tensor::full(tensor.shape(), -3, Dtype::i64);
      const std::string refusal = problem(call, with(good, name, negative));
      CHECK(contains(refusal, "-3"));
      CHECK(contains(refusal, name));
      continue;
    }
    CHECK(contains(text, name));
    const int last = tensor.rank() - 1;
    const Tensor narrower = raw::copy(raw::narrow(tensor, last, 0, tensor.dim(last) - 1));
    CHECK(contains(problem(call, with(good, name, narrower)), name));
    CHECK(contains(problem(call, with(good, name, raw::cast(tensor, Dtype::f32))), name + " is f32"));
  }
}

}  // namespace

TEST_CASE("model refusals: tokens that are no batch of sequences of ids are refused and move no state") {
  for_every_model([](const ModelConfig& config, Model& model) {
    const State begun = stream_of(model, 2, 3);
    for (const Tensor& tokens :
         {Tensor(), Tensor::zeros({4}, Dtype::i64), Tensor::zeros({2, 3, 4}, Dtype::i64)})
      check_refused<ShapeError>(model, tokens, begun, config.model + ": tokens have shape");
    for (const Shape& shape : {Shape{0, 4}, Shape{2, 0}})
      check_refused<ShapeError>(model, Tensor::zeros(shape, Dtype::i64), begun, config.model + ": no tokens");
    const std::int64_t time = call_time(config);
    for (const std::int64_t wrong : {std::int64_t{-1}, config.vocab, std::int64_t{1} << 40}) {
      const Tensor tokens = random_ids(2, time, config.vocab, 4);
      tokens.mutable_data<std::int64_t>()[time + 1] = wrong;
      check_refused<ValueError>(model, tokens, begun, std::to_string(wrong));
    }
    check_refused<DtypeError>(model, Tensor::zeros({2, time}, Dtype::f64), begun, "f64");
    CHECK(contains(refused_stream<ShapeError>(model, random_ids(3, 1, config.vocab, 4), begun),
                   "3 rows of tokens and a st"));
  });
}

TEST_CASE("model refusals: a stream stops when its context is full") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const auto ids = [&](std::int64_t count) { return random_ids(2, count, config.vocab, 4); };
    State state;
    if (model.remaining_context(state) == -1) {
      for (int i = 0; i < 5; ++i) static_cast<void>(model.stream(ids(20), state));
      CHECK(model.remaining_context(state) == -1);
      return;
    }
    CHECK(model.remaining_context(state) == config.context);
    static_cast<void>(model.stream(ids(config.context - 2), state));
    for (const std::int64_t remaining : {2, 0}) {
      CHECK(model.remaining_context(state) == remaining);
      const std::string text = refused_stream<ValueError>(model, ids(remaining + 1), state);
      CHECK(contains(text, std::to_string(config.context + 1) + " positions"));
      CHECK(contains(text, "context"));
      if (remaining > 0) static_cast<void>(model.stream(ids(remaining), state));
    }
  });
}

TEST_CASE("model refusals: a sequence longer than the position table is refused") {
  for_every_case([](const ModelConfig& config, Model& model) {
    if (!reads_key(config, "positions") || !config.positions) return;
    for (const bool literal : {false, true}) {
      ForwardInput input = input_for(config, random_ids(1, config.context, config.vocab, 4));
      input.literal = literal;
      CHECK_NOTHROW(model.forward(input));
      input.tokens = random_ids(1, config.context + 1, config.vocab, 4);
      const std::string text = error_of<ValueError>([&] { model.forward(input); });
      CHECK(contains(text, std::to_string(config.context + 1) + " positions"));
      CHECK(contains(text, "context"));
    }
  });
}

TEST_CASE("model refusals: a call goes on from a state of its own and from no other") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const Tensor tokens = random_ids(2, call_time(config), config.vocab, 5);
    for (const bool literal : {false, true}) {
      CAPTURE(literal);
      const auto call = [&](const State& state) {
        const NoGrad no_grad;
        ForwardInput input = input_for(config, tokens, state);
        input.literal = literal;
        model.forward(input);
      };
      const State good = carried_state(model, 2);
      if (good.empty() && config.model != "cached_staircase") {
        State foreign;
        foreign.set("h", Tensor::zeros({2, 12}, Dtype::f64));
        CHECK(contains(error_of<ValueError>([&] { call(foreign); }), "carries none"));
        continue;
      }
      check_states_refused(good, call);
      if (!family_case(config).forgets_other_rows())
        CHECK(!error_of<ShapeError>([&] { call(carried_state(model, 3)); }).empty());
    }
  });
}

TEST_CASE("model refusals: a stream goes on from a state of its own and from no other") {
  for_every_model([](const ModelConfig& config, Model& model) {
    for (const std::int64_t length : {1, 3, 4, 9}) {  // inside, at the end of, and behind blocks
      CAPTURE(length);
      const Tensor next = random_ids(2, 1, config.vocab, 5);
      check_states_refused(stream_of(model, 2, length),
                           [&](State state) { static_cast<void>(model.stream(next, state)); });
    }
  });
}

TEST_CASE("model refusals: a call does not go on inside a block of a stream") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const auto [tokens, inside] = family_case(config).stream_cut(config);
    if (carried_state(model, 1).empty() || tokens == 1) return;
    State state = stream_of(model, 2, 1);
    const Tensor next = random_ids(2, call_time(config), config.vocab, 5);
    CHECK(contains(error_of<ValueError>([&] { forwarded(model, next, state); }), inside));
    static_cast<void>(model.stream(random_ids(2, tokens - 1, config.vocab, 5), state));
    if (config.carry == "official") return;  // its segments have several chunks
    CHECK_NOTHROW(forwarded(model, next, state));
  });
}

TEST_CASE("model refusals: start flags of other sizes and values and dtypes are refused") {
  for_every_model([](const ModelConfig& config, Model& model) {
    const State state = carried_state(model, 2);
    if (state.empty()) return;
    const Tensor tokens = random_ids(2, call_time(config), config.vocab, 5);
    const std::int64_t segments = model.segments(call_time(config));
    const auto start = [&](const Tensor& flags) { forwarded(model, tokens, state, flags); };
    CHECK_NOTHROW(start(Tensor::zeros({2, segments}, Dtype::i64)));
    CHECK(contains(error_of<ShapeError>([&] {
                     start(Tensor::zeros({2, segments + 1}, Dtype::i64));
                   }),
                   fmt::format("[2, {}] (here [2, {}]", segments + 1, segments)));
    const Tensor flags = Tensor::zeros({2, segments}, Dtype::i64);
    flags.mutable_data<std::int64_t>()[segments] = 3;
    CHECK(contains(error_of<ValueError>([&] { start(flags); }), "start of row 1 is 3"));
    CHECK(contains(error_of<DtypeError>([&] { start(Tensor::zeros({2, segments})); }), "start is f32"));
  });
}
