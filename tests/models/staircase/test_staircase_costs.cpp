// What the graph of the staircase family keeps for a token.
#include <doctest/doctest.h>

#include <string>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "ops/loss/cross_entropy.h"
#include "tests/models/staircase/staircase_case.h"

namespace {

using namespace eddy;

// A staircase's segment has five chunks, and its window four.
ModelConfig odd_sizes(const std::string& model) {
  ModelConfig c = test::staircase_config(model);
  c.embed_dim = 0;
  c.repeats = 3;
  c.steps = 4;
  c.cache_after = model == "staircase" ? 0 : 2;
  c.span = model.ends_with("staircase") ? 12 : 5;
  c.segment = c.context = model.ends_with("staircase") ? 15 : 7;
  return c;
}

// Bytes of a token that the backward pass needs, for each call of a layer:
//   query rows   input and result of both norms, queries, keys, values, attended values, inner rows of the MLP
//   other rows   of the context: input and result of the norm, keys, values
// and the head's input and the logits.
double needed_bytes(const ModelConfig& c) {
  const auto width = static_cast<double>(c.dim), inner = static_cast<double>(c.heads * c.head_dim),
             layers = static_cast<double>(c.layers), segment = static_cast<double>(c.segment),
             span = static_cast<double>(c.span);
  const double row = 4 * width + 4 * inner + static_cast<double>(c.mlp_dim), context = 2 * width + 2 * inner;
  double numbers = 2 * width + static_cast<double>(c.n_out);
  if (c.model.ends_with("staircase")) {
    const auto steps = static_cast<double>(c.steps), chunk = static_cast<double>(c.chunk);
    const double passes = c.model == "staircase" ? steps : static_cast<double>(c.cache_after);
    numbers += layers * (passes * row + chunk * passes * (passes - 1) / 2 / segment * context);
    // The final state of every chunk becomes keys and values: that of the last chunk only in the next segment,
    // and those of the carried chunks in this one. Their norm has one input for all layers.
    const double done = (steps - 1) * chunk / segment, all = 1 - chunk / segment + done;
    if (passes < steps) numbers += layers * all * (width + 2 * inner) + done * width;
  } else if (c.model == "feedback") {
    // Keys and values come from the memories; the states that are mixed into one are the layers' outputs.
    const double memories = 1 - 1 / segment + span / segment, owners = c.shared_kv ? 1 : layers;
    numbers += layers * (row - 2 * inner) + memories * (owners * (width + 2 * inner) + width) + width;
  } else {
    const double calls = layers * (c.model == "transformer_xl" ? 1 : static_cast<double>(c.repeats));
    numbers += calls * (row + span / segment * context);
  }
  return 4 * numbers;
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
      const double ratio = kept / needed_bytes(model->full_config());
      CAPTURE(ratio);
      CHECK(ratio > 1);
      CHECK(ratio < 1.35);
    }
}

}  // namespace
