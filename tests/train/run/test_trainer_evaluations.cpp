// The evaluations of whole runs: what they measure, and when. How minutes are spent is in
// tests/train/plan/test_time_limit.cpp.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/config/run_config.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/run/trainer.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

}  // namespace

TEST_CASE("train: evaluations measure the same sample and the end the whole split") {
  const OneThread one;
  const TempFolder folder;
  for (const std::string order : {"windows", "stream"}) {
    CAPTURE(order);
    TrainRequest request = tiny_run(folder, order);
    request.config.data.order = order;
    if (order == "stream") {
      request.config.model.family = "staircase";
      request.config.model.model = "lstm";
    }
    request.config.train.eval_batches = -1;
    request.config.train.eval_every = 2;
    request.config.train.learning_rate = 0;  // the same model each time
    CHECK(train_quietly(request) == TrainEnd::finished);
    const std::vector<EvalRecord> evals = metrics_of(request.run_dir).evals;
    REQUIRE(evals.size() == 5);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(evals[i].step == 2 * static_cast<std::int64_t>(i));
      CHECK(evals[i].tokens == 4 * 16);  // a batch, more than a tenth of two
      CHECK(evals[i].of == evals[4].tokens);
      CHECK(evals[i].loss == evals[0].loss);
      CHECK(!evals[i].whole);
    }
    CHECK(evals[4].whole);
    CHECK(evals[4].step == 6);
    CHECK(evals[4].tokens > 4 * 16);
    CHECK(evals[4].tokens == evals[4].of);
    CHECK(contains(read_text_file(request.run_dir + "/report.html"), "whole split"));
    // What the best is judged by are the samples.
    CHECK(load_run(request.run_dir).state.best_loss == evals[0].loss);
  }
}

TEST_CASE("train: the sample is a tenth of what is trained between two evaluations") {
  TrainConfig config;
  config.eval_every = 250;
  CHECK(eval_sample_batches(config) == 25);
  config.accumulate = 4;
  CHECK(eval_sample_batches(config) == 100);
  config.batch = 1;
  CHECK(eval_sample_batches(config) == 100);
  config.eval_every = config.accumulate = 1;
  CHECK(eval_sample_batches(config) == 1);
}

TEST_CASE("train: a run on samples that was stopped goes on to the metrics of an unbroken one") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest whole = tiny_run(folder, "whole"), part = tiny_run(folder, "part");
  for (TrainRequest* request : {&whole, &part}) {
    request->config.train.eval_batches = -1;
    request->config.train.eval_every = 2;
  }
  part.config.train.steps = 4;
  CHECK(train_quietly(part) == TrainEnd::finished);
  CHECK(train_quietly(resumed(part, 6)) == TrainEnd::finished);
  CHECK(train_quietly(whole) == TrainEnd::finished);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    CHECK(bytes_of(latest_of(part.run_dir), file) == bytes_of(latest_of(whole.run_dir), file));
  std::vector<EvalRecord> mine = metrics_of(part.run_dir).evals;
  // But for the whole split where the first part ended.
  std::erase_if(mine, [](const EvalRecord& eval) { return eval.whole && eval.step == 4; });
  check_same_evaluations(mine, metrics_of(whole.run_dir).evals);
}

TEST_CASE("train: what simple predictors reach is measured once and stays with the run") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.eval_every = 2;
  CHECK(train_quietly(request) == TrainEnd::finished);
  const TrainingState first = load_run(request.run_dir).state;
  REQUIRE(first.baselines.has_value());
  CHECK(first.baselines->letters < first.baselines->uniform);
  CHECK(first.baselines->training_bytes + first.baselines->validation_bytes == 4000);
  CHECK(first.epoch_tokens == 3600);
  const std::string report = read_text_file(request.run_dir + "/report.html");
  for (const char* part :
       {"Is it good?", "letter frequencies", "fitted on all", "0.11 epochs", "far from done"})
    CHECK_MESSAGE(contains(report, part), part);
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
  const TrainingState second = load_run(request.run_dir).state;
  REQUIRE(second.baselines.has_value());
  // As text: where there is no xz, its number is NaN, which equals nothing.
  CHECK(to_json(*second.baselines).dump() == to_json(*first.baselines).dump());
  // Where nothing is evaluated there is no validation text.
  TrainRequest other = tiny_run(folder, "other");
  CHECK(train_quietly(other) == TrainEnd::finished);
  CHECK(!load_run(other.run_dir).state.baselines.has_value());
}

TEST_CASE("train: a run of limited minutes is not evaluated before its first step") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  TrainConfig& t = request.config.train;
  t.eval_batches = -1;
  t.eval_every = 1000;
  t.steps = 1'000'000;
  t.minutes = 0.05;
  t.log_every = 1000;
  t.sample_tokens = 5;
  CHECK(train_quietly(request) == TrainEnd::time_over);
  const Metrics metrics = metrics_of(request.run_dir);
  REQUIRE(!metrics.evals.empty());
  CHECK(metrics.evals.front().step > 0);
  CHECK(load_run(request.run_dir).step > 0);
}
