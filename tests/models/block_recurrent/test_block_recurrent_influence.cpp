// What may influence what in the Block-Recurrent family: tokens, documents, states, and the paths of
// gradients.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/block_recurrent/attention.h"
#include "ops/pointwise/pointwise.h"
#include "tests/models/block_recurrent/block_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

ModelConfig one_layer(ModelConfig config) {
  config.layers = 1;
  if (!config.recurrent_layers.empty()) config.recurrent_layers = {0};
  if (!config.memory_layers.empty()) config.memory_layers = {0};
  return config;
}

// Whether the logits of position t differ in any bit, by t.
std::vector<bool> changed_positions(const Tensor& a, const Tensor& b) {
  std::vector<bool> changed;
  for (std::int64_t t = 0; t < a.dim(1); ++t)
    changed.push_back(!same_bits(raw::narrow(a, 1, t, 1), raw::narrow(b, 1, t, 1)));
  return changed;
}

Tensor with_token(const Tensor& tokens, std::int64_t position, std::int64_t id) {
  const Tensor changed = raw::copy(tokens);
  raw::fill(raw::narrow(changed, 1, position, 1), static_cast<double>(id));
  return changed;
}

// The size of the gradient that the logits from position `first` send to the embedding of the token at
// position 0. The table is also the head, so that token is one that stands nowhere else, and its column of
// the logits gets no cotangent: what arrives in its row came through position 0.
double gradient_at_first_token(Model& model, std::int64_t time, std::int64_t first) {
  const std::int64_t vocab = model.config().vocab, own = vocab - 1;
  const Tensor tokens = with_token(random_ids(1, time, own, 3), 0, own);
  model.params().zero_gradients();
  const ForwardOutput output = model.forward(input_of(tokens));
  std::vector<double> dy(static_cast<std::size_t>(time * vocab));
  const RandomKey key = random_key(1, "test.cotangent", 0);
  for (std::size_t i = 0; i < dy.size(); ++i)
    if (static_cast<std::int64_t>(i) / vocab >= first && static_cast<std::int64_t>(i) % vocab != own)
      dy[i] = static_cast<double>(uniform01(key.word(i))) - 0.5;
  backward(output.logits, Tensor::from(dy, {1, time, vocab}));
  double largest = 0;
  for (const double value : numbers(raw::select(grad(model.params().get("embed.weight").value), 0, own)))
    largest = std::max(largest, std::abs(value));
  return largest;
}

double largest_gradient(const Model& model, const std::string& name) {
  const Tensor gradient = grad(model.params().get(name).value);
  if (!gradient.defined()) return 0;
  double largest = 0;
  for (const double value : numbers(gradient)) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

TEST_CASE("block_recurrent: one sliding layer carries a token exactly one window far") {
  for (const bool literal : {false, true}) {
    const auto model = randomised(one_layer(block_recurrent_config("slide")));
    const Tensor tokens = random_ids(1, 32, 12, 1);
    ForwardInput input = input_of(tokens);
    input.literal = literal;
    const NoGrad no_grad;
    const Tensor before = model->forward(input).logits;
    for (const std::int64_t t : {0, 6, 14, 23}) {
      CAPTURE(t);
      input.tokens = with_token(tokens, t, 12);
      const auto changed = changed_positions(before, model->forward(input).logits);
      for (std::int64_t s = 0; s < 32; ++s)
        CHECK(changed[static_cast<std::size_t>(s)] == (s >= t && s <= t + 4));
    }
  }
}

TEST_CASE(
    "block_recurrent: a recurrent layer carries a token to every later block and no further in its own") {
  const auto model = randomised(one_layer(recurrent_config("fixed", "skip")));
  const Tensor tokens = random_ids(1, 32, 12, 1);
  const Tensor before = evaluate(*model, tokens).logits;
  // Token 5 stands in block 1: its block and the next see it as a token, up to 9; the states from block 2 on.
  const auto changed = changed_positions(before, evaluate(*model, with_token(tokens, 5, 12)).logits);
  for (std::size_t s = 0; s < 32; ++s) CHECK(changed[s] == (s >= 5));
}

TEST_CASE("block_recurrent: vanilla sees nothing of other segments") {
  const auto model = randomised(block_recurrent_config("vanilla"));
  const Tensor tokens = random_ids(1, 12, 12, 1);
  const auto changed =
      changed_positions(evaluate(*model, tokens).logits, evaluate(*model, with_token(tokens, 1, 12)).logits);
  for (std::size_t s = 0; s < 12; ++s) CHECK(changed[s] == (s >= 1 && s < 4));
  CHECK(evaluate(*model, tokens).state.empty());
}

TEST_CASE("block_recurrent: the zero keys before a document take their share of attention") {
  // With one allowed key, token 1 would give it all its weight; the zeros before the document leave it a
  // part.
  const auto model = randomised(one_layer(block_recurrent_config("slide")));
  const Tensor tokens = random_ids(1, 16, 13, 1);
  const auto cacheless = [&] {
    ModelConfig config = model->full_config();
    config.cache = false;
    return randomised(config);
  }();
  CHECK(distance(evaluate(*model, tokens).logits, evaluate(*cacheless, tokens).logits).error > 1e-2);
  // Behind the first window both see the same keys.
  check_close("rest", raw::narrow(evaluate(*model, tokens).logits, 1, 4, 12),
              raw::narrow(evaluate(*cacheless, tokens).logits, 1, 4, 12), 1e-12);
}

TEST_CASE("block_recurrent: another state changes the first logits unless it is cleared") {
  const Tensor tokens = random_ids(2, 16, 13, 1);
  for (const bool cleared : {false, true}) {
    ModelConfig config = recurrent_config("fixed", "dual");
    config.clear_state = cleared;
    const auto model = randomised(config);
    State state = copy_of(evaluate(*model, random_ids(2, 16, 13, 2)).state);
    const Tensor before = evaluate(*model, tokens, state).logits;
    const Tensor& own = state.get("layers.1.state");
    raw::add_into(raw::narrow(own, 2, 0, 1), Tensor::full({2, 3, 1}, 0.5, Dtype::f64));
    const Tensor after = evaluate(*model, tokens, state).logits;
    if (cleared)
      CHECK(same_bits(after, before));
    else
      CHECK(distance(raw::narrow(after, 1, 0, 1), raw::narrow(before, 1, 0, 1)).error > 1e-4);
  }
}

TEST_CASE("block_recurrent: the last block's gradient reaches the first token through the state alone") {
  // One layer, four blocks: attention reaches the next block, so only the state leads from block 3 to block
  // 0.
  for (const auto& [name, config] : block_recurrent_cases()) {
    if (config.model != "block_recurrent" || config.segment != 16 || config.window != 4) continue;
    CAPTURE(name);
    auto model = randomised(one_layer(config));
    CHECK(gradient_at_first_token(*model, 16, 12) > 1e-9);
  }
  auto slide = randomised(one_layer(block_recurrent_config("slide")));
  CHECK(gradient_at_first_token(*slide, 16, 12) == 0);
  CHECK(gradient_at_first_token(*slide, 16, 4) > 1e-9);
}

TEST_CASE("block_recurrent: the initial state gets a gradient when a document starts and only then") {
  for (const bool feedback : {false, true}) {
    auto model = randomised(recurrent_config("fixed", "skip", {1}, feedback));
    const Tensor tokens = random_ids(2, 16, 13, 1), targets = random_ids(2, 16, 13, 2);
    const State state = evaluate(*model, random_ids(2, 16, 13, 2)).state;
    const std::string name = "layers.1.recurrent.init_state";
    static_cast<void>(run(*model, input_of(tokens), targets));
    CHECK(largest_gradient(*model, name) > 1e-9);
    static_cast<void>(run(*model, input_of(tokens, state), targets));
    CHECK(largest_gradient(*model, name) == 0);
    static_cast<void>(run(*model, input_of(tokens, state, flags({0, 1}, 2)), targets));
    CHECK(largest_gradient(*model, name) > 1e-9);
  }
}

TEST_CASE("block_recurrent: the bias of distance 0 gets exactly no gradient and the others get one") {
  auto model = randomised(recurrent_config("fixed", "skip"));
  static_cast<void>(run(*model, input_of(random_ids(2, 16, 13, 1)), random_ids(2, 16, 13, 2)));
  for (const char* name : {"layers.0.attn.rel_bias", "layers.1.attn.rel_bias"}) {
    const std::vector<double> gradient = numbers(grad(model->params().get(name).value));
    for (std::size_t head = 0; head < 2; ++head)
      for (std::size_t bucket = 0; bucket < 32; ++bucket)
        CHECK((gradient[head * 32 + bucket] != 0) == (bucket >= 1 && bucket <= 4));
  }
}

TEST_CASE("block_recurrent: states that begin equal and have no IDs stay equal") {
  for (const auto& [name, config] : block_recurrent_cases()) {
    if (config.model != "block_recurrent" || config.recurrent_layers.size() != 1) continue;
    CAPTURE(name);
    const auto model = randomised(config);
    const Parameter& first = model->params().get("layers.1.recurrent.init_state");
    std::vector<double> values = numbers(first.value);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = values[i % 10];
    set_values(first, values);
    const Tensor tokens = random_ids(1, 16, 13, 1);
    const auto spread = [&] {
      const Tensor states = evaluate(*model, tokens).state.get("layers.1.state");
      return distance(raw::narrow(states, 1, config.states - 1, 1), raw::narrow(states, 1, 0, 1)).error;
    };
    if (config.states > 1) CHECK(spread() > 1e-3);
    const Parameter& ids = model->params().get("layers.1.recurrent.state_ids");
    set_values(ids, std::vector<double>(values.size(), 0.0));
    CHECK(spread() <= 1e-13);
  }
}

TEST_CASE("block_recurrent: cached keys are unit vectors with the qk norm and are not without") {
  for (const bool unit : {true, false}) {
    ModelConfig config = block_recurrent_config("slide");
    config.qk_norm = unit;
    const State state = evaluate(*randomised(config), random_ids(1, 16, 13, 1)).state;
    const std::vector<double> keys = numbers(state.get("layers.2.k"));
    double length = 0;
    for (std::size_t i = 0; i < 6; ++i) length += keys[i] * keys[i];
    CHECK((std::abs(length - 1) < 1e-5) == unit);
  }
}

TEST_CASE("block_recurrent: without the qk norm queries are divided by the root of the head size") {
  ModelConfig config = block_recurrent_config("slide");
  config.qk_norm = false;
  config.head_dim = 4;
  const HeadRules rules(part_of<block_recurrent::Config>(config));
  const Tensor x = raw::reshape(raw::cast(random_ids(6, 8, 13, 1), Dtype::f64), {2, 3, 8});
  CHECK(same_bits(rules.split_keys(x), raw::reshape(x, {2, 3, 2, 4})));
  CHECK(distance(rules.split_queries(x) * 2, raw::reshape(x, {2, 3, 2, 4})).error <= 1e-15);
}
