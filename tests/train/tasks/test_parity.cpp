// The parity task: its bits, their answers, and what it measures.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tasks.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

using Ids = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("parity: each target says whether the ones so far are odd, and both bits occur equally often") {
  const std::unique_ptr<Task> task = task_of(parity_config(50));
  CHECK(!task->carries_state());
  CHECK(task->row_length() == 12);
  const Batch batch = task->next(0, 0);
  const Ids tokens = batch.tokens.to_vector<std::int32_t>(),
            targets = batch.targets.to_vector<std::int32_t>();
  REQUIRE(tokens.size() == 600);
  std::int32_t ones = 0, all_ones = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i % 12 == 0) ones = 0;
    ones += tokens[i];
    all_ones += tokens[i];
    CHECK(targets[i] == ones % 2);
  }
  // 600 fair draws: standard deviation 12.2; 5 of those are allowed.
  CHECK(all_ones > 239);
  CHECK(all_ones < 361);
  CHECK(task->next(0, 0).tokens.to_vector<std::int32_t>() == tokens);
  CHECK(task->next(1, 0).tokens.to_vector<std::int32_t>() != tokens);
}

TEST_CASE(
    "parity: an evaluation counts correct answers at every position, and what does not fit is refused") {
  RunConfig config = parity_config(50);
  const std::unique_ptr<Task> task = task_of(config);
  task->set_model_sizes(config.model);
  CHECK(config.model.vocab == 2);
  const std::unique_ptr<Model> model = make_model(config.model, Dtype::f64);
  model->params().initialize(1);
  EvalOptions options;
  options.batch = 4;
  options.batches = 3;
  options.by_position = true;
  const EvalResult result = task->evaluate(*model, options);
  CHECK(result.tokens == 4 * 3 * 12);
  CHECK(extra(result, "accuracy") >= 0);
  CHECK(extra(result, "accuracy") <= 1);
  REQUIRE(result.position_count.size() == 12);
  for (const std::int64_t count : result.position_count) CHECK(count == 12);
  options.split = Split::test;
  CHECK(task->evaluate(*model, options).loss != result.loss);
  options.split = Split::train;
  CHECK(contains(error_of<ValueError>([&] { task->evaluate(*model, options); }), "no split"));
  config.model.vocab = 3;
  CHECK(contains(error_of<ConfigError>([&] { task->set_model_sizes(config.model); }), "parity has 2 tokens"));
  config.model.vocab = 0;
  config.model.readout = "last";
  CHECK(contains(error_of<ConfigError>([&] { task->set_model_sizes(config.model); }),
                 "each bit has an answer"));
}
