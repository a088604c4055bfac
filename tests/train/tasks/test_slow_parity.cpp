// The claim of the first page: one recurrent layer learns the parity of a stream of bits and keeps it, far beyond the
// length it was trained on, in a number of its state.
#include <doctest/doctest.h>

#include <string>

#include "models/optimizer/optimizer.h"
#include "tests/support/tasks.h"
#include "train/app/inspect/state_numbers.h"
#include "train/step/train_step.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

// How many of the bits of fresh streams a model answers rightly.
double accuracy_of(const Task& task, const Model& model) {
  EvalOptions options;
  return extra(task.evaluate(model, options), "accuracy");
}

}  // namespace

TEST_CASE("parity: one recurrent layer is right from step 120 on, at 256 bits too, and one number says why") {
  RunConfig config = load_run_config(EDDY_SOURCE_DIR "/examples/configs/parity.toml");
  for (const std::int64_t seed : {1337, 1, 2}) {
    CAPTURE(seed);
    config.train.seed = seed;
    const std::unique_ptr<Task> task = task_of(config);
    const auto [model, optimizer] = begin_training(*task, config);
    CarriedState carried;
    for (std::int64_t step = 0; step < config.train.steps; ++step) {
      StepOptions options;
      options.learning_rate = learning_rate_at(config.train, config.train.learning_rate, step);
      options.step = step;
      REQUIRE(train_step(*model, *optimizer, {task->next(step, 0)}, carried, options).finite);
      if (step >= 120 && step % 20 == 0) CHECK_MESSAGE(accuracy_of(*task, *model) >= 0.999, "step " << step);
    }
    CHECK(accuracy_of(*task, *model) == 1);

    RunConfig longer = config;
    longer.train.sequence = 256;
    longer.train.seed = seed + 1000;
    const StateStudy study = study_state(*model, task_of(longer)->next(0, 0), 1);
    MESSAGE("right: " << study.right << " of " << study.answers << ", " << study.numbers[0].name() << " by "
                      << study.numbers[0].separation << " standard deviations");
    CHECK(study.numbers.size() == 128);
    CHECK(static_cast<double>(study.right) >= 0.999 * static_cast<double>(study.answers));
    CHECK(study.numbers[0].separation > 30);
  }
}
