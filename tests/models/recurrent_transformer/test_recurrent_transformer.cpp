// Identities of the recurrent transformers, from section 9 of their specification: forms of the same
// equations that must agree, what a position may and may not depend on, and what a call refuses.
#include "models/recurrent_transformer/recurrent_transformer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/threads/thread_pool.h"
#include "tests/models/recurrent_transformer/recurrent_transformer_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// Two orders of the same f64 sums, through up to 2 x 37 dependent layers: some 10^4 roundings of 1e-16,
// relative to the largest element.
constexpr double kOrder = 1e-11;

// The logits of `tokens` in calls of the given lengths.
Tensor streamed(const Model& model, const Tensor& tokens, const std::vector<std::int64_t>& lengths) {
  const Tensor logits = Tensor::zeros({tokens.dim(0), tokens.dim(1), model.config().n_out}, Dtype::f64);
  State state;
  std::int64_t at = 0;
  for (const std::int64_t length : lengths) {
    const Tensor part = model.stream(raw::copy(raw::narrow(tokens, 1, at, length)), state);
    raw::copy_into(raw::narrow(logits, 1, at, length), raw::cast(part, Dtype::f64));
    at += length;
  }
  REQUIRE(at == tokens.dim(1));
  return logits;
}

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
  check_outcomes(fast, run(*model, input, targets), kOrder);
}

}  // namespace

TEST_CASE("recurrent_transformer: fast equals literal under every combination of switches") {
  for (const std::string& name : models_without_blocks())
    for (int bits = 0; bits < 16; ++bits)
      for (const char* readout : {"all", "last", "tail"}) {
        ModelConfig config = small_config(name);
        config.bias = (bits & 1) != 0;
        config.positions = (bits & 2) != 0;
        config.activation = (bits & 4) != 0 ? "relu" : "gelu";
        config.tied = (bits & 8) == 0;
        config.n_out = config.tied ? 0 : 7;
        config.readout = readout;
        CAPTURE(name);
        CAPTURE(bits);
        CAPTURE(config.readout);
        check_fast_is_literal(config, 9);
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
  check_outcomes(fast, run(*model, input, targets), kOrder);
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
    check_outcomes(evaluated.back(), run(*model, input, targets), kOrder);
  }
}

TEST_CASE("recurrent_transformer: the two models are different functions") {
  const Tensor tokens = random_ids(2, 9, 11, 1);
  const auto unit = random_model(small_config("unit_forget")),
             regular = random_model(small_config("regular"));
  CHECK(distance(whole(*unit, tokens), whole(*regular, tokens)).error > 0.1);
}

TEST_CASE("recurrent_transformer: streaming equals the whole sequence in f32 to rounding") {
  const Tensor tokens = random_ids(2, 17, 11, 4);
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    const auto model = random_model(small_config(name), Dtype::f32);
    check_close("one by one", streamed(*model, tokens, std::vector<std::int64_t>(17, 1)),
                whole(*model, tokens), 1e-4);
  }
}

TEST_CASE("recurrent_transformer: the state of the unit recurrence stays the same size") {
  const auto model = random_model(small_config("unit_forget"));
  State state;
  static_cast<void>(model->stream(random_ids(2, 1, 11, 5), state));
  const std::int64_t bytes = state.bytes();
  CHECK(bytes == 8 * (2 * 2 * 12) + 8);  // k and v of one position and two rows; the position
  for (int i = 0; i < 50; ++i) static_cast<void>(model->stream(random_ids(2, 3, 11, 6), state));
  CHECK(state.bytes() == bytes);
  CHECK(model->stream_room(state) == -1);
}

TEST_CASE("recurrent_transformer: a prefix gives the outputs it has in the whole sequence") {
  const Tensor tokens = random_ids(2, 17, 11, 4);
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    ModelConfig config = small_config(name);
    config.layers = 2;
    const auto model = random_model(config);
    const Tensor expected = whole(*model, tokens);
    for (const std::int64_t length : {1, 2, 9, 16}) {
      CAPTURE(length);
      const Tensor prefix = whole(*model, raw::copy(raw::narrow(tokens, 1, 0, length)));
      check_close("prefix", prefix, raw::narrow(expected, 1, 0, length), 1e-12);
    }
  }
}

TEST_CASE("recurrent_transformer: rows of a batch know nothing of each other") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    ModelConfig config = small_config(name);
    config.layers = 2;
    const auto model = random_model(config);
    const Tensor tokens = random_ids(7, 10, 11, 4);
    const Tensor expected = whole(*model, tokens);
    const std::vector<std::int64_t> order{3, 0, 6, 2, 5, 1, 4};
    const Tensor permuted = Tensor::empty(tokens.shape(), Dtype::i64);
    for (std::int64_t row = 0; row < 7; ++row)
      raw::copy_into(raw::select(permuted, 0, row),
                     raw::select(tokens, 0, order[static_cast<std::size_t>(row)]));
    const Tensor logits = whole(*model, permuted);
    for (std::int64_t row = 0; row < 7; ++row) {
      CAPTURE(row);
      const std::int64_t from = order[static_cast<std::size_t>(row)];
      check_close("permuted", raw::narrow(logits, 0, row, 1), raw::narrow(expected, 0, from, 1), 1e-12);
      check_close("alone", whole(*model, raw::copy(raw::narrow(tokens, 0, row, 1))),
                  raw::narrow(expected, 0, row, 1), 1e-12);
    }
  }
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

TEST_CASE("recurrent_transformer: equal calls give equal bits") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    ModelConfig config = small_config(name);
    config.layers = 2;
    const auto model = random_model(config, Dtype::f32);
    ForwardInput input;
    input.tokens = random_ids(4, 12, 11, 1);
    const Tensor targets = random_ids(4, 12, 11, 2);
    const Outcome first = run(*model, input, targets), second = run(*model, input, targets);
    CHECK(same_bits(first.logits, second.logits));
    CHECK(first.loss == second.loss);
    for (const auto& [parameter, gradient] : first.gradients)
      CHECK_MESSAGE(same_bits(gradient, second.gradients.at(parameter)), parameter);
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
  // What the graph keeps: with readout last, of a layer's two halves the second, of 1 position in place of
  // 40; in the regular transformer all of the layer but keys and values.
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    std::int64_t kept[2];
    double macs[2];
    for (const bool last : {false, true}) {
      ModelConfig config = small_config(name);
      config.layers = 1;
      config.context = 64;
      if (last) config.readout = "last";
      const auto model = random_model(config);
      kept[last ? 1 : 0] = bytes_kept(*model, random_ids(2, 40, 11, 1));
      macs[last ? 1 : 0] = forward_cost(config, 40).flops;
    }
    CHECK(kept[1] < 0.75 * static_cast<double>(kept[0]));
    CHECK(macs[1] < 0.7 * macs[0]);
  }
}

TEST_CASE("recurrent_transformer: a readout tail outside the sequence is refused") {
  ModelConfig config = small_config("unit_forget");
  config.readout = "tail";
  const auto model = random_model(config);
  ForwardInput input;
  input.tokens = random_ids(2, 5, 11, 4);
  for (const std::int64_t tail : {0, -1, 6}) {
    input.tail = tail;
    CHECK(contains(error_of<ValueError>([&] { model->forward(input); }), "readout tail"));
  }
}

TEST_CASE("recurrent_transformer: a state is refused because none is carried from call to call") {
  for (const std::string& name : models_of("recurrent_transformer")) {
    CAPTURE(name);
    const auto model = random_model(small_config(name));
    ForwardInput input;
    input.tokens = random_ids(2, 5, 11, 4);
    input.state.set("h", Tensor::zeros({2, 12}, Dtype::f64));
    for (const bool literal : {false, true}) {
      input.literal = literal;
      CHECK(contains(error_of<ValueError>([&] { model->forward(input); }), "carries none"));
    }
  }
}

TEST_CASE("recurrent_transformer: the models without blocks leave the key block unread") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    ModelConfig config = small_config(name);
    const Tensor tokens = random_ids(2, 7, 11, 4);
    const Tensor expected = whole(*random_model(config), tokens);
    config.block = 5;
    const auto model = random_model(config);
    CHECK(model->full_config().block == 1);
    CHECK(numbers(whole(*model, tokens)) == numbers(expected));
  }
}

TEST_CASE("recurrent_transformer: tokens of the wrong rank or none at all are refused") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    const auto model = random_model(small_config(name));
    for (const Tensor& tokens :
         {Tensor(), Tensor::zeros({4}, Dtype::i64), Tensor::zeros({2, 3, 4}, Dtype::i64),
          Tensor::zeros({0, 4}, Dtype::i64), Tensor::zeros({2, 0}, Dtype::i64)}) {
      ForwardInput input;
      input.tokens = tokens;
      CHECK(contains(error_of<ShapeError>([&] { model->forward(input); }), name));
      State state;
      CHECK(contains(error_of<ShapeError>([&] { model->stream(tokens, state); }), name));
      CHECK(state.empty());
    }
  }
}

TEST_CASE("recurrent_transformer: a stream goes on from a state of its own and from no other") {
  for (const std::string& name : models_of("recurrent_transformer"))
    for (const std::int64_t length : {1, 3, 4, 9}) {  // inside, at the end of, and behind blocks of 3
      CAPTURE(name);
      CAPTURE(length);
      ModelConfig config = small_config(name);
      config.block = 3;
      const auto model = random_model(config);
      State kept;
      static_cast<void>(model->stream(random_ids(2, length, 11, 4), kept));
      const Tensor next = random_ids(2, 1, 11, 5);
      const auto refused = [&](const State& state) {
        State going_on = state;
        return error_of<Error>([&] { static_cast<void>(model->stream(next, going_on)); });
      };
      for (const auto& [renamed, tensor] : kept) {
        CAPTURE(renamed);
        State other = kept, shorter = kept;
        other.erase(renamed);
        CHECK(contains(refused(other), renamed));
        other.set(renamed + "_", tensor);
        CHECK(contains(refused(other), renamed));
        if (renamed == "position") continue;
        shorter.set(renamed, raw::narrow(tensor, tensor.rank() - 1, 0, tensor.dim(tensor.rank() - 1) - 1));
        CHECK(contains(refused(shorter), "the state's " + renamed));
      }
      State more = kept;
      more.set("more", next);
      CHECK(contains(refused(more), "holds more"));
      more = kept;
      more.set("position", Tensor::from(std::vector<std::int64_t>{-3}, {1}));
      CHECK(contains(refused(more), "position"));
      State of_one_row;
      static_cast<void>(model->stream(random_ids(1, length, 11, 4), of_one_row));
      CHECK(contains(refused(of_one_row), "a state of 1 rows"));
      CHECK_NOTHROW(static_cast<void>(model->stream(next, kept)));
    }
}

TEST_CASE("recurrent_transformer: ids outside the vocabulary and tokens that are no integers are refused") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    const auto model = random_model(small_config(name));
    for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{11}, std::int64_t{1} << 40}) {
      CAPTURE(wrong);
      ForwardInput input;
      input.tokens = random_ids(2, 5, 11, 4);
      input.tokens.mutable_data<std::int64_t>()[7] = wrong;
      CHECK(contains(error_of<ValueError>([&] { model->forward(input); }), std::to_string(wrong)));
      State state;
      CHECK(
          contains(error_of<ValueError>([&] { model->stream(input.tokens, state); }), std::to_string(wrong)));
    }
    ForwardInput input;
    input.tokens = Tensor::zeros({2, 5}, Dtype::f64);
    CHECK(!error_of<DtypeError>([&] { model->forward(input); }).empty());
  }
}

TEST_CASE("recurrent_transformer: a sequence longer than the position table is refused") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    ModelConfig config = small_config(name);
    config.positions = true;
    const auto model = random_model(config);
    ForwardInput input;
    input.tokens = random_ids(1, 40, 11, 4);
    CHECK_NOTHROW(model->forward(input));
    input.tokens = random_ids(1, 41, 11, 4);
    const std::string text = error_of<ValueError>([&] { model->forward(input); });
    CHECK(contains(text, "41 positions"));
    CHECK(contains(text, "context"));
  }
}

TEST_CASE("recurrent_transformer: the regular transformer stops streaming when its context is full") {
  for (const bool positions : {false, true}) {
    CAPTURE(positions);
    ModelConfig config = small_config("regular");
    config.positions = positions;
    const auto model = random_model(config);
    State state;
    CHECK(model->stream_room(state) == 40);
    static_cast<void>(model->stream(random_ids(2, 38, 11, 4), state));
    CHECK(model->stream_room(state) == 2);
    CHECK(contains(error_of<ValueError>([&] { model->stream(random_ids(2, 3, 11, 4), state); }), "context"));
    CHECK(model->stream_room(state) == 2);  // the refused call has not moved the state
    static_cast<void>(model->stream(random_ids(2, 2, 11, 4), state));
    CHECK(model->stream_room(state) == 0);
    CHECK(contains(error_of<ValueError>([&] { model->stream(random_ids(2, 1, 11, 4), state); }), "context"));
    // A cache may have fewer rows than the context, but not fewer than the tokens need.
    State shorter;
    static_cast<void>(model->stream(random_ids(2, 8, 11, 4), shorter));
    for (const char* name : {"layers.0.k", "layers.0.v"})
      shorter.set(name, raw::copy(raw::narrow(shorter.get(name), 1, 0, 10)));
    CHECK_NOTHROW(static_cast<void>(model->stream(random_ids(2, 2, 11, 4), shorter)));
    CHECK(
        contains(error_of<ValueError>([&] { model->stream(random_ids(2, 1, 11, 4), shorter); }), "10 rows"));
    shorter.set("layers.0.v", raw::copy(raw::narrow(shorter.get("layers.0.v"), 1, 0, 9)));
    CHECK(contains(error_of<ShapeError>([&] { model->stream(random_ids(2, 1, 11, 4), shorter); }),
                   "here [2, at least 10"));
  }
}

TEST_CASE("recurrent_transformer: the unit recurrence streams past its context unless it has positions") {
  ModelConfig config = small_config("unit_forget");
  const auto endless = random_model(config);
  State state;
  for (int i = 0; i < 9; ++i) static_cast<void>(endless->stream(random_ids(1, 10, 11, 4), state));
  CHECK(endless->stream_room(state) == -1);

  config.positions = true;
  const auto bounded = random_model(config);
  State counted;
  CHECK(bounded->stream_room(counted) == 40);
  static_cast<void>(bounded->stream(random_ids(1, 39, 11, 4), counted));
  CHECK(bounded->stream_room(counted) == 1);
  CHECK(contains(error_of<ValueError>([&] { bounded->stream(random_ids(1, 2, 11, 4), counted); }),
                 "41 positions"));
  CHECK(bounded->stream_room(counted) == 1);
}

TEST_CASE("recurrent_transformer: a stream keeps its batch size") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    const auto model = random_model(small_config(name));
    State state;
    static_cast<void>(model->stream(random_ids(2, 3, 11, 4), state));
    const std::string text = error_of<ShapeError>([&] { model->stream(random_ids(3, 1, 11, 4), state); });
    CHECK(contains(text, "3 rows of tokens and a state of 2 rows"));
  }
}
