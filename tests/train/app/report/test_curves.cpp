// Curves of several runs: from which step on they are right for good, and the picture.
#include "train/app/report/curves.h"
#include "train/record/run_series.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/app/views/svg_picture.h"
#include "train/record/metrics.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

// A run whose evaluations, every 10 steps, have these accuracies.
std::string write_run(const TempFolder& folder, const std::string& name,
                      const std::vector<double>& accuracies) {
  const std::string file = folder.write(name + "/metrics.jsonl", "");
  MetricsWriter writer(file);
  std::int64_t step = 0;
  for (const double accuracy : accuracies) {
    writer.write(
        EvalRecord{.step = step, .loss = 1 - accuracy, .tokens = 8, .metrics = {{"accuracy", accuracy}}});
    step += 10;
  }
  return folder.path(name);
}

}  // namespace

TEST_CASE("curves: a run is right for good after its last fall") {
  const TempFolder folder;
  write_run(folder, "seeds/a", {0.5, 1, 1, 1});
  write_run(folder, "seeds/b", {0.5, 1, 0.9, 1});
  write_run(folder, "seeds/c", {0.5, 0.6, 1, 0.99});
  const CurveGroup group{"three", curves_of(folder.path("seeds"), "accuracy")};
  REQUIRE(group.curves.size() == 3);
  CHECK(step_for_good(group.curves[0], 1) == 10);
  CHECK(step_for_good(group.curves[1], 1) == 30);
  CHECK(!step_for_good(group.curves[2], 1));
  CHECK(step_for_good(group.curves[2], 0.6) == 10);
  CHECK(step_for_good(group, 1, 1) == 10);
  CHECK(step_for_good(group, 1, 2) == 30);
  CHECK(!step_for_good(group, 1, 3));
  // Of a loss less is better.
  CHECK(less_is_better("loss"));
  CHECK(less_is_better("bits_per_byte"));
  CHECK(less_is_better("error_percent"));
  CHECK(!less_is_better("accuracy"));
  const Series loss{"", {0, 10, 20, 30}, {3, 0.9, 1.1, 0.8}};
  CHECK(step_for_good(loss, 1, true) == 30);
  CHECK(step_for_good(loss, 1.1, true) == 10);
  CHECK(!step_for_good(loss, 0.5, true));
  CHECK(curves_of(folder.path("seeds/a"), "loss").front().y[0] == 0.5);
}

TEST_CASE("curves: a copy and a foreign file are left out with a warning") {
  const TempFolder folder;
  write_run(folder, "seeds/a", {0.5, 1});
  write_run(folder, "seeds/a.later", {0.5, 1, 1});
  write_run(folder, "seeds/b", {0.6, 1, 1});
  folder.write("seeds/foreign/metrics.jsonl", "{\"step\": 3}\n");
  reset_warnings();
  const std::vector<Series> curves = curves_of(folder.path("seeds"), "accuracy");
  REQUIRE(curves.size() == 2);
  CHECK(curves[0].name == folder.path("seeds/a.later"));
  CHECK(curves[1].name == folder.path("seeds/b"));
  const std::vector<std::string> warnings = take_warnings();
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings[0], "foreign is left out"));
  CHECK(contains(warnings[1], "its losses are those of " + folder.path("seeds/a.later")));
}

TEST_CASE("curves: the picture has a band of several runs, names them, and is drawn over itself alone") {
  const TempFolder folder;
  write_run(folder, "seeds/a", {0.5, 1, 1});
  write_run(folder, "seeds/b", {0.6, 0.9, 1});
  write_run(folder, "one", {0.5, 0.5, 0.7});
  const std::string svg = draw_curves({{"both <seeds>", curves_of(folder.path("seeds"), "accuracy")},
                                       {"one", curves_of(folder.path("one"), "accuracy")}},
                                      "accuracy", "a title");
  for (const char* part :
       {"<title>a title</title>", "both &lt;seeds&gt;", "2 seeds", "100 %", "<polygon", "training step"})
    CHECK_MESSAGE(contains(svg, part), part);
  CHECK(svg.find("<polygon") == svg.rfind("<polygon"));  // one run has no band
  CHECK(contains(svg, picture_colour(0)));
  const std::string file = folder.write("a.svg", svg);
  CHECK(kPictureFile.is_one(file));
  CHECK(!kPictureFile.is_one(folder.write("b.svg", "<svg/>")));
}

TEST_CASE("curves: a measure that a run lacks and a folder without runs are refused by name") {
  const TempFolder folder;
  const std::string run = write_run(folder, "a", {0.5, 1});
  CHECK(contains(error_of<ValueError>([&] { curves_of(run, "accurcy"); }), "loss, accuracy"));
  folder.write("empty/x.txt", "x");
  CHECK(contains(error_of<IoError>([&] { curves_of(folder.path("empty"), "loss"); }),
                 "is no run and holds none"));
  CHECK(contains(error_of<ValueError>([&] {
                   draw_curves({{"x", {Series{"r", {0}, {1}}}}}, "loss", "t");
                 }),
                 "1 evaluation at the same step"));
}

TEST_CASE("curves: a run without its records is not called no run") {
  const TempFolder folder;
  folder.write("run/checkpoints/latest", "step-2\n");
  CHECK(contains(error_of<IoError>([&] { curves_of(folder.path("run"), "loss"); }),
                 "is a run without metrics.jsonl"));
}
