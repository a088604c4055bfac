// Where a run stood at its steps, for curves against tokens, operations and seconds.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "train/app/views/course.h"
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

TEST_CASE("a course is known at the recorded steps, between them, and not beyond") {
  const Course course(two_records().steps, 7);
  CHECK(course.at(15, Along::steps) == 15);
  CHECK(course.at(0, Along::tokens) == 0);
  CHECK(course.at(5, Along::tokens) == 500);
  CHECK(course.at(10, Along::tokens) == 1000);
  CHECK(course.at(15, Along::tokens) == 2000);
  CHECK(course.at(15, Along::seconds) == 5.5);
  CHECK(course.at(20, Along::operations) == 3 * 7 * 3000);
  CHECK(std::isnan(course.at(21, Along::tokens)));
}

TEST_CASE("a run that does not say how far it was has steps alone") {
  Metrics metrics;
  metrics.steps.push_back({.step = 10});
  const Course course(metrics.steps);
  CHECK(course.at(10, Along::steps) == 10);
  CHECK(std::isnan(course.at(0, Along::tokens)));
  CHECK(std::isnan(course.at(10, Along::seconds)));
  CHECK(std::isnan(Course(two_records().steps).at(10, Along::operations)));
}

TEST_CASE("a chart against tokens keeps its colours and loses what is not known") {
  Chart chart{"loss", "step", "nats", false, false, {}};
  chart.series.push_back({"beyond", {30, 40}, {1, 2}});
  chart.series.push_back({"known", {10, 30}, {3, 4}});
  const Chart drawn = drawn_along(chart, Course(two_records().steps), Along::tokens);
  CHECK(drawn.x_title == "tokens");
  REQUIRE(drawn.series.size() == 1);
  CHECK(drawn.series[0].name == "known");
  CHECK(drawn.series[0].colour == 1);
  CHECK(drawn.series[0].x == std::vector<double>{1000});
  CHECK(drawn.series[0].y == std::vector<double>{3});
  CHECK(drawn_along(chart, Course(two_records().steps), Along::steps).series.size() == 2);
}
