// Charts as pictures of their own, and the palette that they share with pages.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/app/views/chart.h"
#include "train/app/views/html_page.h"
#include "train/app/views/palette.h"
#include "train/app/views/svg_picture.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

namespace {

// How often a part stands in a text.
int times(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("chart_picture: a band, a line and points are drawn in the colours of their series") {
  Chart chart{"what <it> is", "step", "loss", false, false, {}};
  chart.series = {{"", {0, 1, 1, 0}, {3, 3, 1, 1}, SeriesStyle::band, 1},
                  {"mean\n3 seeds", {0, 1}, {2, 2}, SeriesStyle::line, 1},
                  {"dots", {0, 1}, {1, 3}, SeriesStyle::points, 2}};
  const std::string svg = chart_picture(chart);
  CHECK(contains(svg, "<title>what &lt;it&gt; is</title>"));
  CHECK(times(svg, "<polygon") == 1);
  CHECK(times(svg, "<polyline") == 1);
  CHECK(times(svg, "<circle") == 2);
  CHECK(times(svg, picture_colour(1)) == 4);  // the band, the line and two lines of its name
  CHECK(times(svg, picture_colour(2)) == 3);
  CHECK(contains(svg, ">3 seeds</text>"));
}

TEST_CASE("chart_picture: a value that is not finite leaves a gap, and one point alone is a dot") {
  Chart chart{"t", "step", "loss", false, false, {}};
  chart.series = {{"a", {0, 1, 2, 3, 4, 5}, {1, 2, NAN, 2, NAN, 3}}};
  const std::string svg = chart_picture(chart);
  CHECK(times(svg, "<polyline") == 1);
  CHECK(times(svg, "<circle") == 2);
  chart.series.clear();
  CHECK(contains(chart_picture(chart), "</svg>"));
}

TEST_CASE("chart_picture: shares are labelled in percent as in a page") {
  Chart chart{"t", "step", "accuracy", false, false, {}};
  chart.series = {{"a", {0, 1}, {0, 1}}};
  CHECK_FALSE(contains(chart_picture(chart), "100 %"));
  chart.percent = true;
  CHECK(contains(chart_picture(chart), ">100 %</text>"));
  CHECK(contains(chart_svg(chart, 510, 270, 100), ">100 %</text>"));
}

TEST_CASE("palette: a page has the colours of pictures, and others in a dark scheme") {
  const std::string page = HtmlPage("t").html();
  for (int i = 0; i < kChartColours; ++i) {
    const auto index = static_cast<std::size_t>(i);
    CHECK(contains(page, "--c" + std::to_string(i) + ": " + picture_colour(index) + ";"));
    CHECK(contains(page, "--c" + std::to_string(i) + ": " + kLineColours[index].dark + ";"));
  }
  CHECK(std::string(picture_colour(kChartColours)) == picture_colour(0));
}
