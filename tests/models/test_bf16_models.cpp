// Models in bf16: what is f32 and what is not, agreement with f32, and rounded copies that follow their
// parameters.
#include <doctest/doctest.h>

#include "models/optimizer/adam.h"
#include "tensor/base/error.h"
#include "tests/models/bf16_models.h"
#include "train/config/run_config.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

Tensor tokens_of(const Model& model, std::int64_t batch, std::int64_t time) {
  return bf16_tokens(batch, time, model.config().vocab, 77);
}

std::unique_ptr<Model> model_in(const ModelConfig& config, Dtype dtype) {
  auto model = make_model(config, dtype);
  model->params().initialize(3);
  return model;
}

}  // namespace

TEST_CASE("bf16: logits and what layers read of a state are bf16 and parameters with their gradients f32") {
  for (const ModelConfig& config : bf16_configs()) {
    CAPTURE(config.model);
    const auto model = model_in(config, Dtype::bf16);
    CHECK(model->params().activations() == Dtype::bf16);
    CHECK(model->params().values().dtype() == Dtype::f32);
    ForwardInput input;
    input.tokens = tokens_of(*model, 2, 16);
    const ForwardOutput output = model->forward(input);
    CHECK(output.logits.dtype() == Dtype::bf16);
    for (const auto& [name, tensor] : output.state) {
      CAPTURE(name);
      const bool read = name.ends_with(".k") || name.ends_with(".v") || name.starts_with("act.");
      CHECK((!is_floating(tensor.dtype()) || tensor.dtype() == (read ? Dtype::bf16 : Dtype::f32)));
    }
    const Tensor loss = cross_entropy(output.logits, tokens_of(*model, 2, 16));
    CHECK(loss.dtype() == Dtype::f32);
    backward(loss);
    for (const Parameter& parameter : model->params().parameters())
      if (const Tensor gradient = grad(parameter.value); gradient.defined())
        CHECK(gradient.dtype() == Dtype::f32);
  }
}

// Each activation is off by some 2^-9 of its size; a model of two layers adds up tens of them.
TEST_CASE("bf16: logits and gradients and states are near those of f32") {
  for (const ModelConfig& config : bf16_configs()) {
    CAPTURE(config.model);
    Tensor logits[2], arenas[2];
    State states[2];
    for (const int narrow : {0, 1}) {
      const auto model = model_in(config, narrow == 1 ? Dtype::bf16 : Dtype::f32);
      ForwardInput input;
      input.tokens = tokens_of(*model, 3, 16);
      const ForwardOutput output = model->forward(input);
      logits[narrow] = detach(output.logits);
      backward(cross_entropy(output.logits, bf16_tokens(3, 16, model->config().vocab, 78)));
      model->params().zero_missing_gradients();
      arenas[narrow] = raw::copy(model->params().gradients());
      states[narrow] = output.state;
    }
    // An entry of a memory that is as near as another may be taken instead of it.
    const double bound = config.model == "memorizing" ? 0.2 : 0.05;
    check_close("logits", logits[1], logits[0], bound);
    check_close("gradients", arenas[1], arenas[0], 2 * bound);
    CHECK(distance(logits[1], logits[0]).error > 0);
    for (const auto& [name, tensor] : states[0])
      if (is_floating(tensor.dtype())) check_close(name, states[1].get(name), tensor, bound);
  }
}

TEST_CASE("bf16: a stream gives nearly the logits of a whole sequence in any portions") {
  for (const ModelConfig& config : bf16_configs()) {
    if (config.model == "block_accumulate") continue;  // answers as if each block were the last
    CAPTURE(config.model);
    const auto model = model_in(config, Dtype::bf16);
    ForwardInput input;
    input.tokens = tokens_of(*model, 2, 16);
    const Tensor whole = detach(model->forward(input).logits);
    State state;
    std::int64_t at = 0;
    for (const std::int64_t length : {1, 4, 3, 8}) {
      const Tensor part = model->stream(raw::contiguous(raw::narrow(input.tokens, 1, at, length)), state);
      CHECK(part.dtype() == Dtype::bf16);
      check_close("logits", part, raw::narrow(whole, 1, at, length),
                  config.model == "memorizing" ? 0.2 : 0.05);
      at += length;
    }
  }
}

TEST_CASE("bf16: a state goes on in f32 and one of f32 in bf16") {
  for (const ModelConfig& config : bf16_configs()) {
    CAPTURE(config.model);
    State carried[2];
    for (const int narrow : {0, 1}) {
      const auto model = model_in(config, narrow == 1 ? Dtype::bf16 : Dtype::f32);
      ForwardInput input;
      input.tokens = tokens_of(*model, 2, 8);
      carried[narrow] = model->forward(input).state.detach();
    }
    for (const int narrow : {0, 1}) {
      const auto model = model_in(config, narrow == 1 ? Dtype::bf16 : Dtype::f32);
      ForwardInput input;
      input.tokens = tokens_of(*model, 2, 8);
      input.state = carried[1 - narrow];
      CHECK(all_finite(model->forward(input).logits));
    }
  }
}

TEST_CASE("bf16: products follow the parameters through every write") {
  const ModelConfig config = bf16_configs()[3];
  const auto model = model_in(config, Dtype::bf16), other = make_model(config, Dtype::bf16);
  other->params().initialize(4);
  ForwardInput input;
  input.tokens = tokens_of(*model, 2, 16);
  const NoGrad no_grad;
  const std::vector<double> first = numbers(model->forward(input).logits);
  CHECK(first != numbers(other->forward(input).logits));
  other->params().initialize(3);
  CHECK(first == numbers(other->forward(input).logits));
  Adam optimizer(model->params(), TrainConfig());
  {
    const EnableGrad recording;
    backward(cross_entropy(model->forward(input).logits, input.tokens));
  }
  static_cast<void>(optimizer.step(0.1));
  CHECK(first != numbers(model->forward(input).logits));
}

TEST_CASE("bf16: a backward after the parameters were written is refused") {
  const auto model = model_in(bf16_configs()[3], Dtype::bf16);
  ForwardInput input;
  input.tokens = tokens_of(*model, 2, 16);
  const Tensor loss = cross_entropy(model->forward(input).logits, input.tokens);
  model->params().initialize(4);
  static_cast<void>(model->forward(input));
  CHECK_THROWS_AS(backward(loss), VersionError);
}

TEST_CASE("bf16: every model trains like f32 for some steps") {
  for (const ModelConfig& config : bf16_configs()) {
    CAPTURE(config.model);
    CHECK(loss_difference(train_in(config, Dtype::bf16, 10), train_in(config, Dtype::f32, 10), 5) <= 0.01);
  }
}
