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

TEST_CASE("memory_llama: with detach chunk the gradients are the mean of two segments of one chunk") {
  ModelConfig config = blockwise_config("memory_llama");
  config.detach = "chunk";
  const auto cut = blockwise_model(config);
  config.detach = "segment";
  const auto whole = blockwise_model(config);
  const Tensor tokens = random_ids(2, 8, 11, 1), targets = random_ids(2, 8, 11, 2);
  ForwardInput input;
  input.tokens = tokens;
  const Outcome both = run(*cut, input, targets), through = run(*whole, input, targets);
  check_close("logits", both.logits, through.logits, 1e-14);

  input.tokens = part(tokens, 0, 4);
  const Outcome first = run(*whole, input, part(targets, 0, 4));
  input.state = memory_state(call(*whole, input.tokens).memory);
  input.tokens = part(tokens, 4, 4);
  const Outcome second = run(*whole, input, part(targets, 4, 4));
  const NoGrad no_grad;
  for (const auto& [name, gradient] : both.gradients) {
    CAPTURE(name);
    Tensor mean = mul(first.gradients.at(name), 0.5);
    if (second.gradients.at(name).defined()) mean = mean + mul(second.gradients.at(name), 0.5);
    check_close(name, gradient, mean, kOrder);
    if (name.find("layers.0.attn.w") != std::string::npos && !name.ends_with("wo.weight"))
      CHECK(distance(through.gradients.at(name), mean).error > 1e-6);
  }
}

TEST_CASE("memory_llama: a flagged row begins with the initial memory and its neighbours do not") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  const Tensor tokens = random_ids(3, 8, 11, 1), targets = random_ids(3, 8, 11, 2);
  const State carried = memory_state(random_memory(model->full_config(), 3, 4));
  const Call fresh = call(*model, tokens), old = call(*model, tokens, carried),
             mixed = call(*model, tokens, carried, flags({0, 1, 0}));
  for (const std::int64_t b : {0, 1, 2}) {
    CAPTURE(b);
    const Call& expected = b == 1 ? fresh : old;
    check_close("logits", row(mixed.logits, 0, b), row(expected.logits, 0, b), kOrder);
    check_close("memory", row(mixed.memory, 1, b), row(expected.memory, 1, b), kOrder);
  }
  CHECK(distance(fresh.logits, old.logits).error > 1e-3);
  CHECK(same_bits(call(*model, tokens, carried, flags({0, 0, 0})).logits, old.logits));
  check_close("all", call(*model, tokens, carried, flags({1, 1, 1})).logits, fresh.logits, kOrder);
  // Without a state there is nothing to go on from, whatever the flags say.
  CHECK(same_bits(call(*model, tokens, {}, flags({0, 1, 0})).logits, fresh.logits));

  ForwardInput input;
  input.tokens = tokens;
  input.state = carried;
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

TEST_CASE("memory_llama: permuted rows give permuted logits and memories") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  const Tensor tokens = random_ids(3, 8, 11, 1), given = random_memory(model->full_config(), 3, 4);
  const std::int64_t order[] = {2, 0, 1};
  const Tensor mixed_tokens = raw::copy(tokens), mixed_memory = raw::copy(given);
  for (std::int64_t b = 0; b < 3; ++b) {
    raw::copy_into(raw::narrow(mixed_tokens, 0, b, 1), raw::narrow(tokens, 0, order[b], 1));
    raw::copy_into(raw::narrow(mixed_memory, 1, b, 1), raw::narrow(given, 1, order[b], 1));
  }
  const Call straight = call(*model, tokens, memory_state(given)),
             mixed = call(*model, mixed_tokens, memory_state(mixed_memory));
  for (std::int64_t b = 0; b < 3; ++b) {
    check_close("logits", row(mixed.logits, 0, b), row(straight.logits, 0, order[b]), kOrder);
    check_close("memory", row(mixed.memory, 1, b), row(straight.memory, 1, order[b]), kOrder);
  }
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

TEST_CASE("memory_llama: a state or a start that does not fit is refused") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  ForwardInput input;
  input.tokens = random_ids(2, 8, 11, 1);
  const auto message = [&]<class E>(E*) { return error_of<E>([&] { model->forward(input); }); };

  ModelConfig other = model->full_config();
  other.chunk = 5;
  input.state = memory_state(random_memory(other, 2, 4));
  CHECK(contains(message(static_cast<ShapeError*>(nullptr)), "[2, 2, 5, 12] (here [2, 2, 4, 12])"));
  input.state = memory_state(raw::cast(random_memory(model->full_config(), 2, 4), Dtype::f32));
  CHECK(contains(message(static_cast<DtypeError*>(nullptr)), "memory is f32 and the model f64"));
  input.state = State();
  input.state.set("keys", Tensor::zeros({1}));
  CHECK(contains(message(static_cast<ValueError*>(nullptr)), "memory"));

  input.state = memory_state(random_memory(model->full_config(), 2, 4));
  input.start = Tensor::from(std::vector<std::int64_t>{0, 1, 0, 1}, {2, 2});
  CHECK(contains(message(static_cast<ShapeError*>(nullptr)), "[2, 2] (here [2, 1]"));
  input.start = flags({0, 3});
  CHECK(contains(message(static_cast<ValueError*>(nullptr)), "start of row 1 is 3"));
  input.start = Tensor::zeros({2, 1});
  CHECK(contains(message(static_cast<DtypeError*>(nullptr)), "start is f32"));

  const auto causal = blockwise_model(blockwise_config("llama"));
  ForwardInput stateful;
  stateful.tokens = input.tokens;
  stateful.state = input.state;
  CHECK(contains(error_of<ValueError>([&] { causal->forward(stateful); }), "llama: a state"));
}

TEST_CASE("blockwise_recurrent: tokens that are no batch of sequences are refused") {
  for (const std::string& name : models_of("blockwise_recurrent")) {
    CAPTURE(name);
    const auto model = blockwise_model(blockwise_config(name));
    ForwardInput input;
    CHECK(contains(error_of<ShapeError>([&] { model->forward(input); }), "none"));
    input.tokens = Tensor::zeros({4}, Dtype::i64);
    CHECK(contains(error_of<ShapeError>([&] { model->forward(input); }), "[batch, time]"));
    input.tokens = Tensor::zeros({2, 0}, Dtype::i64);
    CHECK(contains(error_of<ShapeError>([&] { model->forward(input); }), "at least one row of one token"));
    input.tokens = Tensor::full({1, 3}, 11, Dtype::i64);
    CHECK(!error_of<ValueError>([&] { model->forward(input); }).empty());
  }
}

TEST_CASE("blockwise_recurrent: f32 stays close to f64 and gives the same bits twice") {
  for (const std::string& name : models_of("blockwise_recurrent")) {
    CAPTURE(name);
    const auto f64 = blockwise_model(blockwise_config(name)),
               f32 = blockwise_model(blockwise_config(name), Dtype::f32);
    const Tensor tokens = random_ids(2, 14, 11, 1);
    const Tensor logits = call(*f32, tokens).logits;
    CHECK(same_bits(logits, call(*f32, tokens).logits));
    check_close("logits", logits, call(*f64, tokens).logits, 1e-4);
  }
}
