// Identities of the block recurrences from section 9 of its specification: the fast form of all recurrent
// transformers against plain loops written here, at lengths with and without a remainder, and against the
// equations word for word for every tail and block; what a position may depend on. The state of streams, masks
// and the copy task are in test_block_training.cpp.
#include "models/recurrent_transformer/block_recurrence.h"

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/models/plain_rows.h"
#include "tests/models/recurrent_transformer/recurrent_transformer_case.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// Two orders of the same f64 sums through a chain of layers: 1e-12 relative to the largest element. Some
// 10^3 roundings of 1e-16 that the layers damp; 2e-13 was the largest seen.
constexpr double kOrder = 1e-12;

void check_forms(const ModelConfig& config, std::int64_t batch, std::int64_t time, std::int64_t rows,
                 std::int64_t block = 0) {
  const auto model = random_model(config);
  ForwardInput input;
  input.tokens = random_ids(batch, time, config.vocab, 1);
  input.tail = rows;
  input.block = block;
  const Tensor targets = random_ids(batch, rows, model->config().n_out, 2);
  const Outcome fast = run(*model, input, targets);
  CHECK(to_string(fast.logits.shape()) == to_string(Shape{batch, rows, model->config().n_out}));
  input.literal = true;
  check_outcomes(fast, run(*model, input, targets), kOrder, 1e-13);
}

// ---- The model in plain loops over one sequence, from the equations: no tensors, windows as lists of rows.

using Rows = std::vector<Row>;

struct Plain {
  const Model& model;

  Row parameter(const std::string& name) const {
    const Parameter* found = model.params().find(name);
    return found == nullptr ? Row() : numbers(found->value);
  }
  static double part(const Row& values, std::size_t i, double otherwise) {
    return values.empty() ? otherwise : values[i];
  }
  Row norm(const Row& x, const std::string& name) const {
    return layer_norm_row(x, parameter(name + ".weight"), parameter(name + ".bias"), 1e-5);
  }
  Row linear(const Row& x, const std::string& name) const {
    const Row weight = parameter(name + ".weight"), bias = parameter(name + ".bias");
    Row y(weight.size() / x.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = part(bias, i, 0);
      for (std::size_t j = 0; j < x.size(); ++j) y[i] += weight[i * x.size() + j] * x[j];
    }
    return y;
  }
  // T over a window.
  Rows layer(const Rows& window, std::int64_t number) const {
    const std::string name = "layers." + std::to_string(number) + ".";
    const auto dim = static_cast<std::size_t>(model.config().dim),
               heads = static_cast<std::size_t>(model.config().heads), width = dim / heads;
    Rows qkv, result;
    for (const Row& z : window) qkv.push_back(linear(norm(z, name + "attn_norm"), name + "attn.wqkv"));
    if (model.full_config().rotary)
      for (std::size_t t = 0; t < qkv.size(); ++t)
        for (std::size_t c = 0; c < 2 * dim; c += 2) {
          const double exponent = static_cast<double>(c % width) / static_cast<double>(width),
                       angle = static_cast<double>(t) * std::pow(1e4, -exponent);
          const std::complex<double> turned =
              std::complex<double>(qkv[t][c], qkv[t][c + 1]) * std::polar(1.0, angle);
          qkv[t][c] = turned.real();
          qkv[t][c + 1] = turned.imag();
        }
    for (std::size_t j = 0; j < window.size(); ++j) {
      Row mixed(dim, 0.0);
      for (std::size_t head = 0; head < heads; ++head) {
        Row weight(j + 1);
        double total = 0;
        for (std::size_t t = 0; t <= j; ++t) {
          double score = 0;
          for (std::size_t c = head * width; c < (head + 1) * width; ++c)
            score += qkv[j][c] * qkv[t][dim + c];
          weight[t] = std::exp(score / std::sqrt(static_cast<double>(width)));
          total += weight[t];
        }
        for (std::size_t t = 0; t <= j; ++t)
          for (std::size_t c = head * width; c < (head + 1) * width; ++c)
            mixed[c] += weight[t] / total * qkv[t][2 * dim + c];
      }
      Row r = linear(mixed, name + "attn.wo");
      for (std::size_t c = 0; c < dim; ++c) r[c] += window[j][c];
      Row u = linear(norm(r, name + "mlp_norm"), name + "mlp.up");
      for (double& v : u)
        v = model.full_config().activation == "gelu" ? 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)))
                                                     : (v > 0 ? v : 0);
      const Row down = linear(u, name + "mlp.down");
      for (std::size_t c = 0; c < dim; ++c) r[c] += down[c];
      result.push_back(r);
    }
    return result;
  }
  // Of all models but the regular one, which is T over the whole sequence; unit recurrence has blocks of one.
  Rows recurrence(const Rows& x, std::int64_t number) const {
    if (model.config().model == "regular") return layer(x, number);
    const auto block = static_cast<std::size_t>(model.full_config().block);
    const bool accumulate = model.config().model == "block_accumulate";
    const auto rows = [&](std::size_t i) {
      return Rows(x.begin() + static_cast<std::ptrdiff_t>(i * block),
                  x.begin() + static_cast<std::ptrdiff_t>(std::min(x.size(), (i + 1) * block)));
    };
    Rows p = rows(0), h = layer(p, number), outputs;
    const auto emit = [&](const Rows& y) { outputs.insert(outputs.end(), y.begin(), y.end()); };
    for (std::size_t i = 1; i * block < x.size(); ++i) {
      const Rows own = rows(i);
      Rows window = h;
      window.insert(window.end(), own.begin(), own.end());
      for (std::size_t j = 0; accumulate && j < window.size(); ++j)
        for (std::size_t c = 0; c < window[j].size(); ++c)
          window[j][c] += model.full_config().accumulate_factor * p[j % block][c];
      const Rows result = layer(window, number);
      const Rows y(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(block));
      emit(y);
      p = model.full_config().accumulate == "output" ? y : h;
      h = Rows(result.begin() + static_cast<std::ptrdiff_t>(block), result.end());
    }
    emit(layer(h, number));
    return outputs;
  }
  // Logits of every position.
  Row logits(const Tensor& tokens) const {
    const Row table = parameter("embed.weight"), positions = parameter("pos_embed.weight");
    const auto dim = static_cast<std::size_t>(model.config().dim);
    Row all;
    for (std::int64_t b = 0; b < tokens.dim(0); ++b) {
      Rows x;
      for (std::int64_t t = 0; t < tokens.dim(1); ++t) {
        const auto id = static_cast<std::size_t>(tokens.data<std::int64_t>()[b * tokens.dim(1) + t]);
        Row row(dim);
        for (std::size_t c = 0; c < dim; ++c)
          row[c] = table[id * dim + c] + part(positions, static_cast<std::size_t>(t) * dim + c, 0);
        x.push_back(row);
      }
      for (std::int64_t i = 0; i < model.config().layers; ++i) x = recurrence(x, i);
      for (const Row& y : x) {
        const Row z = linear(norm(y, "final_norm"), model.config().tied ? "embed" : "head");
        all.insert(all.end(), z.begin(), z.end());
      }
    }
    return all;
  }
};

}  // namespace

// What the golden cases do not have: biases, several layers of blocks, GELU in blocks, p from the hidden rows, rotary
// positions.
TEST_CASE("recurrent_transformer: every length agrees with plain loops over the equations") {
  for (const std::string& name : models_of("recurrent_transformer"))
    for (const std::int64_t block : {1, 3, 5})
      for (const std::int64_t time : {std::int64_t{1}, std::int64_t{2}, block, block + 1, 2 * block,
                                      2 * block + 1, 3 * block, 3 * block + 2}) {
        CAPTURE(name);
        CAPTURE(block);
        CAPTURE(time);
        ModelConfig config = block_config(name, block);
        config.positions = block != 3;
        config.rotary = block == 3;
        config.bias = block == 5;
        config.activation = block == 5 ? "relu" : "gelu";
        config.layers = block == 3 ? 2 : 1;
        config.accumulate = block == 1 ? "hidden" : "output";
        config.accumulate_factor = block == 3 ? 0.8 : 0.5;
        const auto model = random_model(config);
        const Tensor tokens = random_ids(2, time, config.vocab, 1);
        const Tensor logits = whole(*model, tokens);
        check_close("logits", logits, Tensor::from(Plain{*model}.logits(tokens), logits.shape()), 1e-11);
      }
}

TEST_CASE("block recurrence: both forms agree for every tail and several layers") {
  for (const std::string& name : models_with_blocks())
    for (const char* spread : {"output", "hidden"})
      for (const std::int64_t layers : {1, 2, 3})
        for (std::int64_t tail = 1; tail <= 13; tail += layers == 1 ? 1 : 3) {
          CAPTURE(name);
          CAPTURE(layers);
          CAPTURE(tail);
          ModelConfig config = block_config(name, 4);
          config.readout = "tail";
          config.layers = layers;
          config.accumulate = spread;
          config.accumulate_factor = layers == 3 ? -0.3 : 0.5;
          check_forms(config, 2, 13, tail);
        }
}

TEST_CASE("block recurrence: queries, keys and values computed block by block agree with the literal form") {
  // 17 blocks of 512 rows, 2.2 MiB in f64, and a rest of 3 positions: more than is computed at once.
  ModelConfig config = block_config("block_forget", 8);
  config.dim = 33;
  config.readout = "tail";
  check_forms(config, 64, 17 * 8 + 3, 4);
}

TEST_CASE("block recurrence: a call may set its own block") {
  for (const std::string& name : models_with_blocks()) {
    CAPTURE(name);
    const Tensor tokens = random_ids(2, 17, 11, 4);
    const auto model = random_model(block_config(name, 4));
    for (const std::int64_t block : {1, 5, 16, 17, 100}) {
      CAPTURE(block);
      CHECK(same_bits(whole(*model, tokens, block), whole(*random_model(block_config(name, block)), tokens)));
      check_forms(block_config(name, 4), 2, 17, 17, block);
    }
    ForwardInput input;
    input.tokens = tokens;
    input.block = -1;
    CHECK(contains(error_of<ValueError>([&] { model->forward(input); }), "block of -1"));
  }
}

TEST_CASE("block recurrence: blocks of one position are the unit recurrence") {
  for (const std::int64_t layers : {1, 2})
    for (const std::int64_t time : {1, 2, 9}) {
      CAPTURE(layers);
      CAPTURE(time);
      ModelConfig config = block_config("block_forget", 1);
      config.layers = layers;
      config.positions = config.bias = true;
      const auto blocks = random_model(config);
      config.model = "unit_forget";
      const auto unit = random_model(config);
      ForwardInput input;
      input.tokens = random_ids(3, time, 11, 1);
      const Tensor targets = random_ids(3, time, 11, 2);
      check_outcomes(run(*blocks, input, targets), run(*unit, input, targets), 1e-11, 1e-13);
    }
}

TEST_CASE("block recurrence: a sequence of one block goes twice through the layer") {
  // Where a published loop fails or leaves the layer out: y = T(T(x)).
  for (const std::string& name : models_with_blocks())
    for (const std::int64_t time : {1, 3, 5}) {
      CAPTURE(name);
      CAPTURE(time);
      const Tensor tokens = random_ids(2, time, 11, 1);
      const Tensor once = whole(*random_model(block_config(name, 5)), tokens);
      const Tensor other =
          whole(*random_model(block_config(name == "block_forget" ? "block_accumulate" : "block_forget", 40)),
                tokens);
      check_close("logits", once, other, 1e-13);
    }
}

TEST_CASE("block recurrence: what accumulates changes the function from the third block on") {
  const Tensor tokens = random_ids(2, 15, 11, 1);
  ModelConfig config = block_config("block_accumulate", 5);
  const auto output = random_model(config), forget = random_model(block_config("block_forget", 5));
  config.accumulate = "hidden";
  const auto hidden = random_model(config);
  const Tensor two = raw::copy(raw::narrow(tokens, 1, 0, 10));
  check_close("two blocks", whole(*output, two), whole(*hidden, two), 1e-13);
  CHECK(distance(whole(*output, two), whole(*forget, two)).error > 1e-2);
  CHECK(distance(whole(*output, tokens), whole(*hidden, tokens)).error > 1e-2);
}

TEST_CASE("block recurrence: every block size of the image task handles its remainder") {
  // 1024 positions; 31 of the 33 sizes leave a remainder, of one position at 31 and 33.
  for (std::int64_t block = 16; block <= 48; ++block) {
    CAPTURE(block);
    ModelConfig config = block_config("block_forget", 32);
    config.context = 1024;
    config.dim = 4;
    config.heads = 2;
    config.positions = true;
    config.activation = "relu";
    const auto model = random_model(config);
    const Tensor tokens = random_ids(1, 1024, 11, 1);
    const Tensor all = whole(*model, tokens, block);
    CHECK(to_string(all.shape()) == to_string(Shape{1, 1024, 11}));
    if (block != 31 && block != 32 && block != 37) continue;
    ForwardInput input;
    input.tokens = tokens;
    input.block = block;
    input.literal = true;
    const NoGrad no_grad;
    check_close("literal", all, model->forward(input).logits, kOrder);
    config.readout = "last";
    check_close("last", whole(*random_model(config), tokens, block), raw::narrow(all, 1, 1023, 1), kOrder);
  }
}

TEST_CASE("block recurrence: a prefix keeps its outputs with forget and not with accumulate") {
  const Tensor tokens = random_ids(2, 17, 11, 4);
  for (const std::string& name : models_with_blocks()) {
    CAPTURE(name);
    ModelConfig config = block_config(name, 5);
    config.layers = 2;
    const auto model = random_model(config);
    const Tensor expected = whole(*model, tokens);
    for (const std::int64_t length : {1, 2, 5, 9, 10, 16}) {
      CAPTURE(length);
      const Tensor prefix = whole(*model, raw::copy(raw::narrow(tokens, 1, 0, length)));
      const Tensor same = raw::narrow(expected, 1, 0, length);
      if (name == "block_forget") {
        check_close("prefix", prefix, same, kOrder);
      } else if (length <= 10) {  // 16 ends in the sequence's own last block
        CHECK(distance(prefix, same).error > 1e-2);
      }
    }
  }
}

TEST_CASE("block recurrence: multiply-adds are those of the specification") {
  // 5.87e7 and 3.56e7 operations per CIFAR sample for all outputs and for the last one, 1.93e9 for copy.
  for (const NamedConfig& named : paper_configs()) {
    if (named.name == "cifar_block") {
      const double flops = forward_cost(named.config, 1024).flops;
      CHECK(std::abs(flops / 3.56e7 - 1) < 5e-3);
    }
    if (named.name == "copy") {
      const double flops = forward_cost(named.config, 4128).flops;
      CHECK(std::abs(flops / 1.93e9 - 1) < 1e-2);
    }
  }
}
