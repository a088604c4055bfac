// The block recurrences beyond single calls (section 9 of its specification): the size of a stream's state, dropout's
// rules, and the short copy task.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/optimizer/adam.h"
#include "models/recurrent_transformer/block_recurrence.h"
#include "ops/norm/layer_norm.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "tests/models/recurrent_transformer/recurrent_transformer_case.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

}  // namespace

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
    CHECK(model->remaining_context(state) == -1);
    State one = state, two = state;
    const Tensor tokens = random_ids(kBatch, 7, 11, 6);
    const Tensor first = raw::copy(model->stream(tokens, one));
    CHECK(same_bits(model->stream(tokens, two), first));
    CHECK(same_bits(model->stream(tokens, state), first));
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
      input.dropout = {true, 1337, static_cast<std::int64_t>(step)};
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
