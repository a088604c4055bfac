// Captured batches of an evaluation: the bits of the same batches uncaptured.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "tensor/random/philox.h"
#include "tests/gpu/support/captured_model.h"
#include "tests/gpu/support/gpu_test.h"
#include "train/eval/evaluate.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::gpu_test;

namespace {

ModelConfig small_evaluated(const std::string& family, const std::string& name) {
  ModelConfig config = captured_model(family, name);
  config.dropout = 0.2;  // off in an evaluation
  if (name == "block_recurrent") config.recurrent_layers = {1};
  if (name == "memorizing") {
    config.memory_layers = {1};
    config.memory_size = 24;
    config.memory_topk = 5;
  }
  return config;
}

// Two rows of a segment. In odd batches one row begins anew, the one or the other by turns; in the sixth
// both.
Batch batch_of(int number) {
  const RandomKey key = random_key(3, "eval tokens", static_cast<std::uint64_t>(number));
  std::vector<std::int32_t> tokens, targets;
  for (std::uint64_t i = 0; i < 16; ++i) {
    tokens.push_back(static_cast<std::int32_t>(key.word(2 * i) % 11));
    targets.push_back(static_cast<std::int32_t>(key.word(2 * i + 1) % 11));
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(number % 3); ++i) targets[i] = kNotScored;
  std::vector<std::int64_t> starts;
  if (number % 2 == 1)
    starts = number % 4 == 1 ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{1, 0};
  if (number == 6) starts = {1, 1};
  return make_batch(2, tokens, targets, starts);
}

std::vector<float> floats(const Tensor& x) {
  return raw::contiguous(to_cpu(x)).to_vector<float>();
}

constexpr int kBatches = 10;

// Evaluates twice, captured and not, and compares losses, logits and states. Returns the graphs.
std::size_t compare(const ModelConfig& config, EvalPlan plan, Dtype dtype = Dtype::f32) {
  const NoGrad no_grad;
  const auto model = make_model(config, dtype, gpu());
  model->params().initialize(7);
  Recorder captured(model->params(), eval_recorder(plan));
  plan.capture = false;
  Recorder eager(model->params(), eval_recorder(plan));
  CarriedState got_state, want_state;
  for (int i = 0; i < kBatches; ++i) {
    CAPTURE(i);
    const BatchLosses want = evaluate_batch(*model, batch_of(i), want_state, plan, eager),
                      got = evaluate_batch(*model, batch_of(i), got_state, plan, captured);
    CHECK(floats(got.losses) == floats(want.losses));
    CHECK(got.logits.defined() == plan.count_correct);
    if (plan.count_correct)
      CHECK(floats(raw::cast(got.logits, Dtype::f32)) == floats(raw::cast(want.logits, Dtype::f32)));
    CHECK(got.carried == want.carried);
    CHECK(got_state.rows == want_state.rows);
    REQUIRE(got_state.state.size() == want_state.state.size());
    for (const auto& [name, tensor] : want_state.state)
      if (tensor.dtype() == Dtype::f32) CHECK(floats(got_state.state.get(name)) == floats(tensor));
    if (i == 5) poison_gpu();  // what a graph reads must not be handed out to others
  }
  CHECK(eager.graphs() == 0);
  return captured.graphs();
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("captured batches of an evaluation carry a state on and rows begin anew in them") {
    EvalPlan plan;
    plan.carry_state = true;
    for (const auto& [family, name] :
         std::vector<std::pair<std::string, std::string>>{{"block_recurrent", "block_recurrent"},
                                                          {"block_recurrent", "memorizing"},
                                                          {"blockwise_recurrent", "memory_llama"},
                                                          {"staircase", "transformer_xl"}}) {
      CAPTURE(name);
      CHECK(compare(small_evaluated(family, name), plan) == 2);
    }
    CHECK(compare(small_evaluated("block_recurrent", "memorizing"), plan, Dtype::bf16) == 2);
  }

  TEST_CASE("captured batches of an evaluation give the logits where they are wanted") {
    EvalPlan plan;
    plan.count_correct = true;
    CHECK(compare(small_evaluated("recurrent_transformer", "block_forget"), plan) >= 1);
    CHECK(compare(small_evaluated("recurrent_transformer", "regular"), plan, Dtype::bf16) >= 1);
  }

  TEST_CASE("an evaluation whose state is cleared at every batch gives the same captured") {
    const auto model = make_model(small_evaluated("block_recurrent", "memorizing"), Dtype::f32, gpu());
    model->params().initialize(7);
    EvalPlan plan;
    plan.carry_state = plan.clear_state = plan.count_correct = true;
    const auto measured = [&](bool capture) {
      plan.capture = capture;
      int number = 0;
      return evaluate_batches(
          *model,
          [&](Batch& batch) {
            batch = batch_of(number);
            return number++ < kBatches;
          },
          plan);
    };
    const EvalResult want = measured(false), got = measured(true);
    CHECK(got.loss == want.loss);
    CHECK(got.tokens == want.tokens);
    CHECK(got.carried);
    CHECK(got.metrics == want.metrics);
  }
}
