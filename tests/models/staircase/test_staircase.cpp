// The staircase family against its definitions: an oracle on plain vectors, and identities of the
// specification that catch the usual mistakes.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "autograd/profile.h"
#include "tensor/base/error.h"
#include "tests/models/staircase/staircase_oracle.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// Rounding of f64 sums through a few dozen layer calls; the models' numbers are of order 1.
constexpr double kClose = 1e-11;

void set_values(Model& model, const std::string& name, const std::vector<double>& values) {
  const Tensor& value = model.params().get(name).value;
  raw::copy_into(detach(value), raw::cast(Tensor::from(values, value.shape()), value.dtype()));
}

// Copies the parameters that both have.
void copy_parameters(Model& to, const Model& from) {
  for (const Parameter& parameter : from.params().parameters())
    if (to.params().find(parameter.name) != nullptr) set_values(to, parameter.name, numbers(parameter.value));
}

std::int64_t tokens_for(const ModelConfig& c) {
  return has_chunks(c) ? 8 * c.chunk : 23;
}

// The largest change of each position's logits when token `changed` is another one.
std::vector<double> influence(const Model& model, const Tensor& tokens, std::int64_t changed) {
  const Tensor other = raw::copy(tokens);
  other.mutable_data<std::int64_t>()[changed] =
      (other.data<std::int64_t>()[changed] + 1) % model.config().vocab;
  const Tensor a = forward_of(model, tokens).logits, b = forward_of(model, other).logits;
  std::vector<double> change;
  for (std::int64_t t = 0; t < a.dim(1); ++t) change.push_back(distance(part(a, t, 1), part(b, t, 1)).error);
  return change;
}

struct CountAttention final : TapeObserver {
  void forward_done(const char* op, const Scope*) override {
    count += std::string(op).starts_with("attention") ? 1 : 0;
  }
  void backward_done(const Node&) override {}
  std::int64_t count = 0;
};

}  // namespace

TEST_CASE("staircase: logits are those of the definition on plain vectors") {
  for (const auto& [name, config] : staircase_cases()) {
    if (!cuts_leave_no_trace(config) || !StaircaseOracle::knows(config.model)) continue;
    CAPTURE(name);
    const auto model = random_model(config);
    const Tensor tokens = random_ids(2, tokens_for(config), config.vocab, 5);
    const Tensor logits = forward_of(*model, tokens).logits;
    for (std::int64_t row = 0; row < 2; ++row) {
      const std::vector<double> ids = numbers(raw::select(tokens, 0, row));
      Vec expected;
      for (const Vec& one : StaircaseOracle(*model).logits({ids.begin(), ids.end()}))
        expected.insert(expected.end(), one.begin(), one.end());
      check_close("logits", raw::select(logits, 0, row),
                  Tensor::from(expected, {tokens.dim(1), config.n_out}), kClose);
    }
  }
}

TEST_CASE("staircase: one step is independent chunks without a state") {
  ModelConfig config = staircase_config("staircase");
  config.steps = 1;
  const auto model = random_model(config);
  const Tensor tokens = random_ids(2, 12, config.vocab, 1);
  const ForwardOutput whole = forward_of(*model, tokens);
  CHECK(whole.state.empty());
  for (std::int64_t t = 0; t < 12; t += 3)
    check_close("chunk", part(whole.logits, t, 3), forward_of(*model, part(tokens, t, 3)).logits, kClose);
}

TEST_CASE("staircase: one cached step takes a state without rows and no other") {
  ModelConfig config = staircase_config("cached_staircase");
  config.steps = config.cache_after = 1;
  const auto model = random_model(config);
  ForwardInput input;
  input.tokens = random_ids(2, 12, config.vocab, 1);
  const Tensor want = model->forward(input).logits;
  input.state.set("done", Tensor::zeros({2, 0, config.dim}, Dtype::f64));
  const ForwardOutput got = model->forward(input);
  CHECK(numbers(got.logits) == numbers(want));
  CHECK(got.state.empty());
  input.state.set("done", Tensor::zeros({2, config.chunk, config.dim}, Dtype::f64));
  CHECK_THROWS_AS(static_cast<void>(model->forward(input)), ShapeError);
}

TEST_CASE("staircase: cached with as many passes as steps is the staircase bit for bit") {
  for (const char* cold : {"zeros", "empty"}) {
    ModelConfig config = staircase_config("staircase");
    config.cold_start = cold;
    const auto plain = random_model(config);
    config.model = "cached_staircase";
    config.cache_after = config.steps;
    const auto cached = make_model(config, Dtype::f64);
    copy_parameters(*cached, *plain);
    ForwardInput input;
    input.tokens = random_ids(3, 15, config.vocab, 2);
    const Tensor targets = random_ids(3, 15, config.n_out, 3);
    const Outcome a = run(*plain, input, targets), b = run(*cached, input, targets);
    CHECK(same_bits(a.logits, b.logits));
    for (const auto& [name, gradient] : a.gradients) CHECK(same_bits(gradient, b.gradients.at(name)));
    const State state = forward_of(*plain, input.tokens).state;
    const State other = forward_of(*cached, input.tokens).state;
    REQUIRE(state.size() + 1 == other.size());
    for (const auto& [name, tensor] : state) CHECK(same_bits(tensor, other.get(name)));
    CHECK(other.get("done").shape() == Shape{3, (config.steps - 1) * config.chunk, config.dim});
  }
}

TEST_CASE("staircase: cached with as many passes as steps hands on final states that nothing reads") {
  ModelConfig config = staircase_config("cached_staircase");
  config.cache_after = config.steps;
  const auto model = random_model(config);
  const State state = forward_of(*model, random_ids(3, 15, config.vocab, 2)).state;
  State with_done = state;
  with_done.set("done", Tensor::full({3, (config.steps - 1) * config.chunk, config.dim}, 0.5, Dtype::f64));
  const Tensor tokens = random_ids(3, 15, config.vocab, 4);
  const ForwardOutput given = forward_of(*model, tokens, with_done);
  const ForwardOutput right = forward_of(*model, tokens, state);
  CHECK(same_bits(given.logits, right.logits));
  CHECK(same_bits(given.state.get("done"), right.state.get("done")));  // a segment of as many chunks or more
  State without = state;
  without.erase("done");
  CHECK(same_bits(forward_of(*model, tokens, without).logits, right.logits));
}

TEST_CASE(
    "staircase: cached with chunks of one token and one pass is feedback with the last layer and self") {
  for (const std::int64_t steps : {1, 2, 5}) {
    ModelConfig config = staircase_config("cached_staircase");
    config.cold_start = steps == 2 ? "empty" : "zeros";
    config.chunk = 1;
    config.steps = config.span = steps;
    config.cache_after = 1;
    const auto cached = random_model(config);
    config.model = "feedback";
    config.feedback_memory = "last";
    config.feedback_self = true;
    const auto feedback = random_model(config);
    copy_parameters(*feedback, *cached);
    ForwardInput input;
    input.tokens = random_ids(2, 9, config.vocab, 4);
    const Tensor targets = random_ids(2, 9, config.n_out, 4);
    const Outcome a = run(*cached, input, targets), b = run(*feedback, input, targets);
    check_close("logits", a.logits, b.logits, kClose);
    for (const auto& [name, gradient] : a.gradients)
      check_close(name, gradient, b.gradients.at(name), kClose, 1e-13);
  }
}

TEST_CASE("staircase: exact states make the cut invisible and official ones do not") {
  for (const auto& [name, original] : staircase_cases()) {
    CAPTURE(name);
    ModelConfig config = original;
    config.segment = config.context = 24 * config.chunk;
    const auto whole = random_model(config);
    const std::int64_t time = 12 * config.chunk;
    const Tensor tokens = random_ids(2, time, config.vocab, 10);
    const ForwardOutput expected = forward_of(*whole, tokens);
    for (const std::int64_t chunks : {1, 2, 3, 5}) {
      config.segment = chunks * config.chunk;
      if (has_chunks(config) && config.carry == "official")
        config.segment = std::max<std::int64_t>(chunks, 4) * config.chunk;
      const auto cut = make_model(config, Dtype::f64);
      copy_parameters(*cut, *whole);
      const ForwardOutput got = forward_of(*cut, tokens);
      if (!cuts_leave_no_trace(config)) {
        CHECK(distance(got.logits, expected.logits).error > 1e-4);
        continue;
      }
      check_close("logits", got.logits, expected.logits, kClose);
      REQUIRE(got.state.size() == expected.state.size());
      for (const auto& [part, tensor] : expected.state)
        check_close(part, got.state.get(part), tensor, kClose);
    }
  }
}

TEST_CASE("staircase: recurrence reaches beyond what layers and window span and baselines do not") {
  ModelConfig config = staircase_config("staircase");
  config.steps = 2;
  config.chunk = 2;
  config.span = 4;
  config.segment = 4;
  config.layers = 2;
  Tensor tokens = random_ids(1, 14, config.vocab, 12);
  CHECK(influence(*random_model(config), tokens, 0)[13] > 0);
  config.model = "cached_staircase";
  config.cache_after = 1;
  CHECK(influence(*random_model(config), tokens, 0)[13] > 0);
  config.cache_after = 0;
  config.model = "feedback";
  CHECK(influence(*random_model(config), tokens, 0)[13] > 0);
  config.model = "transformer_xl";
  const std::vector<double> xl = influence(*random_model(config), tokens, 0);
  CHECK(xl[8] > 0);
  for (std::size_t t = 9; t < 14; ++t) CHECK(xl[t] == 0);
  config.model = "staircase";
  config.steps = 1;
  CHECK(influence(*random_model(config), tokens, 0)[13] == 0);
}

TEST_CASE("staircase: without keys attention follows the position table's columns counted from its end") {
  // Values through Wv alone and one head make the mix visible: with Wk = 0 the scores are q . pe / sqrt(D).
  for (const char* name : {"staircase", "transformer_xl"}) {
    ModelConfig config = staircase_config(name);
    config.layers = 1;
    config.steps = 2;
    config.cold_start = "empty";
    config.segment = 6;
    config.span = config.model == "staircase" ? 9 : 4;
    const auto model = random_model(config);
    set_values(*model, "layers.0.attn.wk.weight",
               std::vector<double>(static_cast<std::size_t>(15 * config.dim), 0.0));
    ForwardInput input;
    input.tokens = random_ids(1, 6, config.vocab, 13);
    const std::vector<double> ids = numbers(raw::select(input.tokens, 0, 0));
    Vec expected;
    for (const Vec& one : StaircaseOracle(*model).logits({ids.begin(), ids.end()}))
      expected.insert(expected.end(), one.begin(), one.end());
    const Outcome outcome = run(*model, input, random_ids(1, 6, config.n_out, 14));
    check_close("logits", raw::select(outcome.logits, 0, 0), Tensor::from(expected, {6, config.n_out}),
                kClose);

    const std::vector<double> gradient = numbers(outcome.gradients.at("pos.key_pe"));
    // Staircase: distances 0 .. 5 use columns 8 .. 3. XL: distances 1 .. 4 use columns 3 .. 0.
    for (std::int64_t row = 0; row < config.head_dim; ++row)
      for (std::int64_t column = 0; column < config.span; ++column) {
        const double value = gradient[static_cast<std::size_t>(row * config.span + column)];
        CHECK((value == 0) == (config.model == "staircase" && column < config.span - 6));
      }
  }
}

TEST_CASE("staircase: zeros before the first token receive attention and an empty past does not") {
  for (const char* name : {"staircase", "cached_staircase", "transformer_xl", "feedback"}) {
    for (const char* cold : {"zeros", "empty"}) {
      CAPTURE(name);
      CAPTURE(cold);
      ModelConfig config = staircase_config(name);
      config.cold_start = cold;
      const auto model = random_model(config);
      const Tensor tokens = random_ids(1, 12, config.vocab, 15);
      // The column before the last one is of distance 1 where a token sees itself; the others' tokens see distances
      // from 1 on, and the second one is the first to weigh a token against what was before.
      const std::int64_t seen = config.model == "staircase" || config.model == "cached_staircase" ? 0 : 1;
      const Tensor before = part(forward_of(*model, tokens).logits, seen, 1);
      std::vector<double> table = numbers(model->params().get("pos.key_pe").value);
      for (std::int64_t row = 0; row < config.head_dim; ++row)
        table[static_cast<std::size_t>((row + 1) * config.span - 2)] += 1;
      set_values(*model, "pos.key_pe", table);
      const double moved = distance(part(forward_of(*model, tokens).logits, seen, 1), before).error;
      CHECK((moved > 1e-9) == (std::string(cold) == "zeros"));
    }
  }
}

TEST_CASE("staircase: rows have the sizes of the schedule") {
  ModelConfig config = staircase_config("staircase");
  config.steps = 2;
  config.chunk = 2;
  config.segment = 8;
  config.cold_start = "empty";
  const auto model = random_model(config);
  const Tensor tokens = random_ids(1, 8, config.vocab, 16);
  CountAttention attentions;
  {
    const ObserveTape observing(attentions);
    static_cast<void>(forward_of(*model, tokens));
  }
  CHECK(attentions.count == 5 * config.layers);
  const StaircaseOracle oracle(*model);
  const std::vector<double> ids = numbers(raw::select(tokens, 0, 0));
  static_cast<void>(oracle.logits({ids.begin(), ids.end()}));
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected{{2, 2}, {4, 4}, {4, 4}, {4, 4}, {2, 2}};
  CHECK(oracle.row_sizes == expected);
  for (const std::int64_t seen : oracle.seen_by_oldest) CHECK(seen == 2);
}

TEST_CASE("staircase: rows without a past cannot stand beside others where a past may be empty") {
  for (const auto& [name, config] : staircase_cases()) {
    CAPTURE(name);
    const auto model = random_model(config);
    ForwardInput input;
    input.tokens = random_ids(2, 3 * config.segment, config.vocab, 17);
    if (config.cold_start != "empty" || forward_of(*model, input.tokens).state.empty()) continue;
    input.start = Tensor::from(std::vector<std::int64_t>{0, 0, 0, 0, 0, 1}, {2, 3});
    CHECK(contains(error_of<ValueError>([&] { model->forward(input); }), "begin a document"));
  }
}
