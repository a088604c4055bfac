// Gradients of the block-wise recurrent models: under dropout, of the two uses of tied matrices, and that
// truncation leaves no graph behind.
#include <doctest/doctest.h>

#include "tests/models/blockwise_recurrent/blockwise_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

}  // namespace

TEST_CASE("memory_llama gradients: every parameter agrees with central differences under dropout") {
  for (const bool literal : {false, true}) {
    CAPTURE(literal);
    ModelConfig config = blockwise_config("memory_llama");
    config.dropout = 0.3;
    const auto model = blockwise_model(config);
    ForwardInput input;
    input.tokens = random_ids(2, 12, 11, 1);
    input.dropout = {true, 5, 17};
    input.literal = literal;
    check_directions(*model, input, random_ids(2, 12, 11, 2));
    const Tensor once = model->forward(input).logits;
    CHECK(same_bits(once, model->forward(input).logits));
    ++input.dropout.step;
    CHECK(distance(once, model->forward(input).logits).error > 1e-3);
    input.dropout.training = false;
    CHECK(same_bits(model->forward(input).logits, model->forward(input).logits));
  }
}

TEST_CASE("blockwise_recurrent gradients: a tied table gets the sum of its two uses") {
  for (const std::string& name : models_of("blockwise_recurrent")) {
    CAPTURE(name);
    ModelConfig config = blockwise_config(name);
    const auto tied = blockwise_model(config);
    config.tied = false;
    const auto untied = blockwise_model(config);
    for (const Parameter& parameter : untied->params().parameters())
      raw::copy_into(
          detach(parameter.value),
          values_of(*tied, parameter.name == "head.weight" ? std::string("embed.weight") : parameter.name));
    ForwardInput input;
    input.tokens = random_ids(2, 8, 11, 1);
    const Tensor targets = random_ids(2, 8, 11, 2);
    const Outcome one = run(*tied, input, targets), two = run(*untied, input, targets);
    check_close("logits", one.logits, two.logits, 1e-14);
    const Tensor sum = raw::copy(two.gradients.at("embed.weight"));
    raw::add_into(sum, two.gradients.at("head.weight"));
    check_close("grad.embed.weight", one.gradients.at("embed.weight"), sum, 1e-12);
  }
}

TEST_CASE("memory_llama gradients: a learned start of zero gets one at the published initialisation") {
  ModelConfig config = blockwise_config("memory_llama");
  config.init_std = 0.02;
  const auto model = make_model(config, Dtype::f64);
  model->params().initialize(1);
  ForwardInput input;
  input.tokens = random_ids(2, 8, 11, 1);
  const Outcome outcome = run(*model, input, random_ids(2, 8, 11, 2));
  for (const auto& [name, gradient] : outcome.gradients) {
    CAPTURE(name);
    REQUIRE(gradient.defined());
    CHECK(all_finite(gradient));
    CHECK(largest_magnitude(gradient) > 0);
  }
}

TEST_CASE("memory_llama gradients: carried segments leave no graph behind") {
  const auto model = blockwise_model(blockwise_config("memory_llama"));
  State state;
  std::int64_t nodes = 0;
  for (int segment = 0; segment < 6; ++segment) {
    ForwardInput input;
    input.tokens = random_ids(2, 8, 11, static_cast<std::uint64_t>(segment));
    input.state = state;
    const GraphStats before = graph_stats();
    const ForwardOutput output = model->forward(input);
    CHECK(!requires_grad(output.state.get("memory")));
    if (segment == 1) nodes = graph_stats().nodes - before.nodes;
    if (segment > 1) CHECK(graph_stats().nodes - before.nodes == nodes);
    state = output.state;  // as it is: nothing of the last segment's graph hangs onto it
    backward(cross_entropy(output.logits, random_ids(2, 8, 11, 2)));
    CHECK(graph_stats().saved_bytes == before.saved_bytes);
  }
}
