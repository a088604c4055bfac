// Gradients: at the published initialisation, of a tied table, of several segments, over several calls, of targets
// that are not scored, how far back through time they reach, and what of a graph stays.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "models/eddy/config.h"
#include "ops/pointwise/pointwise.h"
#include "tests/models/every_model.h"

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
  for (const auto& [name, given] : every_case()) {
    CAPTURE(given.model);
    CAPTURE(name);
    ModelConfig config = given;
    config.init_std = 0.02;
    config.detach = "segment";
    const auto model = make_model(config, Dtype::f64);
    model->params().initialize(1);
    const std::int64_t time = uneven_time(config);
    const Outcome outcome =
        run(*model, input_for(config, random_ids(3, time, config.vocab, 1)), targets_for(*model, 3, time));
    for (const auto& [parameter, gradient] : outcome.gradients) {
      CAPTURE(parameter);
      const bool reached = gradient.defined() && largest_magnitude(gradient) > 0;
      CHECK(reached == without_influence(config, parameter).empty());
      if (gradient.defined()) CHECK(all_finite(gradient));
      if (!parameter.ends_with("wqkv.weight")) continue;
      for (const std::int64_t part : {0, 1, 2})  // q, k, v
        CHECK(largest_magnitude(raw::narrow(gradient, 0, part * config.dim, config.dim)) > 0);
    }
  }
}

TEST_CASE("model gradients: a tied table gets the sum of its two uses") {
  for_every_case([](const ModelConfig& config, Model& tied) {
    if (!reads_key(config, "tied") || !config.tied) return;
    ModelConfig changed = config;
    changed.tied = false;
    const auto untied = model_of(changed);
    for (const Parameter& parameter : untied->params().parameters())
      raw::copy_into(
          detach(parameter.value),
          detach(tied.params().get(parameter.name == "head.weight" ? "embed.weight" : parameter.name).value));
    const std::int64_t time = uneven_time(config);
    const ForwardInput input = input_for(config, random_ids(2, time, config.vocab, 1));
    const Tensor targets = targets_for(tied, 2, time);
    const Outcome one = run(tied, input, targets), two = run(*untied, input, targets);
    check_close("logits", one.logits, two.logits, 1e-14);
    const Tensor sum = raw::copy(two.gradients.at("embed.weight"));
    raw::add_into(sum, two.gradients.at("head.weight"));
    check_close("grad.embed.weight", one.gradients.at("embed.weight"), sum, 1e-12);
  });
}

TEST_CASE("model gradients: those of several segments are those of their calls one by one") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const std::int64_t length = family_case(config).gradient_segment(config);
    if (length == 0) return;
    const Tensor tokens = random_ids(2, 3 * length, config.vocab, 4),
                 targets = random_ids(2, 3 * length, model.config().n_out, 5);
    const Outcome whole = run(model, input_for(config, tokens), targets);
    std::map<std::string, Tensor> means;
    State state;
    for (std::int64_t at = 0; at < 3 * length; at += length) {
      const Outcome one =
          run(model, input_for(config, part(tokens, at, length), state), part(targets, at, length));
      const NoGrad no_grad;
      for (const auto& [name, gradient] : one.gradients)
        if (gradient.defined())
          means[name] = means.contains(name) ? means[name] + gradient * (1.0 / 3) : gradient * (1.0 / 3);
      state = one.state;
    }
    for (const auto& [name, gradient] : whole.gradients) {
      CHECK_MESSAGE(gradient.defined() == means.contains(name), name);
      if (gradient.defined()) check_close(name, means.at(name), gradient, 1e-10, kFloor);
    }
  });
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
  for (const char* name : {"unit_forget", "block_forget", "block_accumulate"}) {
    CAPTURE(name);
    ModelConfig config = block_config(name, 8);
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
    for (const std::int64_t place : {0, 1, 7, 8, 128, 255}) {
      CAPTURE(place);
      const Tensor row = raw::narrow(fast, 0, place, 1);
      CHECK(largest_magnitude(row) > 0);
      // Each row on its own scale: a detach after some steps would leave the large rows right.
      check_close("row", row, raw::narrow(literal, 0, place, 1), 1e-6, 0);
    }
  }
}

TEST_CASE(
    "model gradients: nothing is recorded inside NoGrad and nothing stays after backward or in a state") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const std::int64_t time = call_time(config);
    const Tensor targets = targets_for(model, 2, time);
    ForwardInput input = input_for(config, random_ids(2, time, config.vocab, 1));
    const GraphStats before = graph_stats();
    {
      const NoGrad no_grad;
      CHECK(!requires_grad(model.forward(input).logits));
    }
    CHECK(graph_stats().recorded == before.recorded);
    std::int64_t nodes = 0;
    for (int call = 0; call < 4; ++call) {
      const ForwardOutput output = model.forward(input);
      CHECK(graph_stats().recorded > before.recorded);
      for (const auto& [name, tensor] : output.state) CHECK_MESSAGE(!requires_grad(tensor), name);
      if (call == 2) nodes = graph_stats().nodes;
      if (call == 3) CHECK(graph_stats().nodes == nodes);
      input.state = output.state;  // as it is: nothing of the last call's graph hangs onto it
      backward(cross_entropy(output.logits, targets));
      model.params().zero_gradients();
    }
    CHECK(graph_stats().nodes == before.nodes);
    CHECK(graph_stats().saved_bytes == before.saved_bytes);
  });
}
