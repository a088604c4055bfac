// States that go on from call to call (model.keep_state): what tests/models/test_every_model.cpp does not ask of every
// model. That calls equal one call and a stream, word for word and with gradients, and that rows begin anew, is there.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tests/models/recurrent_transformer/recurrent_transformer_case.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

constexpr double kKeptOrder = 1e-12;  // as in test_block_recurrence.cpp

ModelConfig keeping(const std::string& model, std::int64_t block) {
  ModelConfig config = small_config(model);
  config.block = block;
  config.layers = 3;
  config.keep_state = true;
  return config;
}

std::vector<std::string> keepers() {
  std::vector<std::string> names;
  for (const std::string& name : models_of("recurrent_transformer"))
    if (reads_key(small_config(name), "keep_state")) names.push_back(name);
  return names;
}

ForwardOutput call(const Model& model, const Tensor& tokens, const State& state = {},
                   std::int64_t block = 0) {
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = tokens;
  input.state = state;
  input.block = block;
  return model.forward(input);
}

}  // namespace

TEST_CASE("keep_state: a call without a state gives the bits of a model that keeps none") {
  for (const std::string& name : keepers()) {
    CAPTURE(name);
    const ModelConfig config = keeping(name, 5);
    ModelConfig plain = config;
    plain.keep_state = false;
    const auto keeps = random_model(config), none = random_model(plain);
    const Tensor tokens = random_ids(2, 20, config.vocab, 1), targets = random_ids(2, 20, config.vocab, 2);
    ForwardInput input;
    input.tokens = tokens;
    const Outcome mine = run(*keeps, input, targets), theirs = run(*none, input, targets);
    CHECK(same_bits(mine.logits, theirs.logits));
    for (const auto& [parameter, gradient] : theirs.gradients)
      CHECK_MESSAGE(same_bits(mine.gradients.at(parameter), gradient), parameter);
    CHECK(mine.state.size() == (name == "block_accumulate" ? 6 : 3));
    CHECK(theirs.state.empty());
  }
}

TEST_CASE("keep_state: a call that ends inside a block ends the block") {
  const auto model = random_model(keeping("block_forget", 5));
  const Tensor tokens = random_ids(2, 20, 11, 3);
  // Blocks of 5, 5 and 3, and the same cut in two calls.
  const ForwardOutput whole = call(*model, part(tokens, 0, 13)), first = call(*model, part(tokens, 0, 10)),
                      rest = call(*model, part(tokens, 10, 3), first.state);
  check_close("logits", rest.logits, part(whole.logits, 10, 3), kKeptOrder);
  check_states(rest.state, whole.state, kKeptOrder, 1e-13);
  CHECK(whole.state.get("layers.2.state").shape() == Shape{2, 3, 12});

  // The next call begins a block, whose past are these three rows.
  for (const std::int64_t time : {2, 5, 7}) {
    CAPTURE(time);
    ForwardInput input;
    input.tokens = part(tokens, 13, time);
    input.state = whole.state;
    input.start = Tensor::from(std::vector<std::int64_t>{0, 1}, {2, 1});
    const Tensor targets = random_ids(2, time, 11, 4);
    const Outcome fast = run(*model, input, targets);
    input.literal = true;
    check_outcomes(run(*model, input, targets), fast, kKeptOrder, 1e-13);
  }
  State state = whole.state;
  CHECK(contains(error_of<ShapeError>([&] { static_cast<void>(model->stream(part(tokens, 13, 1), state)); }),
                 "layers.0.state has shape [2, 3, 12] (here [2, 5, 12])"));
  check_states(state, whole.state, 0, 0);
}

TEST_CASE("keep_state: accumulate goes on from calls of whole blocks of one length") {
  const auto model = random_model(keeping("block_accumulate", 5));
  const Tensor tokens = random_ids(2, 13, 11, 5);
  CHECK(call(*model, tokens).state.empty());
  CHECK_NOTHROW(model->check_length(13, false));
  CHECK_NOTHROW(model->check_length(15, true));
  CHECK(contains(error_of<ValueError>([&] { model->check_length(13, true); }),
                 "13 tokens is not a whole number of blocks of 5"));
  const State state = call(*model, part(tokens, 0, 10)).state;
  CHECK(contains(error_of<ValueError>([&] { call(*model, tokens, state, 3); }),
                 "a call in blocks of 3 and a state of blocks of 5"));
  CHECK(call(*model, part(tokens, 0, 10), {}, 10).state.empty());
}

TEST_CASE("keep_state: accumulate adds by its factor in calls and streams alike") {
  for (const char* what : {"output", "hidden"}) {
    CAPTURE(what);
    ModelConfig config = keeping("block_accumulate", 3);
    config.accumulate = what;
    config.accumulate_factor = 0.3;
    const auto model = random_model(config);
    const Tensor tokens = random_ids(2, 15, 11, 9), targets = random_ids(2, 15, 11, 10);
    const ForwardOutput whole = call(*model, tokens), first = call(*model, part(tokens, 0, 6)),
                        rest = call(*model, part(tokens, 6, 9), first.state);
    check_close("calls", rest.logits, part(whole.logits, 6, 9), kKeptOrder);
    State state = first.state;
    for (std::int64_t at = 6; at < 15; ++at) {
      const Tensor logits = model->stream(part(tokens, at, 1), state);
      if ((at + 1) % 3 == 0) continue;  // the stream answers as if the sequence ended here
      const ForwardOutput until = call(*model, part(tokens, 0, at + 1));
      check_close("stream", logits, part(until.logits, at, 1), kKeptOrder);
    }
    ForwardInput input;
    input.tokens = tokens;
    const Outcome fast = run(*model, input, targets);
    input.literal = true;
    check_outcomes(run(*model, input, targets), fast, kKeptOrder, 1e-12);
    config.accumulate_factor = 0.5;
    CHECK(distance(call(*random_model(config), tokens).logits, whole.logits).error > 1e-3);
  }
}

TEST_CASE("keep_state: calls may have blocks of different lengths") {
  const auto model = random_model(keeping("block_forget", 5));
  const Tensor tokens = random_ids(2, 13, 11, 5);
  // One call of blocks of 7 and 6; a call of one block of 7, then one of 6.
  const ForwardOutput whole = call(*model, tokens, {}, 7), first = call(*model, part(tokens, 0, 7), {}, 7),
                      rest = call(*model, part(tokens, 7, 6), first.state, 6);
  check_close("first", first.logits, part(whole.logits, 0, 7), kKeptOrder);
  check_close("rest", rest.logits, part(whole.logits, 7, 6), kKeptOrder);
}

TEST_CASE("keep_state: with dropout a call that goes on draws masks of its own and repeats them") {
  for (const std::string& name : keepers()) {
    CAPTURE(name);
    ModelConfig config = keeping(name, 4);
    config.dropout = 0.4;
    const auto model = random_model(config);
    const State state = call(*model, random_ids(2, 8, 11, 6)).state;
    ForwardInput input;
    input.tokens = random_ids(2, 9, 11, 7);
    input.state = state;
    const Tensor targets = random_ids(2, 9, 11, 8);
    const Outcome plain = run(*model, input, targets);
    input.dropout = {true, 5, 17};
    const Outcome dropped = run(*model, input, targets);
    CHECK(distance(dropped.logits, plain.logits).error > 1e-3);
    check_outcomes(run(*model, input, targets), dropped, 0, 0);
    input.state = {};
    CHECK(distance(run(*model, input, targets).logits, dropped.logits).error > 1e-3);
  }
}

TEST_CASE("keep_state: a position table excludes it, and only for models that keep a state") {
  for (const std::string& name : models_of("recurrent_transformer")) {
    CAPTURE(name);
    ModelConfig config = small_config(name);
    config.keep_state = config.positions = true;
    if (reads_key(config, "keep_state"))
      CHECK(
          contains(error_of<ConfigError>([&] { validate(config); }), "model.keep_state and model.positions"));
    else
      CHECK_NOTHROW(validate(config));
  }
}
