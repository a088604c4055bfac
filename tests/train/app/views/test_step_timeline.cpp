// Where a run stood at its steps, for curves against tokens, operations and seconds.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "train/app/views/step_timeline.h"
#include "train/record/metrics.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;

Metrics two_records() {
  Metrics metrics;
  metrics.steps.push_back({.step = 10, .tokens = 1000, .seconds = 5});
  metrics.steps.push_back({.step = 20, .tokens = 3000, .seconds = 6});
  return metrics;
}

}  // namespace

TEST_CASE("step timeline: it is known at the recorded steps, between them, and not beyond") {
  const StepTimeline timeline(two_records().steps, 7);
  CHECK(timeline.at(15, XAxis::steps) == 15);
  CHECK(timeline.at(0, XAxis::tokens) == 0);
  CHECK(timeline.at(5, XAxis::tokens) == 500);
  CHECK(timeline.at(10, XAxis::tokens) == 1000);
  CHECK(timeline.at(15, XAxis::tokens) == 2000);
  CHECK(timeline.at(15, XAxis::seconds) == 5.5);
  CHECK(timeline.at(20, XAxis::operations) == 3 * 7 * 3000);
  CHECK(std::isnan(timeline.at(21, XAxis::tokens)));
}

TEST_CASE("a run that does not say how far it was has steps alone") {
  Metrics metrics;
  metrics.steps.push_back({.step = 10});
  const StepTimeline timeline(metrics.steps);
  CHECK(timeline.at(10, XAxis::steps) == 10);
  CHECK(std::isnan(timeline.at(0, XAxis::tokens)));
  CHECK(std::isnan(timeline.at(10, XAxis::seconds)));
  CHECK(std::isnan(StepTimeline(two_records().steps).at(10, XAxis::operations)));
}

TEST_CASE("a chart against tokens keeps its colours and loses what is not known") {
  Chart chart{"loss", "step", "nats", false, false, {}};
  chart.series.push_back({"beyond", {30, 40}, {1, 2}});
  chart.series.push_back({"known", {10, 30}, {3, 4}});
  const Chart drawn = with_x_axis(chart, StepTimeline(two_records().steps), XAxis::tokens);
  CHECK(drawn.x_title == "tokens");
  REQUIRE(drawn.series.size() == 1);
  CHECK(drawn.series[0].name == "known");
  CHECK(drawn.series[0].colour == 1);
  CHECK(drawn.series[0].x == std::vector<double>{1000});
  CHECK(drawn.series[0].y == std::vector<double>{3});
  CHECK(with_x_axis(chart, StepTimeline(two_records().steps), XAxis::steps).series.size() == 2);
}
