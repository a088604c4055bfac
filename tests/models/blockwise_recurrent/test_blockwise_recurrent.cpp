// Identities of the block-wise recurrent models, from section 11 of their specification: what is carried from
// call to call and what of it a row may ignore, how far a token reaches, and what a call refuses.
#include "models/blockwise_recurrent/blockwise_recurrent.h"

#include <doctest/doctest.h>

#include "tensor/base/error.h"
#include "tests/models/blockwise_recurrent/blockwise_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// The same f64 sums in another order, through a dozen dependent steps.
constexpr double kOrder = 1e-11;

Tensor flags(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size()), 1});
}

Tensor row(const Tensor& x, int axis, std::int64_t index) {
  return raw::copy(raw::narrow(x, axis, index, 1));
}

}  // namespace

TEST_CASE("memory_llama: the memory is taken before the output projection") {
  ModelConfig config = blockwise_config("memory_llama");
  config.layers = 1;
  const auto model = blockwise_model(config);
  const Tensor tokens = random_ids(2, 12, 11, 1);
  const Call before = call(*model, tokens);
  scale_parameter(*model, "layers.0.attn.wo.weight", 3);
  const Call after = call(*model, tokens);
  CHECK(same_bits(before.memory, after.memory));
  CHECK(distance(before.logits, after.logits).error > 1e-3);
}

TEST_CASE("memory_llama: a token moves no logits before it and all of its chunk's memory is in sight") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  const Tensor tokens = random_ids(1, 11, 11, 1), given = random_memory(model->full_config(), 1, 4);
  const Call whole = call(*model, tokens, memory_state(given));
  for (std::int64_t t = 0; t < 11; ++t) {
    CAPTURE(t);
    const Tensor changed = raw::copy(tokens);
    changed.mutable_data<std::int64_t>()[t] = (changed.data<std::int64_t>()[t] + 1) % 11;
    const Call other = call(*model, changed, memory_state(given));
    if (t > 0) CHECK(same_bits(part(other.logits, 0, t), part(whole.logits, 0, t)));
    for (std::int64_t later = t; later < 11; ++later)
      CHECK(distance(row(other.logits, 1, later), row(whole.logits, 1, later)).error > 1e-9);
  }
  for (std::int64_t memory_row = 0; memory_row < 4; ++memory_row) {
    const Tensor changed = raw::copy(given);
    changed.mutable_data<double>()[memory_row * 12] += 1;
    CHECK(distance(row(call(*model, tokens, memory_state(changed)).logits, 1, 0), row(whole.logits, 1, 0))
              .error > 1e-9);
  }
}

TEST_CASE("memory_llama: the query matrix of the memory has no influence and an absent gradient") {
  ModelConfig config = blockwise_config("memory_llama");
  config.memory_query = true;
  const auto model = blockwise_model(config);
  CHECK(model->params().get("layers.1.memory.wq.weight").shape == Shape{12, 12});
  ForwardInput input;
  input.tokens = random_ids(2, 12, 11, 1);
  const Outcome before = run(*model, input, random_ids(2, 12, 11, 2));
  scale_parameter(*model, "layers.0.memory.wq.weight", -5);
  const Outcome after = run(*model, input, random_ids(2, 12, 11, 2));
  CHECK(same_bits(before.logits, after.logits));
  for (const auto& [name, gradient] : before.gradients) {
    CAPTURE(name);
    if (name.ends_with("memory.wq.weight"))
      CHECK(!gradient.defined());
    else
      CHECK(same_bits(gradient, after.gradients.at(name)));
  }

  config.memory_qkv = "shared";  // there the query matrix of the memory is the layer's own
  CHECK(make_model(config)->params().find("layers.0.memory.wq.weight") == nullptr);
}

TEST_CASE("memory_llama: the initial memory gets the gradient of the rows that begin with it") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  const Tensor tokens = random_ids(3, 8, 11, 1), targets = random_ids(3, 8, 11, 2);
  ForwardInput input;
  input.tokens = tokens;
  input.state = memory_state(random_memory(model->full_config(), 3, 4));
  CHECK(!run(*model, input, targets).gradients.at("layers.0.memory.init").defined());
  input.start = flags({0, 1, 0});
  const Outcome one = run(*model, input, targets);
  ForwardInput alone;
  alone.tokens = row(tokens, 0, 1);
  const Outcome single = run(*model, alone, row(targets, 0, 1));
  const NoGrad no_grad;  // the mean over three rows instead of one
  check_close("init", one.gradients.at("layers.0.memory.init"),
              mul(single.gradients.at("layers.0.memory.init"), 1.0 / 3), kOrder);
}

TEST_CASE("memory_llama: a batch of another size begins anew") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  const Tensor tokens = random_ids(2, 8, 11, 1);
  const State carried = memory_state(random_memory(model->full_config(), 3, 4));
  CHECK(same_bits(call(*model, tokens, carried).logits, call(*model, tokens).logits));
}

TEST_CASE("memory_llama: one layer reaches back without a limit") {
  ModelConfig config = blockwise_config("memory_llama");
  config.layers = 1;
  const auto model = blockwise_model(config);
  const Tensor tokens = random_ids(1, 48, 11, 1), changed = raw::copy(tokens);
  changed.mutable_data<std::int64_t>()[0] = (changed.data<std::int64_t>()[0] + 1) % 11;
  CHECK(distance(row(call(*model, tokens).logits, 1, 47), row(call(*model, changed).logits, 1, 47)).error >
        1e-12);
}

TEST_CASE("llama_window: one layer reaches back to the window's edge exactly") {
  ModelConfig config = blockwise_config("llama_window");
  config.layers = 1;
  const auto model = blockwise_model(config);
  const Tensor tokens = random_ids(1, 12, 11, 1), changed = raw::copy(tokens);
  changed.mutable_data<std::int64_t>()[2] = (changed.data<std::int64_t>()[2] + 1) % 11;
  const Tensor before = call(*model, tokens).logits, after = call(*model, changed).logits;
  for (std::int64_t t = 0; t < 12; ++t) {
    CAPTURE(t);
    const double moved = distance(row(before, 1, t), row(after, 1, t)).error;
    if (t >= 2 && t < 2 + 5)
      CHECK(moved > 1e-9);
    else
      CHECK(moved == 0);
  }
}

TEST_CASE("llama_window: up to the window's length it is llama with the same weights") {
  const auto windowed = blockwise_model(blockwise_config("llama_window")),
             whole = blockwise_model(blockwise_config("llama"));
  const Tensor tokens = random_ids(2, 7, 11, 1);
  const Tensor a = call(*windowed, tokens).logits, b = call(*whole, tokens).logits;
  check_close("logits", part(a, 0, 5), part(b, 0, 5), kOrder);
  for (const std::int64_t t : {5, 6}) CHECK(distance(row(a, 1, t), row(b, 1, t)).error > 1e-6);
}

TEST_CASE("memory_llama: a partial last chunk leaves the memory of the last complete one") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  const Tensor tokens = random_ids(2, 8, 11, 1), given = random_memory(model->full_config(), 2, 4);
  const Call whole = call(*model, tokens, memory_state(given)),
             chunk = call(*model, part(tokens, 0, 4), memory_state(given));
  for (const bool literal : {false, true})
    for (const std::int64_t time : {5, 6, 7}) {
      CAPTURE(time);
      const Call some = call(*model, part(tokens, 0, time), memory_state(given), {}, literal);
      check_close("logits", some.logits, part(whole.logits, 0, time), kOrder);
      check_close("memory", some.memory, chunk.memory, kOrder);
    }
  for (const bool literal : {false, true}) {
    const Tensor three = part(tokens, 0, 3);
    CHECK(same_bits(call(*model, three, memory_state(given), {}, literal).memory, given));
    // A row that began anew within it goes on from the initial memory.
    const Call mixed = call(*model, three, memory_state(given), flags({0, 1}), literal),
               cold = call(*model, three, {}, {}, literal);
    CHECK(same_bits(row(mixed.memory, 1, 0), row(given, 1, 0)));
    CHECK(same_bits(row(mixed.memory, 1, 1), row(cold.memory, 1, 1)));
    CHECK(same_bits(raw::select(raw::select(cold.memory, 0, 1), 0, 1),
                    values_of(*model, "layers.1.memory.init")));
  }
}

TEST_CASE("memory_llama: training that carries its memory takes whole chunks only") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  ForwardInput input;
  input.tokens = random_ids(2, 6, 11, 1);
  input.dropout.training = true;
  CHECK_NOTHROW(static_cast<void>(model->forward(input)));  // nothing is carried in
  input.state = memory_state(random_memory(model->full_config(), 2, 4));
  const std::string text = error_of<ValueError>([&] { model->forward(input); });
  CHECK(contains(text, "segments of 6 tokens in chunks of 4"));
  CHECK(contains(text, "last 2"));
  input.dropout.training = false;
  CHECK_NOTHROW(static_cast<void>(model->forward(input)));
}
