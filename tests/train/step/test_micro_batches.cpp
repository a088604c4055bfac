// Steps whose batches are split into micro-batches: the gradient, the order of its sum, the state, and the shares.
#include "train/config/run_config.h"
#include "train/step/train_step.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_model.h"
#include "tests/train/step/gradient_keeper.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// Two batches of 4 rows of 16 tokens. `unscored_rows`: the first so many rows of each have no target.
std::vector<Batch> two_batches(std::int64_t unscored_rows = 0) {
  std::vector<Batch> batches;
  const std::vector<std::int32_t> tokens = random_tokens(4 * 16 * 3, 7);
  for (std::ptrdiff_t i = 0; i < 2; ++i) {
    const auto begin = tokens.begin() + 64 * i;
    std::vector<std::int32_t> targets(begin + 1, begin + 65);
    std::fill_n(targets.begin(), 16 * unscored_rows, kNotScored);
    for (std::size_t at = 63 - 5; at < 64; ++at) targets[at] = kNotScored;  // fewer in the last row
    batches.push_back(make_batch(4, {begin, begin + 64}, targets));
  }
  return batches;
}

StepOptions options_of(std::int64_t micro_batches, bool carry_state = true) {
  StepOptions options;
  options.micro_batches = micro_batches;
  options.carry_state = carry_state;
  return options;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::abs(a[i] - b[i]);
    size += std::abs(a[i]);
  }
  return error / size;
}

}  // namespace

TEST_CASE("micro-batches: every model's gradient and state are those of whole batches") {
  const OneThread one;
  for (const ModelEntry& entry : model_registry()) {
    CAPTURE(entry.model);
    ModelConfig config;
    config.family = entry.family;
    config.model = entry.model;
    config.vocab = 7;
    config.context = config.dim = 16;
    config.heads = 2;
    config.init_std = 0.3;
    config.dropout = 0;
    choose_sizes(config, {"vocab", "context", "dim", "heads", "init_std", "dropout"});
    const std::unique_ptr<Model> model = tiny_model(config);
    GradientKeeper keeper(model->params());
    const bool carries = carries_state(config);
    for (const std::int64_t unscored : {0, 3}) {
      CAPTURE(unscored);
      const std::vector<Batch> batches = two_batches(unscored);
      CarriedState whole, parts;
      for (int step = 0; step < 2; ++step) {  // from a cold start, then from a state
        const StepResult expected = train_step(*model, keeper, batches, whole, options_of(1, carries));
        const Tensor gradients = keeper.gradients;
        const std::vector<bool> reached = keeper.reached;
        for (const std::int64_t micro_batches : {2, 4}) {
          CarriedState carried = parts;
          const StepResult result =
              train_step(*model, keeper, batches, carried, options_of(micro_batches, carries));
          CHECK(std::abs(result.loss - expected.loss) <= 1e-13);
          CHECK(keeper.reached == reached);
          // Sums of some thousand f64 terms in other orders.
          CHECK(distance(doubles(gradients), doubles(keeper.gradients)) <= 1e-11);
          REQUIRE(carried.state.size() == whole.state.size());
          CHECK(carried.rows == whole.rows);
          for (const State::Entry& of_whole : whole.state) {
            CAPTURE(of_whole.first);
            const Tensor& joined = carried.state.get(of_whole.first);
            CHECK(joined.shape() == of_whole.second.shape());
            const std::vector<double> a = doubles(of_whole.second), b = doubles(joined);
            for (std::size_t k = 0; k < a.size(); ++k) CHECK(!(std::abs(a[k] - b[k]) > 1e-12));
          }
          if (micro_batches == 4) parts = carried;
        }
      }
    }
  }
}

TEST_CASE("micro-batches: gradients are added as a tree, and batches in order") {
  const OneThread one;
  ModelConfig config = tiny_config("unit_forget", 7);
  config.dropout = 0;
  const std::unique_ptr<Model> model = tiny_model(config, Dtype::f32);
  GradientKeeper keeper(model->params());
  const std::vector<std::int32_t> tokens = random_tokens(2 * 64 + 1, 7);
  std::vector<Batch> batches;
  for (std::ptrdiff_t i = 0; i < 2; ++i)
    batches.push_back(make_batch(4, {tokens.begin() + 64 * i, tokens.begin() + 64 * (i + 1)},
                                 {tokens.begin() + 64 * i + 1, tokens.begin() + 64 * (i + 1) + 1}));
  // All parts have as many targets: the share of each of 8 is exactly 1/8, a power of two.
  std::vector<Tensor> parts;
  for (const Batch& batch : batches)
    for (std::int64_t part = 0; part < 4; ++part) {
      CarriedState carried;
      static_cast<void>(train_step(*model, keeper, {part_of_batch(batch, part, 4)}, carried, {}));
      parts.push_back(keeper.gradients);
    }
  CarriedState carried;
  static_cast<void>(train_step(*model, keeper, batches, carried, options_of(4, false)));
  const std::vector<float> sum = keeper.gradients.to_vector<float>();
  std::vector<std::vector<float>> g;
  for (const Tensor& part : parts) g.push_back(part.to_vector<float>());
  std::size_t other_order = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const auto part = [&](std::size_t k) { return g[k][i] / 8; };
    const float first = (part(0) + part(1)) + (part(2) + part(3)),
                second = (part(4) + part(5)) + (part(6) + part(7));
    REQUIRE(sum[i] == first + second);
    other_order +=
        sum[i] != ((((((part(0) + part(1)) + part(2)) + part(3)) + part(4)) + part(5)) + part(6)) + part(7);
  }
  CHECK(other_order > sum.size() / 10);  // so the order was seen
}

TEST_CASE("micro-batches: each draws a dropout mask of its own") {
  const OneThread one;
  ModelConfig config = tiny_config("unit_forget", 7);
  config.dropout = 0.5;
  const std::unique_ptr<Model> model = tiny_model(config);
  GradientKeeper keeper(model->params());
  const std::vector<std::int32_t> row = random_tokens(17, 7);
  std::vector<std::int32_t> tokens(row.begin(), row.end() - 1), targets(row.begin() + 1, row.end());
  const Batch single = make_batch(1, tokens, targets);
  const std::vector<std::int32_t> same_tokens = tokens, same_targets = targets;
  tokens.insert(tokens.end(), same_tokens.begin(), same_tokens.end());
  targets.insert(targets.end(), same_targets.begin(), same_targets.end());
  CarriedState carried;
  const double two =
      train_step(*model, keeper, {make_batch(2, tokens, targets)}, carried, options_of(2, false)).loss;
  // The masks of micro-batches 0 and 1 are those of two accumulated batches.
  const double both = train_step(*model, keeper, {single, single}, carried, options_of(1, false)).loss;
  const double first = train_step(*model, keeper, {single}, carried, options_of(1, false)).loss;
  CHECK(two == both);
  CHECK(two != first);
}

TEST_CASE("micro-batches: the source of a NaN is named in whichever of them it is") {
  const OneThread one;
  ModelConfig config = tiny_config("unit_forget", 7);
  config.dropout = 0;
  const std::unique_ptr<Model> model = tiny_model(config, Dtype::f32);
  const auto optimizer = make_optimizer(model->params(), {});
  const Tensor before = raw::copy(model->params().values());
  // Only the last row has token 6, whose row in the table of tokens is infinite.
  std::vector<std::int32_t> tokens(32, 1);
  tokens.back() = 6;
  const Parameter* table = nullptr;
  for (const Parameter& parameter : model->params().parameters())
    if (parameter.shape.rank() == 2 && parameter.shape[0] == 7 && table == nullptr) table = &parameter;
  REQUIRE(table != nullptr);
  raw::fill(raw::narrow(detach(table->value), 0, 6, 1), INFINITY);
  CarriedState carried;
  const StepResult result = train_step(
      *model, *optimizer, {make_batch(4, tokens, std::vector<std::int32_t>(32, 2))}, carried, options_of(4));
  CHECK(!result.finite);
  CHECK(result.problem.find(table->name) != std::string::npos);
  CHECK(optimizer->steps() == 0);
}

TEST_CASE("micro-batches: numbers that do not fit the batch are refused") {
  RunConfig config;
  config.train.batch = 12;
  for (const std::int64_t good : {1, 2, 4}) {
    config.train.micro_batches = good;
    CHECK_NOTHROW(validate(config));
  }
  for (const std::int64_t bad : {3, 8, 16}) {
    config.train.micro_batches = bad;
    CHECK(contains(error_of<ConfigError>([&] { validate(config); }), "train.micro_batches"));
  }
  CHECK(contains(error_of<ShapeError>([] { static_cast<void>(part_of_batch(two_batches().front(), 0, 3)); }),
                 "4 rows in 3 parts"));
}
