// One step over batches: how their gradients add up, and the state between them.
#include "train/config/run_config.h"
#include "train/step/train_step.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "models/optimizer/adam.h"
#include "ops/core/capture.h"
#include "ops/index/gather.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_model.h"
#include "tests/train/step/gradient_keeper.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

struct NoKeys {};

// Counts in its state the calls since each row began; the logits depend on it.
class Counter final : public FamilyModel<NoKeys> {
 public:
  Counter() : FamilyModel({}) {
    ParamStore counted;
    static_cast<void>(counted.root().param("table", {4, 4}, Init::normal(1)));
    params() = ParamStore(counted, Dtype::f64, kCpu);
    table_ = params().root().param("table", {4, 4}, Init::normal(1));
    params().initialize(1);
  }
  ForwardOutput forward(const ForwardInput& input) const override {
    const std::int64_t batch = input.tokens.dim(0);
    std::vector<double> calls(static_cast<std::size_t>(batch), 0);
    if (const Tensor* before = input.state.find("calls")) calls = before->to_vector<double>();
    for (std::size_t row = 0; input.start.defined() && row < calls.size(); ++row)
      if (input.start.data<std::int64_t>()[row] != 0) calls[row] = 0;
    for (double& count : calls) count += 1 + poison;
    const Tensor scale = Tensor::from(calls, {batch, 1, 1});
    State state;
    state.set("calls", Tensor::from(calls, {batch}));
    const std::vector<double> same{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    return {input, {embedding(table_, input.tokens) * scale, Tensor::from(same, {4, 4}), {}}, state};
  }
  Tensor stream(const Tensor&, State&) const override { return {}; }
  std::int64_t remaining_context(const State&) const override { return -1; }
  std::optional<std::vector<std::int64_t>> stream_signature(const State&) const override { return {}; }
  std::int64_t stream_period() const override { return 1; }

  double poison = 0;

 private:
  Tensor table_;
};

std::vector<double> calls_of(const CarriedState& carried) {
  return carried.state.get("calls").to_vector<double>();
}

StepOptions carrying() {
  StepOptions options;
  options.carry_state = true;
  return options;
}

const std::vector<std::int32_t> kTokens{0, 1, 2, 3};  // two rows of two

}  // namespace

TEST_CASE("train_step: batches with different numbers of targets add up to the mean over all targets") {
  const OneThread one;
  ModelConfig config = tiny_config("unit_forget", 7);
  config.dropout = 0;
  const std::unique_ptr<Model> model = tiny_model(config);
  const std::vector<std::int32_t> a = random_tokens(5, 7), b = random_tokens(10, 7);
  const std::vector<std::int32_t> second(b.begin() + 5, b.end());
  const std::vector<std::int32_t> one_target{-1, -1, 3, -1, -1}, four_targets{1, 2, -1, 4, 5};
  std::vector<std::int32_t> rows = a, targets = one_target;
  rows.insert(rows.end(), second.begin(), second.end());
  targets.insert(targets.end(), four_targets.begin(), four_targets.end());
  const std::vector<Batch> together{make_batch(2, rows, targets)};
  const std::vector<Batch> apart{make_batch(1, a, one_target), make_batch(1, second, four_targets)};
  GradientKeeper keeper(model->params());
  CarriedState carried;
  const StepResult expected = train_step(*model, keeper, together, carried, {});
  const std::vector<double> gradients = doubles(keeper.gradients);
  const StepResult result = train_step(*model, keeper, apart, carried, {});
  const std::vector<double> again = doubles(keeper.gradients);
  CHECK(std::abs(result.loss - expected.loss) <= 1e-14);
  double error = 0, size = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    error += std::abs(gradients[i] - again[i]);
    size += std::abs(gradients[i]);
  }
  CHECK(size > 0.1);
  CHECK(error <= 1e-12 * size);  // sums of a few thousand f64 terms in another order
}

TEST_CASE(
    "train_step: the state goes from batch to batch and step to step and rows begin anew by their flag") {
  const OneThread one;
  Counter model;
  GradientKeeper keeper(model.params());
  CarriedState carried;
  const Batch plain = make_batch(2, kTokens, kTokens);
  train_step(model, keeper, {plain, plain}, carried, carrying());
  CHECK(calls_of(carried) == std::vector<double>{2, 2});
  train_step(model, keeper, {plain, make_batch(2, kTokens, kTokens, {0, 1})}, carried, carrying());
  CHECK(calls_of(carried) == std::vector<double>{4, 1});
  train_step(model, keeper, {make_batch(2, kTokens, kTokens, {1, 1})}, carried, carrying());
  CHECK(calls_of(carried) == std::vector<double>{1, 1});
  train_step(model, keeper, {plain}, carried, {});  // without carrying, the state is left alone
  CHECK(calls_of(carried) == std::vector<double>{1, 1});
  train_step(model, keeper, {make_batch(1, kTokens, kTokens)}, carried, carrying());  // other rows: cold
  CHECK(calls_of(carried) == std::vector<double>{1});
}

TEST_CASE("train_step: a batch without targets carries the state on and a step without any moves nothing") {
  const OneThread one;
  Counter model;
  GradientKeeper keeper(model.params());
  CarriedState carried;
  const Batch silent = make_batch(2, kTokens, std::vector<std::int32_t>(4, kNotScored));
  const StepResult nothing = train_step(model, keeper, {silent, silent}, carried, carrying());
  CHECK(nothing.finite);
  CHECK(std::isnan(nothing.loss));
  CHECK(keeper.steps() == 0);
  CHECK(calls_of(carried) == std::vector<double>{2, 2});
  const StepResult some =
      train_step(model, keeper, {silent, make_batch(2, kTokens, kTokens)}, carried, carrying());
  CHECK(std::isfinite(some.loss));
  CHECK(keeper.steps() == 1);
  CHECK(calls_of(carried) == std::vector<double>{4, 4});
}

TEST_CASE("train_step: a loss that is not finite is named and clears the state") {
  const OneThread one;
  Counter model;
  GradientKeeper keeper(model.params());
  CarriedState carried;
  const Batch plain = make_batch(2, kTokens, kTokens);
  train_step(model, keeper, {plain}, carried, carrying());
  carried.state.set("calls", Tensor::from(std::vector<double>{1, std::nan("")}, {2}));
  const StepResult bad = train_step(model, keeper, {plain}, carried, carrying());
  CHECK(!bad.finite);
  CHECK(contains(bad.problem, "the loss is not finite; the carried state calls holds a NaN"));
  CHECK(carried.state.empty());
  CHECK(keeper.steps() == 1);
  CHECK(train_step(model, keeper, {plain}, carried, carrying()).finite);
  keeper.norm = std::numeric_limits<double>::infinity();
  const StepResult steep = train_step(model, keeper, {plain}, carried, carrying());
  CHECK(!steep.finite);
  CHECK(contains(steep.problem, "the gradient is not finite; the sum of squares is too large"));
  CHECK(calls_of(carried) == std::vector<double>{2, 2});
}

TEST_CASE("train_step: on the CPU a recorder changes nothing and has nothing to tell") {
  const OneThread one;
  ModelConfig config = tiny_config("unit_forget", 7);
  TrainConfig train;
  const auto model = tiny_model(config), captured_model = tiny_model(config);
  const auto optimizer = make_optimizer(model->params(), train),
             captured_optimizer = make_optimizer(captured_model->params(), train);
  Recorder recorder(captured_model->params());
  CarriedState carried;
  StepOptions options;
  for (options.step = 0; options.step < 4; ++options.step) {
    options.learning_rate = 0.01 * static_cast<double>(options.step);
    const std::vector<Batch> batches{make_batch(2, random_tokens(8, 7), random_tokens(8, 7))};
    const StepResult want = train_step(*model, *optimizer, batches, carried, options);
    const StepResult got =
        train_step(*captured_model, *captured_optimizer, batches, carried, options, &recorder);
    CHECK(got.loss == want.loss);
    CHECK(got.grad_norm == want.grad_norm);
  }
  CHECK(captured_model->params().values().to_vector<double>() ==
        model->params().values().to_vector<double>());
  CHECK(captured_optimizer->steps() == 4);
  CHECK(recorder.graphs() == 0);
  CHECK(recorder.take_message() == "");
  CHECK_THROWS_AS(static_cast<void>(capture(kCpu, [] {})), DeviceError);
}

TEST_CASE("make_batch: sizes that do not fit are refused") {
  CHECK_THROWS_AS(static_cast<void>(make_batch(0, {1}, {1})), ShapeError);
  CHECK_THROWS_AS(static_cast<void>(make_batch(2, {1, 2, 3}, {1, 2})), ShapeError);
  CHECK_THROWS_AS(static_cast<void>(make_batch(2, {1, 2}, {1, 2, 3})), ShapeError);
  CHECK_THROWS_AS(static_cast<void>(make_batch(2, {1, 2}, {1, 2}, {1})), ShapeError);
  const Batch batch = make_batch(2, {1, 2, 3, 4}, {kNotScored, 2}, {0, 0});
  CHECK(batch.scored == 1);
  CHECK(!batch.start.defined());
}

TEST_CASE("train_step: a stop between two batches changes nothing") {
  const OneThread one;
  ModelConfig config = tiny_config("unit_forget", 7);
  const std::unique_ptr<Model> model = tiny_model(config, Dtype::f32);
  Adam optimizer(model->params(), OptimizerOptions());
  const std::vector<std::int32_t> tokens = random_tokens(8, 7);
  const Batch batch = make_batch(2, tokens, tokens);
  const std::vector<float> before = raw::contiguous(model->params().values()).to_vector<float>();
  CarriedState carried;
  StepOptions options;
  options.learning_rate = 0.1;
  options.carry_state = true;
  int asked = 0;
  options.stop = [&asked] { return ++asked == 2; };
  const StepResult stopped = train_step(*model, optimizer, {batch, batch, batch, batch}, carried, options);
  CHECK(stopped.stopped);
  CHECK(asked == 2);
  CHECK(carried.state.empty());
  CHECK(optimizer.steps() == 0);
  CHECK(raw::contiguous(model->params().values()).to_vector<float>() == before);
  // It is not asked before the first batch or after the last one.
  asked = 0;
  CHECK_FALSE(train_step(*model, optimizer, {batch, batch}, carried, options).stopped);
  CHECK(asked == 1);
  CHECK(optimizer.steps() == 1);
}
