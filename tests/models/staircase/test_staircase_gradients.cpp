// Gradients of the staircase family: every parameter of every model against central differences in f64, and
// what must be exactly zero.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/loss/cross_entropy.h"
#include "tests/models/staircase/staircase_oracle.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// Compares a few entries of every parameter's gradient with (loss(w + e) - loss(w - e)) / 2e. Some thousand
// ReLUs have a kink each, and a bias moves them all: where one lies inside the step the difference is off by
// its share, so the step shrinks until none does. With e = 1e-7 the rounding of the loss leaves some 1e-9.
void check_differences(Model& model, const ForwardInput& input, const Tensor& targets) {
  const Outcome outcome = run(model, input, targets);
  for (const Parameter& parameter : model.params().parameters()) {
    CAPTURE(parameter.name);
    const Tensor& gradient = outcome.gradients.at(parameter.name);
    const std::int64_t count = parameter.value.elements();
    const std::vector<double> found =
        gradient.defined() ? numbers(gradient) : std::vector<double>(static_cast<std::size_t>(count), 0.0);
    double largest = 0;
    for (const double g : found) largest = std::max(largest, std::abs(g));
    double* const values = detach(parameter.value).data<double>();
    const std::int64_t picks = std::min<std::int64_t>(count, 3);
    for (std::int64_t i = 0; i < picks; ++i) {
      const std::int64_t place = (i * count + count / 3) / picks % count;
      const double kept = values[place];
      const double tolerance = 1e-6 * largest + 5e-9;
      double error = INFINITY;
      for (const double step : {1e-5, 1e-6, 1e-7}) {
        values[place] = kept + step;
        const double above = loss_of(model, input, targets);
        values[place] = kept - step;
        const double below = loss_of(model, input, targets);
        values[place] = kept;
        error = std::abs((above - below) / (2 * step) - found[static_cast<std::size_t>(place)]);
        if (error <= tolerance) break;
      }
      CAPTURE(place);
      CHECK(error <= tolerance);
    }
  }
}

}  // namespace

TEST_CASE("staircase gradients: central differences agree for every tensor of every variant") {
  for (const auto& [name, original] : staircase_variants()) {
    CAPTURE(name);
    ModelConfig config = original;
    const std::int64_t time = has_chunks(config) ? 5 * config.chunk : 9;
    config.segment = time;  // one segment: nothing is held constant
    const auto model = random_model(config);
    ForwardInput input;
    input.tokens = random_ids(2, time, config.vocab, 31);
    check_differences(*model, input, random_ids(2, time, config.n_out, 32));
  }
}

TEST_CASE("staircase gradients: central differences agree with dropout and a carried state") {
  for (const char* name : {"staircase", "cached_staircase", "ladder", "feedback", "lstm"}) {
    CAPTURE(name);
    ModelConfig config = staircase_config(name);
    config.cache_after = config.model == "cached_staircase" ? 2 : 0;
    config.dropout = 0.2;
    config.emb_dropout = config.out_dropout = 0.1;
    const auto model = random_model(config);
    ForwardInput input;
    input.state = forward_of(*model, random_ids(2, 12, config.vocab, 33)).state;
    input.tokens = random_ids(2, 12, config.vocab, 34);
    input.dropout = {true, 5, 6};
    check_differences(*model, input, random_ids(2, 12, config.n_out, 35));
  }
}

TEST_CASE("staircase gradients: every parameter that matters gets one") {
  for (const auto& [name, config] : staircase_variants()) {
    CAPTURE(name);
    const auto model = random_model(config);
    const std::int64_t time = 2 * config.segment;
    ForwardInput input;
    input.tokens = random_ids(3, time, config.vocab, 36);
    const Outcome outcome = run(*model, input, random_ids(3, time, config.n_out, 37));
    for (const auto& [parameter, gradient] : outcome.gradients) {
      CAPTURE(parameter);
      if (parameter == "feedback.layer_logits" && config.feedback_memory == "last") {
        CHECK(!gradient.defined());
        continue;
      }
      REQUIRE(gradient.defined());
      CHECK(distance(gradient, gradient).scale > 0);
    }
  }
}

TEST_CASE("staircase gradients: they stop where a segment begins") {
  // The first segment is not scored, so its tokens' embeddings get nothing though the second segment saw
  // them.
  for (const auto& [name, config] : staircase_variants()) {
    CAPTURE(name);
    const auto model = random_model(config);
    const std::int64_t segment = config.segment;
    std::vector<std::int64_t> ids, targets;
    for (std::int64_t t = 0; t < 2 * segment; ++t) {
      ids.push_back(t < segment ? 0 : 1 + t % (config.vocab - 1));
      targets.push_back(t < segment ? -1 : t % config.n_out);
    }
    ForwardInput input;
    input.tokens = Tensor::from(ids, {1, 2 * segment});
    const Outcome outcome = run(*model, input, Tensor::from(targets, {1, 2 * segment}));
    const std::vector<double> gradient = numbers(outcome.gradients.at("embed.weight"));
    const std::size_t width = gradient.size() / static_cast<std::size_t>(config.vocab);
    for (std::size_t i = 0; i < width; ++i) CHECK(gradient[i] == 0);
  }
}
