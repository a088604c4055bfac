// The short training of the copy task, at the sizes of its configuration: a hundred steps at 32 noise tokens,
// up to the first validation of the curriculum. Accumulate has learned by then to copy without an error;
// forget, whose state does not reach over the noise, has learned nothing.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "models/optimizer/optimizer.h"
#include "tests/support/tasks.h"
#include "train/step/train_step.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// What the curriculum measures after its first hundred steps.
EvalResult learn(const std::string& name) {
  RunConfig config = load_run_config(EDDY_SOURCE_DIR "/examples/configs/copy.toml");
  config.model.model = name;
  CHECK(config.data.noise == 32);
  CHECK(config.train.batch == 64);
  CHECK(config.train.learning_rate == 5e-4);
  const std::unique_ptr<Task> task = task_of(config);
  const auto [model, optimizer] = begin_training(*task, config);
  CarriedState carried;
  for (std::int64_t step = 0; step < 100; ++step) {
    const Batch batch = task->next(step, 0);
    CHECK(batch.block == 16);
    StepOptions options;
    options.learning_rate = task->learning_rate(step, config.train.learning_rate);
    options.step = step;
    options.seed = static_cast<std::uint64_t>(config.train.seed);
    const StepResult result = train_step(*model, *optimizer, {batch}, carried, options);
    REQUIRE(result.finite);
    const AfterStep after = task->after_step(*model, step + 1, result.loss);
    if (after.evaluation) return *after.evaluation;
  }
  return {};
}

}  // namespace

TEST_CASE("copy: accumulate copies without an error after a hundred steps") {
  const EvalResult result = learn("block_accumulate");
  MESSAGE("loss " << result.loss << ", accuracy " << extra(result, "accuracy"));
  CHECK(result.loss < 0.3);
  CHECK(extra(result, "accuracy") == 1);
}

TEST_CASE("copy: forget stays at chance for the same hundred steps") {
  const EvalResult result = learn("block_forget");
  MESSAGE("loss " << result.loss << ", accuracy " << extra(result, "accuracy"));
  CHECK(result.loss > 2.5);
  CHECK(extra(result, "accuracy") < 0.15);
}
