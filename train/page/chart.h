// Charts as inline SVG, without scripts, fonts or other external files. A chart is a list of series and the
// titles of its axes. Colours come from the style sheet of the page (html_page.h), so one chart fits the
// light and the dark scheme.
#pragma once

#include <string>
#include <vector>

namespace eddy {

// faint: a thin pale line for raw values behind a smoothed one. Its rare outliers do not stretch the y axis:
// they are drawn on its edge, and a note counts them.
// band: a pale area around which its points lie, of which the first ones are its upper edge and the others its lower
// one, backwards. It has no entry in the legend and no values under the pointer.
enum class SeriesStyle { line, faint, points, line_points, band };

struct Series {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;  // as many as x; a value that is not finite is a gap
  SeriesStyle style = SeriesStyle::line;
  int colour = -1;  // index into the palette of kChartColours; -1: the index of the series in the chart

  void add(double at, double value) {
    x.push_back(at);
    y.push_back(value);
  }
};

inline constexpr int kChartColours = 6;

struct Chart {
  std::string title;
  std::string x_title;
  std::string y_title;
  bool log_x = false;
  bool log_y = false;  // values <= 0 are not shown, and a note counts them
  std::vector<Series> series;
};

struct ChartPoint {
  double x = 0;
  double y = 0;
};

// Returns at most `most` points (>= 8) that draw like the series: the whole series where it is short enough,
// else its first and last point and the lowest and highest of equal stretches, in order. A point whose y is
// NaN stands for a gap.
// errors: ValueError when x and y differ in length or most < 8.
std::vector<ChartPoint> decimate(const std::vector<double>& x, const std::vector<double>& y, int most);

// Returns the running median of a series over a window of about 2 % of it (at most 400 points). At the ends
// the window shrinks to a few values, so a steep beginning keeps its height. Values that are not finite are
// left out. It is a median because one exploded step would bend a mean over the whole window. A series of
// fewer than 50 finite points gives an empty series.
Series running_median(const Series& series);

// Whether values need a logarithmic axis: the highest is over 50 times the lowest, which is above 0. Faint ones do not
// count.
bool wants_log(const std::vector<Series>& series);

// How a line of a colour is drawn: with more lines than colours, the later ones have points, in the legend too.
SeriesStyle line_style(int colour);
// Adds runs of one configuration as one line of a colour: their mean and, of several, a band from the lowest to the
// highest. It ends with the first run that does: the mean of those that are left would be of others. Runs without points
// do not count.
void add_runs(Chart& chart, std::vector<Series> runs, const std::string& name, int colour);

// Returns the chart as an SVG element of `width` by `height` units; text is 12 units high. Series are
// decimated to `most_points`.
// errors: ValueError when x and y of a series differ in length.
std::string chart_svg(const Chart& chart, int width, int height, int most_points);

// Returns the chart as a figure with title, legend and notes. It holds a broad and a narrow drawing, of which
// the style sheet shows one. `full_width`: the broad drawing fills the page; else two stand side by side.
std::string chart_figure(const Chart& chart, bool full_width);

}  // namespace eddy
