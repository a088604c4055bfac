// Charts as inline SVG, made here: no script, no font and no file from elsewhere. A chart is a list of series
// and the names of its axes; colours come from the page's style sheet (see html_page.h), so that one chart
// fits both the light and the dark scheme.
#pragma once

#include <string>
#include <vector>

namespace eddy {

// faint: a thin pale line for raw values behind a smoothed one. Its rare outliers do not stretch the y axis:
// they are drawn on its edge, and a note says how many.
enum class SeriesStyle { line, faint, points, line_points };

struct Series {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;  // as many as x; a value that is not finite is a gap
  SeriesStyle style = SeriesStyle::line;
  int colour = -1;  // an entry of the palette of kChartColours; -1: the series' own place in the chart
};

inline constexpr int kChartColours = 6;

struct Chart {
  std::string title;
  std::string x_title;
  std::string y_title;
  bool log_x = false;
  bool log_y = false;  // values <= 0 are not shown, and a note says how many
  std::vector<Series> series;
};

struct ChartPoint {
  double x = 0;
  double y = 0;
};

// At most `most` points (>= 8) that draw like the series: all of it when it is short enough, else the first,
// the last, and the lowest and highest of equal stretches, in their order. A point with a NaN y stands for a
// gap.
// errors: ValueError when x and y differ in length or most < 8.
std::vector<ChartPoint> decimate(const std::vector<double>& x, const std::vector<double>& y, int most);

// A line of running medians over about 2 % of a series (at most 400 points); at the ends the window shrinks
// to a few values, so that a steep beginning keeps its height. Values that are not finite are left out. The
// median, since one exploded step would bend a mean over the whole window. A series of under 50 finite points
// is too short: it gives none.
Series running_median(const Series& series);

// The chart as an SVG element of `width` by `height` units; text is 12 units high. Series are decimated to
// `most_points`.
// errors: ValueError when a series' x and y differ in length.
std::string chart_svg(const Chart& chart, int width, int height, int most_points);

// The chart as a figure with title, legend and notes, in a broad and a narrow drawing of which the style
// sheet shows one. `full_width`: the broad drawing fills the page; else two stand side by side.
std::string chart_figure(const Chart& chart, bool full_width);

}  // namespace eddy
