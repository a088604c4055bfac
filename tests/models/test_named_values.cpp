// What every model names inside a run: its attention probabilities and gates are what they are called, both forms and
// streams name the same, and looking changes no number.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "autograd/named_values.h"
#include "ops/views/views.h"
#include "tests/models/every_model.h"

namespace {

using namespace eddy;
using namespace eddy::test;

NamedValues captured_from(const Model& model, const Tensor& tokens, bool literal, Tensor& logits) {
  const NoGrad no_grad;
  ForwardInput input = input_for(model.full_config(), tokens);
  input.literal = literal;
  return capture_values({"*"}, [&] { logits = model.forward(input).logits; });
}

bool is_gate(const std::string& path) {
  return path.ends_with("gate");
}
bool is_attention(const std::string& path) {
  return path.ends_with("probabilities");
}

// The sum of two numbers of 2^-53 relative precision each may miss 1 by this, for the few hundred keys here.
constexpr double kOfOne = 1e-13;

void check_probabilities(const std::string& path, const Tensor& probabilities) {
  CAPTURE(path);
  REQUIRE(probabilities.rank() == 4);
  const std::int64_t keys = probabilities.dim(3);
  const std::vector<double> p = raw::contiguous(probabilities).to_vector<double>();
  for (std::size_t row = 0; row < p.size(); row += static_cast<std::size_t>(keys)) {
    double sum = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(keys); ++k) {
      CHECK(p[row + k] >= 0);
      sum += p[row + k];
    }
    if (sum != 0) CHECK(std::abs(sum - 1) <= kOfOne);  // 0: the query sees no key
  }
}

void check_gate(const std::string& path, const Tensor& gate) {
  CAPTURE(path);
  for (const double g : raw::contiguous(gate).to_vector<double>()) {
    CHECK(g >= 0);
    CHECK(g <= 1);
  }
}

void check_all(const NamedValues& values) {
  for (const auto& [path, named] : values)
    for (const Tensor& value : named) {
      if (is_attention(path)) check_probabilities(path, value);
      if (is_gate(path)) check_gate(path, value);
    }
}

TEST_CASE("the probabilities of every model are 0 or more and sum to 1, and its gates lie between 0 and 1") {
  for_every_model([](const ModelConfig& config, const Model& model) {
    const Tensor tokens = random_ids(2, uneven_time(config), config.vocab, 3);
    for (const bool literal : {false, true}) {
      CAPTURE(literal);
      Tensor logits;
      const NamedValues values = captured_from(model, tokens, literal, logits);
      check_all(values);
      const bool has_attention =
          std::ranges::any_of(values, [](const auto& entry) { return is_attention(entry.first); });
      const bool has_gates =
          std::ranges::any_of(values, [](const auto& entry) { return is_gate(entry.first); });
      CHECK((has_attention || has_gates));
      if (literal) CHECK(has_attention == (config.model != "lstm"));
      if (model.is_recurrent())
        CHECK(std::ranges::any_of(values, [](const auto& entry) {
          return entry.first.ends_with("state") || entry.first.ends_with("gate") || is_attention(entry.first);
        }));
    }
  });
}

TEST_CASE("capturing a run changes none of its numbers") {
  for_every_model([](const ModelConfig& config, const Model& model) {
    const Tensor tokens = random_ids(2, uneven_time(config), config.vocab, 3);
    Tensor seen;
    static_cast<void>(captured_from(model, tokens, false, seen));
    CHECK(same_bits(seen, forwarded(model, tokens).logits));
  });
}

TEST_CASE("a stream names the values of its tokens under the paths of a forward pass") {
  for_every_model([](const ModelConfig& config, const Model& model) {
    const Tensor tokens = random_ids(2, call_time(config), config.vocab, 3);
    Tensor logits;
    const NamedValues whole = captured_from(model, tokens, false, logits);
    State state;
    const NamedValues streamed =
        capture_values({"*"}, [&] { static_cast<void>(model.stream(tokens, state)); });
    check_all(streamed);
    for (const auto& [path, values] : streamed) {
      CAPTURE(path);
      CHECK(whole.contains(path));
    }
  });
}

TEST_CASE("both forms name the same numbers where both name a value as often") {
  int compared = 0;
  for_every_model([&](const ModelConfig& config, const Model& model) {
    const Tensor tokens = random_ids(2, call_time(config), config.vocab, 3);
    Tensor logits;
    const NamedValues fast = captured_from(model, tokens, false, logits),
                      literal = captured_from(model, tokens, true, logits);
    for (const auto& [path, values] : fast) {
      const auto other = literal.find(path);
      if (other == literal.end() || other->second.size() != values.size()) continue;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i].shape() != other->second[i].shape()) continue;
        check_close(path, values[i], other->second[i], kOrder, kFloor);
        ++compared;
      }
    }
  });
  CHECK(compared > 50);
}

TEST_CASE("the gate of the unit recurrence is the probability of the state in a window of two") {
  const ModelConfig config = plain_config({"recurrent_transformer", "unit_forget"});
  const std::unique_ptr<Model> model = model_of(config);
  const std::int64_t time = 6;
  Tensor logits;
  const Tensor tokens = random_ids(2, time, config.vocab, 3);
  const NamedValues fast = captured_from(*model, tokens, false, logits),
                    literal = captured_from(*model, tokens, true, logits);
  const Tensor& gate = fast.at("layers.0.gate")[0];
  const std::vector<Tensor>& windows = literal.at("layers.0.attn.probabilities");
  REQUIRE(gate.shape() == Shape{2, config.heads, time});
  CHECK(raw::contiguous(raw::narrow(gate, 2, 0, 1)).to_vector<double>() ==
        std::vector<double>(static_cast<std::size_t>(2 * config.heads), 0.0));
  for (std::int64_t t = 1; t < time; ++t) {
    const Tensor& window = windows[static_cast<std::size_t>(t)];  // query x_t, key h_{t-1}
    check_close(
        "gate", raw::contiguous(raw::narrow(gate, 2, t, 1)),
        raw::contiguous(raw::reshape(raw::contiguous(raw::narrow(raw::narrow(window, 2, 1, 1), 3, 0, 1)),
                                     {2, config.heads, 1})),
        kOrder, kFloor);
  }
}

TEST_CASE("a pattern that fits nothing is an error that lists what the model names") {
  const ModelConfig config = plain_config({"recurrent_transformer", "unit_forget"});
  const std::unique_ptr<Model> model = model_of(config);
  const Tensor tokens = random_ids(1, 4, config.vocab, 3);
  CHECK_THROWS_WITH_AS(
      capture_values({"*.gate", "layers.*.attn.probabilitys"},
                     [&] { static_cast<void>(forwarded(*model, tokens)); }),
      doctest::Contains("nothing is named \"layers.*.attn.probabilitys\" (this run names layers.0.gate"),
      CaptureError);
}

}  // namespace
