// The learning rate of whole runs that their minutes end, by a clock that moves each time it is looked at.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/run/trainer.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

std::function<double()> clock_of(double seconds_a_look) {
  return [seconds_a_look, now = std::make_shared<double>(0)] { return *now += seconds_a_look; };
}

// Six seconds of that clock.
TrainRequest timed_run(const TempFolder& folder, const std::string& name) {
  TrainRequest request = tiny_run(folder, name);
  TrainConfig& t = request.config.train;
  t.schedule = "cosine";
  t.steps = 1'000'000;
  t.warmup = 100'000;
  t.minutes = 0.1;
  t.log_every = 1000;
  request.clock = clock_of(0.005);
  return request;
}

}  // namespace

TEST_CASE("train: warm-up and decay end with the minutes of a run") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = timed_run(folder, "run");
  const double highest = request.config.train.learning_rate;
  CHECK(train_quietly(request) == TrainEnd::time_over);
  const std::vector<StepRecord> steps = metrics_of(request.run_dir).steps;
  REQUIRE(steps.size() > 20);
  CHECK(steps.front().progress == 0);
  double most = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    CAPTURE(i);
    if (i > 0) CHECK(steps[i].progress >= steps[i - 1].progress);
    CHECK(steps[i].learning_rate ==
          learning_rate_at(request.config.train, highest, steps[i].step - 1, steps[i].progress));
    most = std::max(most, steps[i].learning_rate);
  }
  CHECK(most > 0.9 * highest);
  CHECK(steps.back().progress > 0.9);
  CHECK(steps.back().learning_rate < 0.05 * highest);
  CHECK(load_run(request.run_dir).state.progress == steps.back().progress);
  CHECK(contains(events_of(request.run_dir), "the learning rate follows the 0.1 minutes"));
}

TEST_CASE("train: a run of limited minutes is evaluated early on, however far its first evaluation is") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = timed_run(folder, "run");
  request.config.train.eval_every = 500'000;
  request.config.train.eval_batches = 1;
  CHECK(train_quietly(request) == TrainEnd::time_over);
  const std::vector<EvalRecord> evals = metrics_of(request.run_dir).evals;
  REQUIRE(evals.size() == 2);
  CHECK(evals.front().step > 0);
  CHECK(evals.front().step < evals.back().step / 2);
}

TEST_CASE("train: steps that are done again take the progress that is recorded, to the bit") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = timed_run(folder, "run");
  request.config.train.checkpoint_every = 10;
  request.config.train.keep = 1000;
  CHECK(train_quietly(request) == TrainEnd::time_over);
  const std::vector<StepRecord> before = metrics_of(request.run_dir).steps;
  const std::string later = request.run_dir + "/checkpoints/step-20";
  const std::string weights = bytes_of(later, "model.safetensors"),
                    moments = bytes_of(later, "optimizer.safetensors");

  // As after a kill, with a clock of another pace, and time left at the end.
  TrainRequest rest = resumed(request, request.config.train.steps);
  rest.checkpoint = "step-10";
  rest.clock = clock_of(0.002);
  CHECK(train_quietly(rest) == TrainEnd::time_over);
  CHECK(bytes_of(later, "model.safetensors") == weights);
  CHECK(bytes_of(later, "optimizer.safetensors") == moments);
  const std::vector<StepRecord> after = metrics_of(request.run_dir).steps;
  REQUIRE(after.size() > before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(after[i].step == before[i].step);
    CHECK(after[i].progress == before[i].progress);
    CHECK(after[i].loss == before[i].loss);
  }
  // Then the rate goes back up, says so, and falls to the new end.
  CHECK(after[before.size()].progress < before.back().progress);
  CHECK(contains(events_of(request.run_dir), "the learning rate goes back up at step"));
  CHECK(after.back().progress > 0.9);
}

TEST_CASE("train: a rate that had fallen by its steps goes back up for more of them and says so") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.schedule = "cosine";
  CHECK(train_quietly(request) == TrainEnd::finished);
  CHECK(std::isnan(load_run(request.run_dir).state.progress));
  CHECK(train_quietly(resumed(request, 12)) == TrainEnd::finished);
  CHECK(contains(events_of(request.run_dir), "the learning rate goes back up at step 6, from 0 to "));
  CHECK(contains(events_of(request.run_dir), "spans the whole run, 12 steps"));
}
