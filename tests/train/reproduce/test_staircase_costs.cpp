// The costs of a token in the staircase family: what is counted, and what the graph keeps.
#include "train/reproduce/staircase_costs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/model.h"
#include "ops/loss/cross_entropy.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/threads.h"
#include "train/run/metrics.h"
#include "train/text/stories/story_generator.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// Sizes of which none divides another.
ModelConfig odd_sizes(const std::string& model) {
  ModelConfig c;
  c.family = "staircase";
  c.model = model;
  c.vocab = 13;
  c.n_out = 11;
  c.dim = 10;
  c.heads = 3;
  c.head_dim = 5;
  c.mlp_dim = 17;
  c.layers = model == "universal" ? 1 : 2;
  c.repeats = 3;
  c.chunk = 3;
  c.steps = 4;
  c.cache_after = model == "staircase" ? 0 : 2;
  c.span = model.ends_with("staircase") ? 12 : 5;
  c.segment = c.context = model.ends_with("staircase") ? 15 : 7;
  return c;
}

// Multiply-adds of one segment of 5 chunks in the middle of a text, counted row by row and key by key.
double counted_macs(std::int64_t passes, bool all_keys, bool frozen_again) {
  const std::int64_t chunks = 5, chunk = 3, steps = 4, width = 10, inner = 15, mlp = 17, layers = 2;
  std::int64_t queries = 0, pairs = 0, projected = 0;
  for (std::int64_t row = 0; row < chunks + passes - 1; ++row)
    for (std::int64_t j = row - passes + 1; j <= std::min(row, chunks - 1); ++j) {
      if (j < 0) {  // of the carried state: keys and values alone
        projected += chunk;
        continue;
      }
      for (std::int64_t i = 0; i < chunk; ++i) {
        ++queries;
        for (std::int64_t seen = row - steps + 1; seen <= (all_keys ? row : j); ++seen)
          pairs += seen < j || all_keys ? chunk : i + 1;
      }
    }
  const std::int64_t frozen = chunks * chunk * (passes == steps ? 0 : frozen_again ? steps - passes : 1);
  return static_cast<double>(layers * (queries * (4 * width * inner + 2 * width * mlp) + 3 * inner * pairs +
                                       (projected + frozen) * 2 * width * inner) +
                             chunks * chunk * width * 11);
}

TEST_CASE("a token's work is what its rows and keys add up to and the formula takes full windows") {
  for (const std::int64_t passes : {4, 2}) {
    CAPTURE(passes);
    const StaircaseCosts costs = staircase_costs(odd_sizes(passes == 4 ? "staircase" : "cached_staircase"));
    CHECK(std::abs(costs.flops - 2 * counted_macs(passes, false, false) / 15) <= 1e-9 * costs.flops);
    CHECK(std::abs(costs.formula_flops - 2 * counted_macs(passes, true, true) / 15) <=
          1e-9 * costs.formula_flops);
  }
  // Every query sees 5 keys; keys and values of the 5 memories are made again in a segment of 7.
  const double layer = 8 * 10 * 15 + 4 * 10 * 17 + 6 * 5 * 15, memory = 4 * 10 * 15 * 5 / 7.0, head = 220;
  for (const std::string model : {"transformer_xl", "ladder", "universal"}) {
    CAPTURE(model);
    const StaircaseCosts costs = staircase_costs(odd_sizes(model));
    const double calls = model == "transformer_xl" ? 2 : model == "ladder" ? 6 : 3;
    CHECK(std::abs(costs.formula_flops - (calls * (layer + memory) + head)) <= 1e-9 * costs.formula_flops);
    CHECK(std::abs(costs.flops - costs.formula_flops) <= 1e-9 * costs.flops);
  }
  ModelConfig feedback = odd_sizes("feedback");
  CHECK(staircase_costs(feedback).formula_flops == 2 * layer + head);
  CHECK(staircase_costs(feedback).flops == 2 * layer + head + 2 * 3 * 10);  // three states are mixed
  feedback.feedback_memory = "last";
  CHECK(staircase_costs(feedback).flops == 2 * layer + head);
  CHECK(!error_of<ConfigError>([] { static_cast<void>(staircase_costs(odd_sizes("lstm"))); }).empty());
}

TEST_CASE("the graph keeps what the backward pass of a token needs and little more") {
  for (const char* name :
       {"staircase", "cached_staircase", "transformer_xl", "ladder", "universal", "feedback"})
    for (const std::int64_t passes : {1, 2}) {
      CAPTURE(name);
      CAPTURE(passes);
      ModelConfig config = odd_sizes(name);
      config.dim = 48;
      config.heads = 4;
      config.head_dim = 12;
      config.mlp_dim = 150;
      config.span = config.steps * config.chunk;
      config.segment = config.context = 15;
      if (config.model == "cached_staircase") config.cache_after = passes;
      config.repeats = passes;
      const auto model = make_model(config);
      model->params().initialize(1);
      ForwardInput input;
      input.tokens = Tensor::zeros({3, 15}, Dtype::i64);
      const std::int64_t before = graph_stats().saved_bytes;
      const Tensor loss = cross_entropy(model->forward(input).logits, input.tokens);
      const double kept =
          static_cast<double>(graph_stats().saved_bytes - before - model->params().values().bytes()) /
          (3 * 15);
      const double ratio = kept / staircase_costs(config).needed_bytes;
      CAPTURE(ratio);
      CHECK(ratio > 1);
      CHECK(ratio < 1.35);
    }
}

}  // namespace
