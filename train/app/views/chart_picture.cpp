// Draws a chart into a picture of its own.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/app/views/chart.h"
#include "train/app/views/chart_axis.h"
#include "train/app/views/palette.h"
#include "train/app/views/svg_picture.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr int kWidth = 720, kHeight = 300;
constexpr double kLeft = 60, kTop = 26, kPlotWidth = 470, kPlotHeight = 230;
constexpr double kNameHeight = 18, kLineHeight = 14;  // that a line of a name takes; from one to the next
constexpr double kDotRadius = 1.8;

const char* colour_in_picture(const Chart& chart, std::size_t index) {
  const int own = chart.series[index].colour;
  return picture_colour(own >= 0 ? static_cast<std::size_t>(own) : index);
}

// The unbroken runs of points of a series.
std::vector<std::vector<SvgPicture::Point>> runs_of(const Series& series, const SvgFrame& frame,
                                                    const Chart& chart) {
  std::vector<std::vector<SvgPicture::Point>> runs(1);
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (fits(series.x[i], chart.log_x) && fits(series.y[i], chart.log_y))
      runs.back().push_back(frame.at(series.x[i], series.y[i]));
    else if (!runs.back().empty() && series.style != SeriesStyle::band)
      runs.emplace_back();
  }
  if (runs.back().empty()) runs.pop_back();
  return runs;
}

// Names the lines at their right ends, from the highest to the lowest, without one name above another.
void draw_names(SvgPicture& picture, const SvgFrame& frame, const Chart& chart) {
  std::vector<std::pair<double, std::size_t>> ends;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    if (chart.series[i].style == SeriesStyle::band) continue;
    if (const auto runs = runs_of(chart.series[i], frame, chart); !runs.empty())
      ends.emplace_back(runs.back().back().y, i);
  }
  std::stable_sort(ends.begin(), ends.end());
  double next = kTop;
  for (const auto& [y, i] : ends) {
    next = std::max(next, y);
    std::string_view name = chart.series[i].name;
    for (double baseline = next + 4;; baseline += kLineHeight) {
      const std::size_t end = name.find('\n');
      picture.text({frame.right() + 8, baseline}, SvgPicture::Anchor::start, name.substr(0, end),
                   colour_in_picture(chart, i));
      next += kNameHeight;
      if (end == std::string_view::npos) break;
      name.remove_prefix(end + 1);
    }
  }
}

}  // namespace

void draw_series(SvgPicture& picture, const SvgFrame& frame, const Chart& chart) {
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    const char* const colour = colour_in_picture(chart, i);
    for (const std::vector<SvgPicture::Point>& points : runs_of(series, frame, chart)) {
      if (series.style == SeriesStyle::band) {
        picture.area(points, colour);
        continue;
      }
      const bool line = series.style != SeriesStyle::points && points.size() > 1;
      if (line) picture.polyline(points, colour);
      if (line && series.style != SeriesStyle::line_points) continue;
      for (const SvgPicture::Point& point : points) picture.dot(point, kDotRadius, colour);
    }
  }
}

std::string chart_picture(const Chart& chart) {
  const ChartAxes axes = make_axes(chart, measure(chart), {.from_zero = true});
  SvgPicture picture(kWidth, kHeight, chart.title);
  const SvgFrame frame(kLeft, kTop, kPlotWidth, kPlotHeight, axes.x, axes.y);
  frame.draw_axes(picture);
  picture.text({kLeft, 16}, SvgPicture::Anchor::start, chart.y_title);
  picture.text({kLeft + kPlotWidth / 2, kHeight - 6}, SvgPicture::Anchor::middle, chart.x_title,
               kSoftColour.light);
  draw_series(picture, frame, chart);
  draw_names(picture, frame, chart);
  return picture.svg();
}

}  // namespace eddy::app
