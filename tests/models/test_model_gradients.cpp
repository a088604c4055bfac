// Gradients of the recurrent transformers without blocks: of targets that are not scored, at the published
// initialisation, of a tied table, over several calls, and how far back through time they reach.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/models/recurrent_transformer/recurrent_transformer_case.h"

using namespace eddy;
using namespace eddy::test;

TEST_CASE("model gradients: targets that are not scored have no part in any gradient") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    const auto model = random_model(small_config(name));
    ForwardInput input;
    input.tokens = random_ids(2, 6, 11, 1);
    const Tensor targets = random_ids(2, 6, 11, 2);
    for (const std::int64_t at : {1, 5, 6, 9}) targets.mutable_data<std::int64_t>()[at] = -1;
    check_directions(*model, input, targets);
  }
}

TEST_CASE("model gradients: every parameter gets one at the published initialisation") {
  for (const std::string& name : models_without_blocks())
    for (const double deviation : {0.02, 0.2}) {
      CAPTURE(name);
      CAPTURE(deviation);
      ModelConfig config = small_config(name);
      config.layers = 2;
      config.positions = config.bias = true;
      config.tied = false;
      config.init_std = deviation;
      const auto model = make_model(config, Dtype::f64);
      model->params().initialize(1);
      ForwardInput input;
      input.tokens = random_ids(3, 8, 11, 1);
      const Outcome outcome = run(*model, input, random_ids(3, 8, 11, 2));
      for (const auto& [parameter, gradient] : outcome.gradients) {
        CAPTURE(parameter);
        REQUIRE(gradient.defined());
        CHECK(all_finite(gradient));
        if (!parameter.ends_with("wqkv.weight")) {
          CHECK(largest_magnitude(gradient) > 0);
          continue;
        }
        for (const std::int64_t part : {0, 1, 2})
          CHECK(largest_magnitude(raw::narrow(gradient, 0, part * 12, 12)) > 0);  // q, k, v
      }
    }
}

TEST_CASE("model gradients: a tied table gets the sum of its two uses") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    ModelConfig config = small_config(name);
    const auto tied = random_model(config);
    config.tied = false;
    const auto untied = random_model(config);
    for (const Parameter& parameter : untied->params().parameters())
      raw::copy_into(
          detach(parameter.value),
          detach(
              tied->params().get(parameter.name == "head.weight" ? "embed.weight" : parameter.name).value));
    ForwardInput input;
    input.tokens = random_ids(2, 6, 11, 1);
    const Tensor targets = random_ids(2, 6, 11, 2);
    const Outcome one = run(*tied, input, targets), two = run(*untied, input, targets);
    check_close("logits", one.logits, two.logits, 1e-14);
    const Tensor sum = raw::copy(two.gradients.at("embed.weight"));
    raw::add_into(sum, two.gradients.at("head.weight"));
    check_close("grad.embed.weight", one.gradients.at("embed.weight"), sum, 1e-12);
  }
}

TEST_CASE("model gradients: they add up over calls until they are forgotten") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    const auto model = random_model(small_config(name));
    ForwardInput a, b;
    a.tokens = random_ids(2, 6, 11, 1);
    b.tokens = random_ids(2, 6, 11, 2);
    const Tensor targets = random_ids(2, 6, 11, 3);
    const Outcome first = run(*model, a, targets), second = run(*model, b, targets);
    static_cast<void>(run(*model, a, targets));
    backward(cross_entropy(model->forward(b).logits, targets));
    for (const Parameter& parameter : model->params().parameters()) {
      const Tensor sum = raw::copy(first.gradients.at(parameter.name));
      raw::add_into(sum, second.gradients.at(parameter.name));
      check_close(parameter.name, grad(parameter.value), sum, 1e-12);
    }
  }
}

TEST_CASE("model gradients: the last of 256 losses reaches the first input through the state") {
  ModelConfig config = small_config("unit_forget");
  config.context = 256;
  config.positions = true;
  config.readout = "last";
  const auto model = random_model(config);
  ForwardInput input;
  input.tokens = random_ids(1, 256, 11, 1);
  const Tensor targets = random_ids(1, 1, 11, 2);
  const Tensor fast = run(*model, input, targets).gradients.at("pos_embed.weight");
  input.literal = true;
  const Tensor literal = run(*model, input, targets).gradients.at("pos_embed.weight");
  for (const std::int64_t place : {0, 1, 128, 255}) {
    CAPTURE(place);
    const Tensor row = raw::narrow(fast, 0, place, 1);
    CHECK(largest_magnitude(row) > 0);
    // Each row on its own scale: a detach after some steps would leave the large rows right.
    check_close("row", row, raw::narrow(literal, 0, place, 1), 1e-6, 0);
  }
  CHECK(largest_magnitude(raw::narrow(fast, 0, 0, 1)) < largest_magnitude(raw::narrow(fast, 0, 255, 1)));
}

TEST_CASE("model gradients: nothing is recorded inside NoGrad and nothing stays after backward") {
  for (const std::string& name : models_without_blocks()) {
    CAPTURE(name);
    const auto model = random_model(small_config(name));
    ForwardInput input;
    input.tokens = random_ids(2, 6, 11, 1);
    const GraphStats before = graph_stats();
    {
      const NoGrad no_grad;
      CHECK(!requires_grad(model->forward(input).logits));
    }
    CHECK(graph_stats().recorded == before.recorded);
    static_cast<void>(run(*model, input, random_ids(2, 6, 11, 2)));
    CHECK(graph_stats().recorded > before.recorded);
    CHECK(graph_stats().nodes == before.nodes);
    CHECK(graph_stats().saved_bytes == before.saved_bytes);
  }
}
