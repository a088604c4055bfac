// How much of a run is over for its learning rate, by a clock that the tests set.
#include "train/plan/run_progress.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace {

using namespace eddy;
using namespace eddy::training;

constexpr double kNoProgress = std::numeric_limits<double>::quiet_NaN();

TrainConfig cosine_for(double minutes, std::int64_t steps) {
  TrainConfig config;
  config.schedule = "cosine";
  config.minutes = minutes;
  config.steps = steps;
  return config;
}

}  // namespace

TEST_CASE("run progress: it is that of the steps alone without minutes and for a rate without an end") {
  TrainConfig config = cosine_for(0, 100);
  CHECK(std::isnan(RunProgress(config, 0, kNoProgress, {}).of_step(50, 30, 60)));
  config.minutes = 1;
  config.schedule = "rsqrt";
  CHECK(std::isnan(RunProgress(config, 0, kNoProgress, {}).of_step(50, 30, 60)));
  config.schedule = "constant";
  CHECK_FALSE(follows_time(config));
  config.warmup = 10;
  CHECK(follows_time(config));
}

TEST_CASE("run progress: it runs from the first step to the end of the steps") {
  RunProgress progress(cosine_for(1, 1'000'000), 0, kNoProgress, {});
  CHECK(progress.of_step(0, 10, 58) == 0);  // reading the text is no training
  CHECK(progress.of_step(1, 22, 58) == 0.25);
  CHECK(progress.of_step(2, 46, 58) == 0.75);  // an evaluation came between
  CHECK(progress.of_step(3, 58, 58) == 1);
}

TEST_CASE("run progress: it does not go back when the end comes later than it seemed to") {
  RunProgress progress(cosine_for(1, 1'000'000), 0, kNoProgress, {});
  CHECK(progress.of_step(0, 0, 50) == 0);
  CHECK(progress.of_step(1, 25, 50) == 0.5);
  CHECK(progress.of_step(2, 26, 59) == 0.5);
  CHECK(!progress.has_moved());
}

TEST_CASE("run progress: the steps lead where they end first, as if there were no minutes") {
  RunProgress progress(cosine_for(60, 4), 0, kNoProgress, {});
  for (std::int64_t step = 0; step < 4; ++step)
    CHECK(progress.of_step(step, 10.0 * static_cast<double>(step), 3600) == static_cast<double>(step) / 4);
}

TEST_CASE("run progress: the time moves in parts so that few steps have to be recorded") {
  RunProgress progress(cosine_for(1, 1'000'000), 0, kNoProgress, {});
  std::int64_t moves = 0;
  for (std::int64_t step = 0; step < 100'000; ++step) {
    static_cast<void>(progress.of_step(step, 60 * static_cast<double>(step) / 100'000, 60));
    if (progress.has_moved()) ++moves;
  }
  CHECK(moves <= 4096);
  CHECK(moves > 3000);
}

TEST_CASE("run progress: steps that were recorded are done again with what they had") {
  const std::vector<StepProgress> recorded{{11, 0.25}, {14, 0.5}, {15, 0.5}};
  RunProgress progress(cosine_for(1, 1000), 30, 0.125, recorded);
  CHECK(progress.of_step(10, 1, 99) == 0.25);
  CHECK(progress.of_step(11, 1, 99) == 0.25);
  CHECK(progress.of_step(12, 2, 99) == 0.25);
  CHECK(progress.of_step(13, 2, 99) == 0.5);
  CHECK(progress.is_recorded(14));
  CHECK(progress.of_step(14, 2, 99) == 0.5);
  // By now 32 of 128 seconds are over, those before and those of this process together.
  CHECK(!progress.is_recorded(15));
  CHECK(progress.of_step(15, 3, 99) == 0.25);
  CHECK(progress.has_moved());
  CHECK(progress.of_step(16, 67, 99) == 0.75);
}

TEST_CASE("run progress: a run that goes on without minutes goes by its steps again") {
  RunProgress progress(cosine_for(0, 1000), 30, 0.5, {{11, 0.75}});
  CHECK(progress.of_step(10, 1, 0) == 0.75);
  CHECK(std::isnan(progress.of_step(11, 2, 0)));
  CHECK(progress.has_moved());
}

TEST_CASE("run progress: a text says what the rate follows") {
  TrainConfig config = cosine_for(2, 5000);
  CHECK(schedule_text(config) ==
        "the learning rate follows the 2 minutes or the 5 000 steps, whichever end first: cosine");
  config.warmup = 100;
  CHECK(schedule_text(config).ends_with(": warm-up in the first 2 %, then cosine"));
  config.minutes = 0;
  CHECK(schedule_text(config).empty());
}
