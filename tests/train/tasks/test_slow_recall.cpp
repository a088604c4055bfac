// Does recurrence learn to carry? Two hundred steps on a task that attention alone cannot do: with a window
// of 8, the first question stands 17 tokens behind the secret, and two layers of attention reach 16.
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

struct Learned {
  EvalResult with, cleared;
};

// Trains as the trainer does, and measures on fresh documents.
Learned learn(RunConfig config) {
  const std::unique_ptr<Task> task = task_of(config);
  const auto [model, optimizer] = begin_training(*task, config);
  CarriedState carried;
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    StepOptions options;
    options.learning_rate = learning_rate_at(config.train, config.train.learning_rate, step);
    options.step = step;
    options.carry_state = true;
    const StepResult result = train_step(*model, *optimizer, {task->next(step, 0)}, carried, options);
    REQUIRE(result.finite);
  }
  EvalOptions options;
  Learned learned;
  learned.with = task->evaluate(*model, options);
  options.clear_state = true;
  learned.cleared = task->evaluate(*model, options);
  return learned;
}

const std::string kConfigs = EDDY_SOURCE_DIR "/examples/configs/";
const double kChance = std::log(4.0);

}  // namespace

TEST_CASE("recall: a sliding window stays at chance") {
  RunConfig config = load_run_config(kConfigs + "recall.toml");
  config.model.model = "slide";
  config.model.recurrent_layers.clear();
  const Learned learned = learn(config);
  MESSAGE("slide: " << learned.with.loss << " nats, chance " << kChance);
  CHECK(learned.with.loss > kChance - 0.02);
}

TEST_CASE("recall: every gate and cell carries the secret and clearing the state loses it") {
  for (const std::string gate : {"fixed", "lstm"})
    for (const std::string cell : {"skip", "dual", "single"}) {
      CAPTURE(gate);
      CAPTURE(cell);
      RunConfig config = load_run_config(kConfigs + "recall.toml");
      config.model.gate = gate;
      config.model.cell = cell;
      const Learned learned = learn(config);
      MESSAGE(gate << ":" << cell << ": " << learned.with.loss << " nats; after a border "
                   << extra(learned.with, "after_border") << ", with the state cleared "
                   << extra(learned.cleared, "after_border"));
      CHECK(learned.with.loss <= 0.01);
      CHECK(extra(learned.with, "after_border") <= 0.01);
      CHECK(extra(learned.cleared, "after_border") >= kChance - 0.1);
    }
}

TEST_CASE("recall: feedback carries the secret and clearing the state loses a part of it") {
  for (const bool lstm : {false, true}) {
    const std::string gate = lstm ? "lstm" : "fixed", cell = lstm ? "single" : "skip";
    CAPTURE(gate);
    RunConfig config = load_run_config(kConfigs + "recall-feedback.toml");
    config.model.gate = gate;
    config.model.cell = cell;
    const Learned learned = learn(config);
    MESSAGE("feedback " << gate << ":" << cell << ": " << learned.with.loss << " nats; after a border "
                        << extra(learned.with, "after_border") << ", with the state cleared "
                        << extra(learned.cleared, "after_border"));
    CHECK(learned.with.loss <= 0.01);
    CHECK(extra(learned.with, "after_border") <= 0.01);
    // The upper layer's cached keys have read the state before the border: a part of the way back to chance.
    CHECK(extra(learned.cleared, "after_border") >= 0.1);
  }
}
