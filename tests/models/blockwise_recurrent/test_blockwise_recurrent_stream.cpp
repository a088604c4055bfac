// Streaming of the block-wise recurrent models: the size of its state, and gradients of a call
// whose state goes on in a stream.
#include <doctest/doctest.h>

#include <map>

#include "autograd/tape.h"
#include "tensor/base/error.h"
#include "tests/models/blockwise_recurrent/blockwise_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

State copied(const State& state) {
  std::map<std::string, Tensor> entries;
  for (const auto& [name, tensor] : state) entries.emplace(name, raw::copy(tensor));
  return State::from_map(entries);
}

}  // namespace

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
  CHECK(model->remaining_context(state) == -1);
  for (const std::int64_t length : {1, 31, 40, 64}) {
    static_cast<void>(model->stream(random_ids(1, length, 11, 1), state));
    CHECK(state.bytes() == 2 * 46'080 * 4 + 8);
  }
  CHECK(model->remaining_context(state) == -1);
}

TEST_CASE("blockwise_recurrent stream: more rows than the cache has are refused") {
  for (const std::string& name : models_of("blockwise_recurrent")) {
    CAPTURE(name);
    const auto model = blockwise_model(blockwise_config(name));
    State broken;
    static_cast<void>(model->stream(random_ids(2, 3, 11, 4), broken));
    broken.set("filled", Tensor::from(std::vector<std::int64_t>{999}, {1}));
    CHECK(contains(error_of<ValueError>([&] { model->stream(random_ids(2, 1, 11, 4), broken); }), "filled"));
  }
}

TEST_CASE("llama stream: it goes on beyond model.context with the logits of the whole sequence") {
  ModelConfig config = blockwise_config("llama");
  config.context = 8;
  const auto model = blockwise_model(config);
  const Tensor tokens = random_ids(2, 21, 11, 7);
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = tokens;
  const Tensor whole = model->forward(input).logits;
  State state;
  std::int64_t at = 0;
  for (const std::int64_t length : {5, 3, 1, 12}) {
    const Tensor logits = model->stream(raw::contiguous(raw::narrow(tokens, 1, at, length)), state);
    check_close("logits", logits, raw::contiguous(raw::narrow(whole, 1, at, length)), 1e-12);
    at += length;
    CHECK(model->remaining_context(state) == -1);
  }
  // One made for measuring takes the next token as the one that was read.
  State longer = *model->stream_after(state, 30);
  CHECK(model->stream(random_ids(2, 1, 11, 8), longer).dim(1) == 1);
  CHECK(longer.count("position") == 31);
  CHECK(state.count("position") == 21);
}
