// How the minutes of a run are spent.
#include <doctest/doctest.h>

#include <cmath>

#include "train/plan/time_limit.h"

using namespace eddy;
using namespace eddy::training;

TEST_CASE("time limit: without minutes everything fits") {
  TimeLimit limit(0);
  CHECK(!limit.is_set());
  limit.note_step(1e9, 10);
  CHECK(limit.step_fits(1e9));
  CHECK(!limit.step_is_late(1e9));
  CHECK(std::isinf(limit.end()));
  CHECK(limit.whole_fits(1e9, 1e9));
}

TEST_CASE("time limit: the steps end before what closes the run") {
  TimeLimit limit(2);  // 120 s
  CHECK(limit.step_fits(119));
  CHECK(!limit.step_fits(120));
  limit.note_save(3);
  limit.note_report(1);
  limit.note_sample(2);
  limit.plan_evaluation(1000, true);
  limit.note_evaluation(4, 1000, 1000);
  limit.note_step(1, 100);
  CHECK(limit.step_fits(106.9));  // 2 saves, report, sample and evaluation take 13 s
  CHECK(!limit.step_fits(107.1));
  CHECK(limit.end() == doctest::Approx(126));
}

TEST_CASE("time limit: a step that would end late is not begun and one that takes longer is given up") {
  TimeLimit limit(2);
  limit.note_step(20, 100);
  CHECK(limit.step_fits(105));
  CHECK(!limit.step_fits(107));  // to 127 s
  CHECK(!limit.step_is_late(125));
  CHECK(limit.step_is_late(126));
}

TEST_CASE("time limit: the whole split is planned for where it takes a tenth") {
  TimeLimit limit(2);
  limit.plan_evaluation(1000, true);
  limit.note_evaluation(2, 1000, 6000);  // 12 s for the whole
  CHECK(limit.whole_seconds() == doctest::Approx(12));
  CHECK(limit.step_fits(105.9));
  CHECK(!limit.step_fits(106.1));
  limit.note_evaluation(2, 1000, 7000);
  CHECK(limit.step_fits(117.9));
  CHECK(limit.whole_fits(112, limit.whole_seconds()));
  CHECK(!limit.whole_fits(113, limit.whole_seconds()));
}

TEST_CASE("time limit: before the first evaluation it is estimated from the steps") {
  TimeLimit limit(2);
  limit.plan_evaluation(1000, true);
  limit.note_step(1, 100);  // 1000 tokens in 10 s
  CHECK(limit.step_fits(109.9));
  CHECK(!limit.step_fits(110.1));
}

TEST_CASE("time limit: half of the minutes are for the steps, however long the rest takes") {
  TimeLimit limit(2);
  limit.note_save(1000);
  CHECK(limit.step_fits(59));
  CHECK(!limit.step_fits(61));
}

TEST_CASE("time limit: a first evaluation is due after a sixth of the minutes, or after 20 seconds") {
  CHECK(!TimeLimit(0).first_evaluation_is_due(1e9));
  CHECK(!TimeLimit(1).first_evaluation_is_due(9.9));
  CHECK(TimeLimit(1).first_evaluation_is_due(10));
  CHECK(!TimeLimit(60).first_evaluation_is_due(19.9));
  CHECK(TimeLimit(60).first_evaluation_is_due(20));
}

TEST_CASE("time limit: a part in between takes a quarter at most, and the first sample a fiftieth") {
  const TimeLimit limit(2);
  CHECK(limit.end_of_part(10) == doctest::Approx(40));
  CHECK(limit.end_of_part(110) == doctest::Approx(126));
  CHECK(limit.end_of_first_sample(1) == doctest::Approx(3.4));
}
