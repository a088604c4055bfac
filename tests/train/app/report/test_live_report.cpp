// The page of a run that trains: how often it is written, and how the run stands.
#include "train/app/report/live_report.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tiny_run.h"
#include "train/files/text_file.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

}  // namespace

TEST_CASE("live report: it is written at once, and then after a hundred times has passed what it took") {
  ShowTimer timer;
  CHECK(timer.is_due(0));
  timer.note(0, 0.01);
  CHECK_FALSE(timer.is_due(3));
  CHECK(timer.is_due(3.02));
  timer.note(10, 11);
  CHECK_FALSE(timer.is_due(110));
  CHECK(timer.is_due(111.5));
}

TEST_CASE("live report: what it is made of does not grow with the run") {
  MetricsSummary records;
  for (std::int64_t i = 1; i <= 300'000; ++i) {
    records.add(StepRecord{.step = i, .loss = 1.0 / static_cast<double>(i)});
    records.add(EvalRecord{.step = i, .loss = 1});
    records.add(SampleRecord{i, "text"});
    records.add(EventRecord{i, "event"});
  }
  const Metrics metrics = records.metrics();
  CHECK(metrics.steps.size() <= 8192 + 20);
  CHECK(metrics.evals.size() <= 4098);
  CHECK(metrics.samples.size() <= 65);
  CHECK(metrics.events.size() <= 400);
  CHECK(metrics.written_samples == 300'000);
}

TEST_CASE("live report: a run that has ended says so on its page, and one that goes on is written again") {
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const auto page = [&] { return read_text_file(request.run_dir + "/report.html"); };
  CHECK(contains(page(), "<strong>finished</strong> at step 6"));
  CHECK_FALSE(contains(page(), "data-every"));
  CHECK(contains(page(), "to write with it: <code>eddy chat "));
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
  CHECK(contains(page(), "<strong>finished</strong> at step 8"));
}
