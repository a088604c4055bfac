// Activations that the backward pass computes again (models/recompute.h): losses, gradients and states have the same
// bits for every model in every small configuration, with dropout, from a state,
// and over batches whose gradients add up.
#include "models/recompute.h"

#include <doctest/doctest.h>

#include <vector>

#include "autograd/tape.h"
#include "tests/models/bf16_models.h"
#include "tests/models/every_model.h"
#include "tests/support/errors.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

ModelConfig with_dropout(ModelConfig config) {
  config.dropout = 0.3;
  config.attn_dropout = 0.2;
  config.emb_dropout = config.out_dropout = 0.1;
  return config;
}

struct Trained {
  std::vector<double> losses;
  Tensor gradients;
  std::vector<State> states;
  std::int64_t saved = 0;  // bytes, after the forward pass of the first batch
};

// Two batches whose gradients add up, the second from the state of the first,
// or of `state` and then with rows that begin anew.
Trained trained(Model& model, std::int64_t time, const State& state, Recompute recompute) {
  const ModelConfig& config = model.full_config();
  model.params().zero_gradients();
  Trained result;
  ForwardInput input;
  input.state = state;
  for (std::uint64_t batch = 0; batch < 2; ++batch) {
    input.tokens = random_ids(2, time, config.vocab, 1 + batch);
    input.tail = rows_of(config, time);
    if (!input.state.empty()) input.start = starts_of(config, time);
    input.dropout = {true, 7, static_cast<std::int64_t>(batch)};
    input.recompute = recompute;
    const std::int64_t before = graph_stats().saved_bytes;
    const ForwardOutput output = model.forward(input);
    const Tensor loss = cross_entropy(output.logits, targets_for(model, 2, time));
    if (batch == 0) result.saved = graph_stats().saved_bytes - before;
    result.losses.push_back(raw::cast(detach(loss), Dtype::f64).item());
    backward(loss);
    result.states.push_back(copy_of(output.state.detach()));
    if (!input.state.empty()) input.state = result.states.back();
  }
  model.params().zero_missing_gradients();
  result.gradients = raw::copy(model.params().gradients());
  return result;
}

void check_model(Model& model) {
  const ModelConfig& config = model.full_config();
  const State carried = carried_state(model, 2);
  for (const bool goes_on : {false, true}) {
    if (goes_on && carried.empty()) continue;
    CAPTURE(goes_on);
    const std::int64_t time = goes_on ? 2 * call_time(config) : uneven_time(config);
    const State state = goes_on ? carried : State();
    const Trained kept = trained(model, time, state, Recompute::none);
    for (const Recompute recompute : {Recompute::layer, Recompute::block}) {
      if (recompute == Recompute::block && !model.has_blocks()) continue;
      CAPTURE(static_cast<int>(recompute));
      const Trained again = trained(model, time, state, recompute);
      CHECK(again.losses == kept.losses);
      CHECK(same_bits(again.gradients, kept.gradients));
      REQUIRE(again.states.size() == kept.states.size());
      for (std::size_t i = 0; i < kept.states.size(); ++i) {
        REQUIRE(again.states[i].size() == kept.states[i].size());
        for (const auto& [name, tensor] : kept.states[i])
          CHECK_MESSAGE(same_bits(again.states[i].get(name), tensor), name);
      }
      CHECK(again.saved < kept.saved);
    }
  }
}

}  // namespace

TEST_CASE("recompute: every model's losses, gradients and states have the same bits") {
  for (const auto& [name, config] : every_case()) {
    CAPTURE(config.model);
    CAPTURE(name);
    check_model(*model_of(with_dropout(config)));
  }
}

TEST_CASE("recompute: in f32 and in bf16 too, also where loops pack their weights") {
  for (ModelConfig plain : bf16_configs()) {
    CAPTURE(plain.model);
    plain.context = 32;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const std::string kind = dtype_name(dtype);
      CAPTURE(kind);
      const std::unique_ptr<Model> model = make_model(with_dropout(plain), dtype);
      model->params().initialize(3);
      check_model(*model);
    }
  }
}

TEST_CASE("recompute: a model without a loop over the sequence says so, and the others have one") {
  std::vector<std::string> without;
  for (const ModelName& name : model_registry()) {
    const std::unique_ptr<Model> model = make_model(even_config(name, 11, 16));
    CHECK_NOTHROW(model->check_recompute(Recompute::layer));
    if (model->has_blocks()) {
      CHECK_NOTHROW(model->check_recompute(Recompute::block));
      continue;
    }
    without.emplace_back(name.model);
    CHECK(contains(error_of<ConfigError>([&] { model->check_recompute(Recompute::block); }),
                   "no loop over the sequence"));
  }
  CHECK(without == std::vector<std::string>{"unit_forget", "regular", "slide", "xl", "vanilla", "memorizing",
                                            "llama", "llama_window", "ladder", "transformer_xl",
                                            "universal"});
  CHECK(contains(error_of<ConfigError>([] { recompute_named("all"); }), "none, layer or block"));
}
