// Streaming of the block-wise recurrent models: equal to whole sequences wherever a call ends, from a state
// that does not grow and that can be put away and taken up again.
#include <doctest/doctest.h>

#include <map>

#include "tensor/base/error.h"
#include "tests/models/blockwise_recurrent/blockwise_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

constexpr double kOrder = 1e-11;

// The logits of `tokens` in calls of the given lengths; the last length is used until the tokens end.
Tensor streamed(const Model& model, const Tensor& tokens, const std::vector<std::int64_t>& lengths,
                State& state) {
  const Tensor logits = Tensor::zeros({tokens.dim(0), tokens.dim(1), model.config().n_out}, Dtype::f64);
  std::size_t next = 0;
  for (std::int64_t at = 0; at < tokens.dim(1);) {
    const std::int64_t length = std::min(lengths[next], tokens.dim(1) - at);
    raw::copy_into(raw::narrow(logits, 1, at, length),
                   raw::cast(model.stream(part(tokens, at, length), state), Dtype::f64));
    at += length;
    if (next + 1 < lengths.size()) ++next;
  }
  return logits;
}

State copied(const State& state) {
  std::map<std::string, Tensor> entries;
  for (const auto& [name, tensor] : state) entries.emplace(name, raw::copy(tensor));
  return State::from_map(entries);
}

}  // namespace

TEST_CASE("memory_llama stream: all switches give the numbers of the whole sequence") {
  for (int bits = 0; bits < 16; ++bits) {
    CAPTURE(bits);
    ModelConfig config = blockwise_config("memory_llama");
    config.memory_qkv = (bits & 1) != 0 ? "shared" : "separate";
    config.memory_init = (bits & 2) != 0 ? "zero" : "learned";
    config.memory_proj = (bits & 4) != 0;
    config.memory_ffn = (bits & 8) == 0;
    config.chunk = bits % 3 + 1;
    const auto model = blockwise_model(config);
    const Tensor tokens = random_ids(2, 10, 11, 1);
    State state;
    check_close("logits", streamed(*model, tokens, {3, 1}, state), call(*model, tokens).logits, kOrder);
  }
}

TEST_CASE("blockwise_recurrent stream: a state put away inside a chunk goes on later and twice") {
  for (const std::string& name : models_of("blockwise_recurrent"))
    for (const std::int64_t stop : {1, 3, 4, 6, 13}) {
      CAPTURE(name);
      CAPTURE(stop);
      const auto model = blockwise_model(blockwise_config(name));
      const Tensor tokens = random_ids(2, 20, 11, 1);
      const Tensor whole = part(call(*model, tokens).logits, stop, 20 - stop);
      State state;
      static_cast<void>(streamed(*model, part(tokens, 0, stop), {1}, state));
      State first = copied(state), second = state;
      const Tensor rest = part(tokens, stop, 20 - stop);
      check_close("first", streamed(*model, rest, {1}, first), whole, kOrder);
      check_close("second", streamed(*model, rest, {20}, second), whole, kOrder);
      check_close("third", streamed(*model, rest, {2}, state), whole, kOrder);
    }
}

TEST_CASE("memory_llama stream: it goes on from a forward and a forward goes on from it") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  const Tensor tokens = random_ids(2, 20, 11, 1);
  const Call whole = call(*model, tokens), prompt = call(*model, part(tokens, 0, 8));

  State state = memory_state(prompt.memory);
  const Tensor kept = raw::copy(prompt.memory);
  check_close("stream", streamed(*model, part(tokens, 8, 4), {1}, state), part(whole.logits, 8, 4), kOrder);
  CHECK(same_bits(prompt.memory, kept));  // what forward gave is not written over
  check_close("forward", call(*model, part(tokens, 12, 8), state).logits, part(whole.logits, 12, 8), kOrder);

  static_cast<void>(model->stream(part(tokens, 12, 3), state));
  const std::string text = error_of<ValueError>([&] { call(*model, part(tokens, 15, 4), state); });
  CHECK(contains(text, "3 tokens into a chunk of 4"));
}

TEST_CASE(
    "memory_llama stream: a forward from a state has its backward after streaming from the same state") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  const Tensor tokens = random_ids(2, 4, 11, 1), targets = random_ids(2, 4, 11, 2);
  State state;
  static_cast<void>(model->stream(tokens, state));
  ForwardInput input;
  input.tokens = tokens;
  input.state = copied(state);
  const Outcome alone = run(*model, input, targets);
  input.state = state;
  model->params().zero_gradients();
  const Tensor loss = cross_entropy(model->forward(input).logits, targets);
  input.state = State();
  static_cast<void>(model->stream(tokens, state));
  backward(loss);
  for (const Parameter& parameter : model->params().parameters())
    if (grad(parameter.value).defined())
      check_close(parameter.name, grad(parameter.value), alone.gradients.at(parameter.name), 1e-14);
}

TEST_CASE("memory_llama stream: the state has the published size and does not grow") {
  ModelConfig config;
  config.family = "blockwise_recurrent";
  config.model = "memory_llama";
  config.vocab = 11;
  config.dim = 288;
  config.mlp_dim = 4;
  config.layers = 2;
  const auto model = make_model(config);
  model->params().initialize(1);
  State state;
  CHECK(model->stream_room(state) == -1);
  for (const std::int64_t length : {1, 31, 40, 64}) {
    static_cast<void>(model->stream(random_ids(1, length, 11, 1), state));
    CHECK(state.bytes() == 2 * 46'080 * 4 + 8);
  }
  CHECK(model->stream_room(state) == -1);
}

TEST_CASE("llama stream: it stops when its context is full and the windowed one does not") {
  const auto model = blockwise_model(blockwise_config("llama"));
  State state;
  CHECK(model->stream_room(state) == 40);
  static_cast<void>(model->stream(random_ids(2, 38, 11, 4), state));
  CHECK(model->stream_room(state) == 2);
  CHECK(contains(error_of<ValueError>([&] { model->stream(random_ids(2, 3, 11, 4), state); }), "context"));
  CHECK(model->stream_room(state) == 2);  // the refused call has not moved the state
  static_cast<void>(model->stream(random_ids(2, 2, 11, 4), state));
  CHECK(model->stream_room(state) == 0);

  const auto endless = blockwise_model(blockwise_config("llama_window"));
  State ring;
  static_cast<void>(endless->stream(random_ids(1, 3, 11, 4), ring));
  const std::int64_t bytes = ring.bytes();
  for (int i = 0; i < 9; ++i) static_cast<void>(endless->stream(random_ids(1, 13, 11, 4), ring));
  CHECK(endless->stream_room(ring) == -1);
  CHECK(ring.bytes() == bytes);
}

TEST_CASE("blockwise_recurrent stream: what does not fit is refused and moves nothing") {
  for (const std::string& name : models_of("blockwise_recurrent")) {
    CAPTURE(name);
    const auto model = blockwise_model(blockwise_config(name));
    State state;
    static_cast<void>(model->stream(random_ids(2, 3, 11, 4), state));
    const State before = copied(state);
    CHECK(contains(error_of<ShapeError>([&] { model->stream(random_ids(3, 1, 11, 4), state); }),
                   "3 rows of tokens and a state of 2 rows"));
    CHECK(!error_of<ValueError>([&] { model->stream(Tensor::full({2, 2}, 11, Dtype::i64), state); }).empty());
    for (const auto& [part, tensor] : before) CHECK(same_bits(state.get(part), tensor));

    State broken = copied(state);
    broken.set("filled", Tensor::from(std::vector<std::int64_t>{999}, {1}));
    CHECK(contains(error_of<ValueError>([&] { model->stream(random_ids(2, 1, 11, 4), broken); }), "filled"));
    broken = copied(state);
    broken.set("keys", Tensor::zeros({3, 2, 8, 1, 4}, Dtype::f64));
    CHECK(contains(error_of<ShapeError>([&] { model->stream(random_ids(2, 1, 11, 4), broken); }), "keys"));
    broken = copied(state);
    broken.set("values", raw::cast(state.get("values"), Dtype::f32));
    CHECK(contains(error_of<DtypeError>([&] { model->stream(random_ids(2, 1, 11, 4), broken); }), "values"));
    broken = copied(state);
    broken.erase("values");
    CHECK(contains(error_of<ValueError>([&] { model->stream(random_ids(2, 1, 11, 4), broken); }), "values"));
  }
}
