// The block variants beyond single calls (section 9 of its specification): streams, gradients far back in time,
// dropout's rules, the optimizer, and the short copy task.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/optimizer/adam.h"
#include "models/recurrent_transformer/block_variant.h"
#include "ops/norm/layer_norm.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tests/models/recurrent_transformer/recurrent_transformer_case.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::test;

}  // namespace

TEST_CASE("block stream: forget in pieces of any size equals the whole sequence") {
  const Tensor tokens = random_ids(3, 17, 11, 4);
  const std::vector<std::vector<std::int64_t>> cuts{
      std::vector<std::int64_t>(17, 1), {5, 1, 7, 4}, {17}, {4, 4, 4, 4, 1}, {1, 16}};
  for (const std::int64_t block : {1, 4, 5, 20})
    for (const std::int64_t layers : {1, 2})
      for (const bool positions : {false, true})
        for (const auto& lengths : cuts) {
          CAPTURE(block);
          CAPTURE(layers);
          CAPTURE(positions);
          ModelConfig config = block_config("block_forget", block);
          config.layers = layers;
          config.positions = config.bias = positions;
          const auto model = random_model(config);
          const Tensor expected = whole(*model, tokens);
          State state;
          std::int64_t at = 0;
          for (const std::int64_t length : lengths) {
            CAPTURE(at);
            check_close("part", model->stream(part(tokens, at, length), state),
                        raw::narrow(expected, 1, at, length), 1e-11);
            at += length;
          }
        }
}

TEST_CASE("block stream: accumulate answers each position as if the sequence ended with its block") {
  const Tensor tokens = random_ids(2, 17, 11, 4);
  for (const char* spread : {"output", "hidden"})
    for (const std::int64_t block : {1, 4, 5, 20})
      for (const std::int64_t layers : {1, 2, 3}) {
        CAPTURE(spread);
        CAPTURE(block);
        CAPTURE(layers);
        ModelConfig config = block_config("block_accumulate", block);
        config.layers = layers;
        config.positions = true;
        config.accumulate = spread;
        const auto model = random_model(config);
        State single, pieces;
        const Tensor uneven = Tensor::empty({2, 17, 11}, Dtype::f64);
        std::int64_t at = 0;
        for (const std::int64_t length : {5, 1, 7, 4}) {
          raw::copy_into(raw::narrow(uneven, 1, at, length), model->stream(part(tokens, at, length), pieces));
          at += length;
        }
        for (std::int64_t t = 0; t < 17; ++t) {
          CAPTURE(t);
          const Tensor expected = raw::narrow(whole(*model, part(tokens, 0, t + 1)), 1, t, 1);
          check_close("one by one", model->stream(part(tokens, t, 1), single), expected, 1e-11);
          check_close("uneven", raw::narrow(uneven, 1, t, 1), expected, 1e-11);
        }
      }
}

TEST_CASE("block stream: the state is as small as the specification says and a copy of it can go on") {
  constexpr std::int64_t kBatch = 2, kDim = 12, kBlock = 5;
  for (const std::string& name : models_with_blocks()) {
    CAPTURE(name);
    const auto model = random_model(block_config(name, kBlock));
    State state;
    for (std::int64_t t = 0; t < 60; ++t) {
      CAPTURE(t);
      static_cast<void>(model->stream(random_ids(kBatch, 1, 11, 5), state));
      const std::int64_t reals = (state.bytes() - 8) / 8 / kBatch, unit = kBlock * kDim;
      const bool boundary = (t + 1) % kBlock == 0;
      CHECK(reals <= (name == "block_forget" ? (boundary ? 2 : 6) : (boundary ? 4 : 9)) * unit);
    }
    CHECK(model->stream_room(state) == -1);
    State one = state, two = state;
    const Tensor tokens = random_ids(kBatch, 7, 11, 6);
    const Tensor first = raw::copy(model->stream(tokens, one));
    CHECK(same_bits(model->stream(tokens, two), first));
    CHECK(same_bits(model->stream(tokens, state), first));
  }
}

TEST_CASE("block stream: positions and batch sizes and ids that do not fit leave the state as it is") {
  for (const std::string& name : models_with_blocks()) {
    CAPTURE(name);
    ModelConfig config = block_config(name, 4);
    config.positions = true;
    const auto model = random_model(config);
    State state;
    CHECK(model->stream_room(state) == 40);
    static_cast<void>(model->stream(random_ids(2, 36, 11, 4), state));
    CHECK(model->stream_room(state) == 4);
    CHECK(contains(error_of<ValueError>([&] { model->stream(random_ids(2, 5, 11, 4), state); }),
                   "41 positions"));
    CHECK(contains(error_of<ShapeError>([&] { model->stream(random_ids(3, 1, 11, 4), state); }),
                   "3 rows of tokens and a state of 2 rows"));
    const Tensor wrong = random_ids(2, 2, 11, 4);
    wrong.mutable_data<std::int64_t>()[3] = -1;
    CHECK(!error_of<ValueError>([&] { model->stream(wrong, state); }).empty());
    CHECK(model->stream_room(state) == 4);
    static_cast<void>(model->stream(random_ids(2, 4, 11, 4), state));
    CHECK(model->stream_room(state) == 0);
  }
}

TEST_CASE("block gradients: the last of 256 losses reaches the first input through the state") {
  for (const std::string& name : models_with_blocks()) {
    CAPTURE(name);
    ModelConfig config = block_config(name, 8);
    config.context = 256;
    config.positions = true;
    config.readout = "last";
    const auto model = random_model(config);
    ForwardInput input;
    input.tokens = random_ids(1, 256, 11, 1);
    const Tensor targets = random_ids(1, 1, 11, 2);
    const Tensor fast = run(*model, input, targets).gradients.at("pos_embed.weight");
    input.literal = true;
    const Tensor literal = run(*model, input, targets).gradients.at("pos_embed.weight");
    for (const std::int64_t place : {0, 7, 8, 128, 255}) {
      CAPTURE(place);
      const Tensor row = raw::narrow(fast, 0, place, 1);
      CHECK(largest_magnitude(row) > 0);
      // Each row on its own scale: a detach after some blocks would leave the large rows right.
      check_close("row", row, raw::narrow(literal, 0, place, 1), 1e-6, 0);
    }
  }
}

TEST_CASE("block dropout: a rate of zero and evaluation change no bit") {
  for (const std::string& name : models_with_blocks()) {
    CAPTURE(name);
    const ModelConfig plain = block_config(name, 4);
    ModelConfig config = plain;
    config.dropout = 0.5;
    ForwardInput input;
    input.tokens = random_ids(2, 14, 11, 1);
    const NoGrad no_grad;
    const Tensor expected = raw::copy(random_model(plain)->forward(input).logits);
    CHECK(same_bits(random_model(config)->forward(input).logits, expected));
    input.dropout = {true, 1, 2};
    CHECK(same_bits(random_model(plain)->forward(input).logits, expected));
    const auto model = random_model(config);
    const Tensor dropped = raw::copy(model->forward(input).logits);
    CHECK(distance(dropped, expected).error > 1e-2);
    CHECK(same_bits(model->forward(input).logits, dropped));
    input.dropout.step = 3;
    CHECK(distance(model->forward(input).logits, dropped).error > 1e-2);
  }
}

// A model of one layer in which T(z) = z + drop(shift): all projections are zero, the bias of the attention's
// output is `shift`. Logits are LN(y) channel by channel.
std::unique_ptr<Model> transparent_model(const std::string& name, double embedding, double shift) {
  ModelConfig config = block_config(name, 4);
  config.dropout = 0.5;
  config.bias = true;
  config.tied = false;
  config.n_out = config.dim;
  config.readout = "all";
  auto model = make_model(config, Dtype::f64);
  model->params().initialize(1);
  for (const Parameter& parameter : model->params().parameters()) {
    const std::string& of = parameter.name;
    raw::fill(detach(parameter.value), of == "embed.weight"            ? embedding
                                       : of.ends_with("norm.weight")   ? 1.0
                                       : of == "layers.0.attn.wo.bias" ? shift
                                                                       : 0.0);
  }
  const Tensor head = model->params().get("head.weight").value;
  for (std::int64_t i = 0; i < config.dim; ++i) head.mutable_data<double>()[i * config.dim + i] = 1;
  return model;
}

TEST_CASE("block dropout: every use of an input sees one embedding mask") {
  // Accumulate uses x_1 three times: y_1 = p/2 + h = 3/2 x_1 and y_2 = p/2 + x_2.
  const auto model = transparent_model("block_accumulate", 1, 0);
  ForwardInput input;
  input.tokens = Tensor::zeros({3, 8}, Dtype::i64);
  input.dropout = {true, 1, 2};
  const NoGrad no_grad;
  const Tensor logits = raw::copy(model->forward(input).logits);
  const Tensor x =
      dropout(Tensor::full({2, 3, 4, 12}, 1.0, Dtype::f64), 0.5, random_key(1, "embed.drop", 0, 2));
  const Tensor x1 = select(x, 0, 0), x2 = select(x, 0, 1);
  check_close("logits", logits, layer_norm(concat({x1 * 1.5, x1 * 0.5 + x2}, 1), {}), 1e-12);
  input.dropout = {};
  CHECK(largest_magnitude(model->forward(input).logits) < 1e-6);  // rows of equal channels
}

TEST_CASE("block dropout: masks inside the layer differ between applications and halves of a window") {
  // In unit recurrence the applications are those that give h and y.
  for (const std::string name : {"block_forget", "block_accumulate", "unit_forget"}) {
    CAPTURE(name);
    const auto model = transparent_model(name, 0, 1);
    ForwardInput input;
    input.tokens = Tensor::zeros({8, 16}, Dtype::i64);
    input.dropout = {true, 1, 2};
    const NoGrad no_grad;
    const std::vector<double> logits = numbers(model->forward(input).logits);
    // y = drop(1) + drop(1) by two applications: one mask for both would give two levels a row, not three.
    int three_levels = 0, rows_equal = 0;
    for (std::size_t row = 0; row < 8 * 16; ++row) {
      std::vector<double> levels;
      for (std::size_t c = 0; c < 12; ++c) {
        const double value = logits[row * 12 + c];
        bool known = false;
        for (const double level : levels) known = known || std::abs(level - value) < 1e-9;
        if (!known) levels.push_back(value);
      }
      three_levels += levels.size() >= 3 ? 1 : 0;
      // The same row of the block before.
      bool equal = row % 16 >= 4;
      for (std::size_t c = 0; equal && c < 12; ++c)
        equal = std::abs(logits[row * 12 + c] - logits[(row - 4) * 12 + c]) < 1e-9;
      rows_equal += equal ? 1 : 0;
    }
    CHECK(three_levels > 110);  // a row lacks a level with probability 0.064
    CHECK(rows_equal == 0);
  }
}

TEST_CASE("block training: three optimizer steps in both forms give the same parameters") {
  for (const std::string& name : models_with_blocks())
    for (const std::string optimizer_name : {"adamw", "adam"}) {
      CAPTURE(name);
      CAPTURE(optimizer_name);
      ModelConfig config = block_config(name, 4);
      config.positions = config.bias = true;
      const auto fast = random_model(config), literal = random_model(config);
      TrainConfig train;
      train.optimizer = optimizer_name;
      train.clip = 0.1;
      Adam fast_optimizer(fast->params(), train), literal_optimizer(literal->params(), train);
      double first = 0, last = 0;
      for (int step = 0; step < 3; ++step) {
        ForwardInput input;
        input.tokens = random_ids(3, 14, 11, 1);
        const Tensor targets = random_ids(3, 14, 11, 2);
        last = run(*fast, input, targets).loss;
        if (step == 0) first = last;
        input.literal = true;
        CHECK(std::abs(run(*literal, input, targets).loss - last) <= 1e-9);
        CHECK(std::abs(fast_optimizer.step(1e-2) - literal_optimizer.step(1e-2)) <= 1e-9);
      }
      CHECK(last < first);
      for (const Parameter& parameter : fast->params().parameters())
        check_close(parameter.name, parameter.value, literal->params().get(parameter.name).value, 1e-7);
    }
}

TEST_CASE("block training: uniformly random tokens cannot be predicted better than by chance") {
  for (const std::string& name : models_with_blocks()) {
    CAPTURE(name);
    ModelConfig config = block_config(name, 4);
    config.vocab = 4;
    config.dim = 16;
    config.heads = 2;
    config.positions = true;
    const auto model = make_model(config);
    model->params().initialize(1);
    TrainConfig train;
    train.weight_decay = 0;
    Adam optimizer(model->params(), train);
    ForwardInput input;
    for (std::uint64_t step = 0; step < 60; ++step) {
      const Tensor tokens = random_ids(16, 17, 4, 1000 + step);
      input.tokens = part(tokens, 0, 16);
      static_cast<void>(run(*model, input, part(tokens, 1, 16)));
      optimizer.step(1e-2);
    }
    const Tensor fresh = random_ids(64, 17, 4, 7);
    input.tokens = part(fresh, 0, 16);
    const NoGrad no_grad;
    const double loss = cross_entropy(model->forward(input).logits, part(fresh, 1, 16)).item();
    CAPTURE(loss);
    CHECK(loss >= std::log(4.0) - 0.03);  // four standard errors; a window that sees its target is far below
    CHECK(loss <= std::log(4.0) + 0.3);
  }
}

TEST_CASE("block training: accumulate learns to copy in a hundred steps and forget does not") {
  // Half the paper's width at four times its rate: 0.03 after 100 steps in a third of the time that the
  // paper's sizes take to reach 0.1.
  constexpr std::int64_t kSymbols = 16, kNoise = 32, kBatch = 64, kTime = 2 * kSymbols + kNoise;
  const auto sample = [](std::uint64_t seed) {
    const Tensor targets = random_ids(kBatch, kSymbols, 14, seed),
                 tokens = Tensor::zeros({kBatch, kTime}, Dtype::i64);
    for (std::int64_t b = 0; b < kBatch; ++b)
      for (std::int64_t i = 0; i < kSymbols; ++i) {
        std::int64_t& target = targets.mutable_data<std::int64_t>()[b * kSymbols + i];
        tokens.mutable_data<std::int64_t>()[b * kTime + i] = ++target;  // 1 … 14
        tokens.mutable_data<std::int64_t>()[b * kTime + kTime - kSymbols + i] = 15;
      }
    return std::pair(tokens, targets);
  };
  for (const std::string& name : models_with_blocks()) {
    CAPTURE(name);
    ModelConfig config;
    for (const NamedConfig& named : paper_configs())
      if (named.name == "copy") config = named.config;
    config.model = name;
    config.block = 16;
    config.dim = 48;
    const auto model = make_model(config);
    model->params().initialize(1337);
    TrainConfig train;
    train.optimizer = "adam";
    train.beta2 = 0.999;
    train.clip = 0;
    Adam optimizer(model->params(), train);
    ForwardInput input;
    input.tail = kSymbols;
    for (std::uint64_t step = 0; step < 100; ++step) {
      const auto [tokens, targets] = sample(step);
      input.tokens = tokens;
      input.dropout = {true, 1337, step};
      static_cast<void>(run(*model, input, targets));
      optimizer.step(2e-3);
    }
    const auto [tokens, targets] = sample(1'000'000);
    input.tokens = tokens;
    input.dropout = {};
    const NoGrad no_grad;
    const double loss = cross_entropy(model->forward(input).logits, targets).item();
    CAPTURE(loss);
    if (name == "block_forget")
      CHECK(loss > 2.5);
    else
      CHECK(loss < 0.3);
  }
}
