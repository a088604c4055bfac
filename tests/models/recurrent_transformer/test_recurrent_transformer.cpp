// Identities of the recurrent transformers, from section 9 of their specification: forms of the same
// equations that must agree, what a position may and may not depend on, and what a call refuses.
#include "models/recurrent_transformer/recurrent_transformer.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "models/recurrent_transformer/paper_operations.h"
#include "tensor/base/error.h"
#include "tensor/threads/thread_pool.h"
#include "tests/models/recurrent_transformer/recurrent_transformer_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// Two orders of the same f64 sums, through up to 2 x 37 dependent layers: some 10^4 roundings of 1e-16,
// relative to the largest element.
constexpr double kScanOrder = 1e-11;

void check_fast_is_literal(const ModelConfig& config, std::int64_t time) {
  const std::int64_t rows = config.readout == "last" ? 1 : config.readout == "tail" ? (time + 1) / 2 : time;
  const auto model = random_model(config);
  ForwardInput input;
  input.tokens = random_ids(3, time, config.vocab, 1);
  input.tail = rows;
  const Tensor targets = random_ids(3, rows, model->config().n_out, 2);
  const Outcome fast = run(*model, input, targets);
  CHECK(to_string(fast.logits.shape()) == to_string(Shape{3, rows, model->config().n_out}));
  input.literal = true;
  check_outcomes(fast, run(*model, input, targets), kScanOrder);
}

}  // namespace

TEST_CASE("recurrent_transformer: fast equals literal under every combination of switches") {
  for (const std::string& name : models_of("recurrent_transformer"))
    for (int bits = 0; bits < 32; ++bits)
      for (const char* readout : {"all", "last", "tail"}) {
        ModelConfig config = block_config(name, 4);
        config.bias = (bits & 1) != 0;
        config.positions = (bits & 2) != 0;
        config.activation = (bits & 4) != 0 ? "relu" : "gelu";
        config.tied = (bits & 8) == 0;
        config.n_out = config.tied ? 0 : 7;
        config.accumulate = (bits & 16) != 0 ? "hidden" : "output";
        config.readout = readout;
        if ((bits & 16) != 0 && name != "block_accumulate") continue;
        CAPTURE(name);
        CAPTURE(bits);
        CAPTURE(config.readout);
        check_fast_is_literal(config, 14);
      }
}

TEST_CASE("recurrent_transformer: fast equals literal for a wide batch and one head and odd widths") {
  ModelConfig config = small_config("unit_forget");
  config.dim = 7;
  config.heads = 1;
  config.mlp_dim = 13;
  const auto model = random_model(config);
  ForwardInput input;
  input.tokens = random_ids(130, 3, config.vocab, 1);  // from 128 rows on, rows are worked on in blocks
  const Tensor targets = random_ids(130, 3, config.vocab, 2);
  const Outcome fast = run(*model, input, targets);
  input.literal = true;
  check_outcomes(fast, run(*model, input, targets), kScanOrder);
}

TEST_CASE(
    "recurrent_transformer: a step shared by several threads equals the literal loop and has the same bits") {
  // Large enough that threads walk through time together; 130 rows are worked on in blocks instead.
  const int before = thread_count();
  for (const std::int64_t rows : {16, 130}) {
    CAPTURE(rows);
    ModelConfig config = small_config("unit_forget");
    config.dim = 96;
    config.bias = true;
    config.dropout = 0.2;
    config.init_std = 0.05;
    const auto model = random_model(config);
    ForwardInput input;
    input.tokens = random_ids(rows, 3, config.vocab, 1);
    const Tensor targets = random_ids(rows, 3, config.vocab, 2);
    std::vector<Outcome> evaluated, trained;
    for (const int threads : {1, 2, 3}) {
      set_thread_count(threads);
      input.dropout = {};
      evaluated.push_back(run(*model, input, targets));
      input.dropout = {true, 1, 2};
      trained.push_back(run(*model, input, targets));
    }
    set_thread_count(before);
    for (const std::vector<Outcome>* outcomes : {&evaluated, &trained})
      for (const Outcome& outcome : *outcomes) {
        CHECK(same_bits(outcome.logits, outcomes->front().logits));
        for (const auto& [name, gradient] : outcome.gradients)
          CHECK_MESSAGE(same_bits(gradient, outcomes->front().gradients.at(name)), name);
      }
    input.dropout = {};
    input.literal = true;
    check_outcomes(evaluated.back(), run(*model, input, targets), kScanOrder);
  }
}

TEST_CASE("recurrent_transformer: the two models are different functions") {
  const Tensor tokens = random_ids(2, 9, 11, 1);
  const auto unit = random_model(small_config("unit_forget")),
             regular = random_model(small_config("regular"));
  CHECK(distance(whole(*unit, tokens), whole(*regular, tokens)).error > 0.1);
}

TEST_CASE("recurrent_transformer: the state of the unit recurrence stays the same size") {
  const auto model = random_model(small_config("unit_forget"));
  State state;
  static_cast<void>(model->stream(random_ids(2, 1, 11, 5), state));
  const std::int64_t bytes = state.bytes();
  CHECK(bytes == 8 * (2 * 2 * 12) + 8);  // k and v of one position and two rows; the position
  for (int i = 0; i < 50; ++i) static_cast<void>(model->stream(random_ids(2, 3, 11, 6), state));
  CHECK(state.bytes() == bytes);
  CHECK(model->remaining_context(state) == -1);
}

TEST_CASE("recurrent_transformer: tokens may be i32 or i64 and lie with any strides") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    const auto model = random_model(small_config(name));
    const Tensor tokens = random_ids(3, 5, 11, 4);
    const Tensor expected = whole(*model, tokens);
    CHECK(same_bits(whole(*model, raw::cast(tokens, Dtype::i32)), expected));
    const Tensor turned = raw::transpose(raw::copy(raw::transpose(tokens, 0, 1)), 0, 1);
    REQUIRE(!turned.contiguous());
    CHECK(same_bits(whole(*model, turned), expected));
  }
}

TEST_CASE("recurrent_transformer: readout last and tail are the last rows of all") {
  const Tensor tokens = random_ids(2, 9, 11, 4);
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    ModelConfig config = small_config(name);
    const Tensor all = whole(*random_model(config), tokens);
    ForwardInput input;
    input.tokens = tokens;
    config.readout = "last";
    check_close("last", random_model(config)->forward(input).logits, raw::narrow(all, 1, 8, 1), 1e-12);
    config.readout = "tail";
    input.tail = 4;
    check_close("tail", random_model(config)->forward(input).logits, raw::narrow(all, 1, 5, 4), 1e-12);
  }
}

TEST_CASE("recurrent_transformer: outputs that nobody reads are not computed") {
  // What the graph keeps, and with it the work: with readout last, of a layer's two halves the second, of 1
  // position in place of 50, or of 24 blocks; in the regular transformer all of the layer but keys and values.
  for (const std::string& name : models_of("recurrent_transformer")) {
    CAPTURE(name);
    double kept[2], flops[2];
    for (const bool last : {false, true}) {
      ModelConfig config = block_config(name, 2);
      config.context = 64;
      config.accumulate = "hidden";
      if (last) config.readout = "last";
      kept[last ? 1 : 0] = static_cast<double>(bytes_kept(*random_model(config), random_ids(2, 50, 11, 1)));
      flops[last ? 1 : 0] = forward_cost(config, 50).flops;
    }
    CHECK(kept[1] < 0.75 * kept[0]);
    CHECK(flops[1] < 0.75 * flops[0]);
  }
}

TEST_CASE("recurrent_transformer: a readout tail outside the sequence is refused") {
  for (const std::string& name : models_of("recurrent_transformer"))
    for (const bool literal : {false, true}) {
      CAPTURE(name);
      ModelConfig config = small_config(name);
      config.readout = "tail";
      const auto model = random_model(config);
      ForwardInput input;
      input.tokens = random_ids(2, 5, 11, 4);
      input.literal = literal;
      for (const std::int64_t tail : {0, -1, 6}) {
        input.tail = tail;
        CHECK(contains(error_of<ValueError>([&] { model->forward(input); }), "readout tail"));
      }
    }
}

TEST_CASE("recurrent_transformer: the models without blocks have blocks of one position") {
  for (const std::string& name : models_without_blocks())
    CHECK(random_model(block_config(name, 5))->full_config().block == 1);
}

TEST_CASE("recurrent_transformer: a full cache doubles and one with fewer rows than tokens is refused") {
  const auto model = random_model(small_config("regular"));
  State shorter;
  static_cast<void>(model->stream(random_ids(2, 8, 11, 4), shorter));
  for (const char* name : {"layers.0.k", "layers.0.v"})
    shorter.set(name, raw::copy(raw::narrow(shorter.get(name), 1, 0, 10)));
  CHECK_NOTHROW(static_cast<void>(model->stream(random_ids(2, 2, 11, 4), shorter)));
  CHECK_NOTHROW(static_cast<void>(model->stream(random_ids(2, 1, 11, 4), shorter)));
  CHECK(shorter.get("layers.0.v").dim(1) == 20);
  shorter.set("layers.0.v", raw::copy(raw::narrow(shorter.get("layers.0.v"), 1, 0, 9)));
  CHECK(contains(error_of<ShapeError>([&] { model->stream(random_ids(2, 1, 11, 4), shorter); }),
                 "here [2, at least 11"));
}

TEST_CASE("recurrent_transformer: operations by Table 1 of the paper") {
  const auto operations = [](const char* model, std::int64_t layers, std::int64_t dim, std::int64_t block,
                             std::int64_t tokens) {
    recurrent_transformer::Config config;
    config.model = model;
    config.layers = layers;
    config.dim = dim;
    config.block = block;
    return recurrent_transformer::paper_operations(config, tokens);
  };
  // By hand, and as Tables 3, 4 and 6 round them: 6.29E+07, 3.77E+08, 7.59E+07, 1.38E08, 6.29E06, 1.27E08.
  CHECK(operations("regular", 1, 384, 1, 256) == 62'914'560);
  CHECK(operations("regular", 6, 384, 1, 256) == 377'487'360);
  CHECK(operations("unit_forget", 1, 384, 1, 256) == 75'890'688);
  CHECK(operations("regular", 4, 32, 1, 1024) == 138'412'032);
  CHECK(operations("block_forget", 1, 32, 32, 1024) == 6'291'456);
  CHECK(operations("block_accumulate", 1, 96, 32, 4128) == 126'812'418);
  CHECK_THROWS_AS(operations("slide", 1, 96, 32, 4128), ValueError);
}
