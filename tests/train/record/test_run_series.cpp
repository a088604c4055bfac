// The reader of a run.
#include "train/record/run_series.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/config/run_config.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

Metrics evaluated() {
  Metrics metrics;
  metrics.evals = {{.step = 10, .loss = 3, .tokens = 8, .metrics = {{"accuracy", 0.25}}},
                   {.step = 10, .split = "test", .loss = 1, .tokens = 8},
                   {.step = 20, .loss = 2, .tokens = 8, .metrics = {{"accuracy", NAN}, {"state_gain", 0.5}}},
                   {.step = 30, .loss = 2.5, .tokens = 8, .of_task = true},
                   {.step = 40, .loss = NAN, .tokens = 8},
                   {.step = 40, .loss = 0.5, .tokens = 80, .metrics = {{"accuracy", 1}}, .whole = true}};
  return metrics;
}

}  // namespace

TEST_CASE("run series: evaluations compare that are of the valid split and not of the whole of it") {
  const RunSeries run(evaluated());
  const Series loss = run.evaluations("loss", "a");
  CHECK(loss.name == "a");
  CHECK(loss.x == std::vector<double>{10, 20, 30, 40});
  CHECK(loss.y[1] == 2);
  CHECK(std::isnan(loss.y[3]));
  CHECK(run.evaluations("accuracy").x == std::vector<double>{10, 20});
  CHECK(run.evaluations("nothing").x.empty());
  CHECK(run.measures() == std::vector<std::string>{"accuracy", "state_gain"});
  REQUIRE(run.best() != nullptr);
  CHECK(run.best()->step == 20);
  REQUIRE(run.whole() != nullptr);
  CHECK(run.whole()->loss == 0.5);
  CHECK(run.points().size() == 3);  // without the task's own
  CHECK(run.points(20).size() == 2);
}

TEST_CASE("run series: a series for each kind of evaluation is named by it") {
  const std::vector<Series> kinds = RunSeries(evaluated()).evaluations_by_split("loss");
  REQUIRE(kinds.size() == 3);
  CHECK(kinds[0].name == "validation");
  CHECK(kinds[0].x.size() == 4);
  CHECK(kinds[1].name == "test");
  CHECK(kinds[2].name == "validation, whole split");
}

TEST_CASE("run series: the best evaluation is of the texts as they are since they last grew") {
  Metrics metrics = evaluated();
  CHECK(RunSeries(metrics, 20).best()->step == 30);
  CHECK(RunSeries(metrics, 20).points().empty() == false);
  CHECK(RunSeries(metrics, 30).best() == nullptr);
  metrics.run = RunRecord{.step = 20};
  CHECK(RunSeries(metrics).best()->step == 30);
  CHECK(RunSeries(metrics, -1).best()->step == 20);  // as the caller knows better
  metrics.run->step = 0;                             // a run's first record is no growth
  CHECK(RunSeries(metrics).best()->step == 20);
}

TEST_CASE(
    "run series: the final training loss is the median of the last tenth and of twenty records at most") {
  const auto of = [](int steps) {
    Metrics metrics;
    for (int i = 1; i <= steps; ++i) metrics.steps.push_back({.step = i, .loss = static_cast<double>(i)});
    return RunSeries(metrics).final_training_loss();
  };
  CHECK(of(0).records == 0);
  CHECK(std::isnan(of(0).loss));
  CHECK(of(8).records == 1);
  CHECK(of(8).loss == 8);
  CHECK(of(40).records == 4);
  CHECK(of(40).loss == 39);
  CHECK(of(1000).records == 20);
  CHECK(of(1000).loss == 991);
}

TEST_CASE("run series: the numbers of steps are in order with the peaks between them") {
  Metrics metrics;
  metrics.steps = {{.step = 1, .loss = 3, .tokens_per_second = 10, .memory_bytes = 5},
                   {.step = 5, .loss = 2, .tokens_per_second = 30, .memory_bytes = 4}};
  metrics.peaks = {{.step = 3, .loss = 9}};
  metrics.events = {{7, "it ended"}};
  const RunSeries run(metrics);
  CHECK(run.steps(&StepRecord::loss).y == std::vector<double>{3, 2});
  CHECK(run.steps_and_peaks(&StepRecord::loss).y == std::vector<double>{3, 9, 2});
  CHECK(run.steps(&StepRecord::memory_bytes, "", 2).y == std::vector<double>{10, 8});
  CHECK(run.most(&StepRecord::memory_bytes) == 5);
  CHECK(run.tokens_per_second() == 30);
  CHECK(run.last_step() == 7);
  CHECK_FALSE(run.state_gain());
  CHECK(RunSeries(evaluated()).state_gain() == 0.5);
  CHECK_FALSE(run.empty());
  CHECK(RunSeries().empty());
}

TEST_CASE("run series: the first five of more than twenty steps say nothing of the speed") {
  const auto of = [](int steps) {
    Metrics metrics;
    for (int i = 0; i < steps; ++i)
      metrics.steps.push_back(
          {.step = i + 1, .tokens_per_second = i < 5 ? 1.0 : 1000.0 - i, .ms = i < 5 ? 1000.0 : i});
    return RunSeries(metrics);
  };
  CHECK(of(20).step_ms() == 15);
  CHECK(of(21).step_ms() == 13);
  CHECK(of(21).tokens_per_second() == 988);
  CHECK(std::isnan(of(0).step_ms()));
}

TEST_CASE("run series: a file is read as its records say and a missing one is an error") {
  const TempFolder folder;
  MetricsWriter writer(folder.write("metrics.jsonl", ""));
  writer.write(RunRecord{.step = 0, .name = "a"});
  writer.write(EvalRecord{.step = 10, .loss = 1, .tokens = 8});
  writer.write(RunRecord{.step = 10, .name = "a"});
  writer.write(EvalRecord{.step = 20, .loss = 2, .tokens = 8});
  CHECK(RunSeries::read(folder.path("metrics.jsonl")).best()->step == 20);
  CHECK_THROWS_AS(RunSeries::read(folder.path("none.jsonl")), IoError);
}

TEST_CASE("run series: runs are grouped by their configurations but for the seed") {
  RunConfig a, b, wide;
  b.train.seed = a.train.seed + 1;
  wide.model.dim = 2 * a.model.dim;
  const std::vector<std::vector<std::size_t>> groups = groups_by_seed({&a, nullptr, &wide, &b, nullptr});
  CHECK(groups == std::vector<std::vector<std::size_t>>{{0, 3}, {1}, {2}, {4}});
}

TEST_CASE("run series: a second run of one seed is a group of its own") {
  RunConfig a, copy, b;
  b.train.seed = a.train.seed + 1;
  const std::vector<std::vector<std::size_t>> groups = groups_by_seed({&a, &copy, &b, &b});
  CHECK(groups == std::vector<std::vector<std::size_t>>{{0, 2}, {1}, {3}});
}

TEST_CASE("run series: of several runs those that cannot be read are left out with a warning") {
  reset_warnings();
  const auto read = [](const std::string& folder) -> int {
    if (folder != "good") fail<IoError>("{} is damaged", folder);
    return 3;
  };
  CHECK(read_runs({"first", "good"}, read) == std::vector<int>{3});
  CHECK(take_warnings() == std::vector<std::string>{"the run first is left out: first is damaged"});
  CHECK(error_of<IoError>([&] { read_runs({"first", "second"}, read); }) == "first is damaged");
  CHECK(take_warnings().empty());
  CHECK(read_runs({}, read).empty());
}
