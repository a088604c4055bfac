// The writers of a Chart (train/record/figures.h): as a figure of a page, and as a picture in a file of its own. Both
// are SVG without scripts, fonts or other external files. In a page colours come from its style sheet (html_page.h),
// so one chart fits the light and the dark scheme.
#pragma once

#include <string>
#include <vector>

#include "train/record/figures.h"

namespace eddy::app {

class SvgPicture;  // svg_picture.h
class SvgFrame;

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
training::Series running_median(const training::Series& series);
// The running median of a series, or itself where it is too short for one.
training::Series smoothed(training::Series series);

// Whether values need a logarithmic axis: the highest is over 50 times the lowest, which is above 0. Faint ones do not
// count.
bool wants_log(const std::vector<training::Series>& series);

// How a line of a colour is drawn: with more lines than colours, the later ones have points, in the legend too.
training::SeriesStyle line_style(int colour);
// Adds runs of one configuration as one line of a colour: their mean and, of several, a band from the lowest to the
// highest. It ends with the first run that does: the mean of those that are left would be of others.
// Runs without points do not count.
void add_runs(training::Chart& chart, std::vector<training::Series> runs, const std::string& name,
              int colour);

// Returns the chart as an SVG element of `width` by `height` units; text is 12 units high. Series are
// decimated to `most_points`.
// errors: ValueError when x and y of a series differ in length.
std::string chart_svg(const training::Chart& chart, int width, int height, int most_points);

// Returns the chart as a figure with title, legend and notes. It holds a broad and a narrow drawing, of which
// the style sheet shows one. `full_width`: the broad drawing fills the page; else two stand side by side.
std::string chart_figure(const training::Chart& chart, bool full_width);

// Returns the chart as an SVG file of its own (svg_picture.h), 720 units wide and 300 high. The title of y stands above
// the plot, and lines are named at their ends, in several lines where their names have them.
// errors: as chart_svg.
std::string chart_picture(const training::Chart& chart);
// Draws the series of a chart into a frame, as chart_picture does.
void draw_series(SvgPicture& picture, const SvgFrame& frame, const training::Chart& chart);

}  // namespace eddy::app
