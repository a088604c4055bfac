// Draws a chart as SVG. A series is one path element: "M x y L x y ..." for each unbroken run of points, or
// "M x y h0" for each single point, which a round line cap turns into a dot. The script of the page reads the
// points back from these paths.
#include "train/app/views/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "tensor/base/format.h"
#include "train/app/views/chart_axis.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr double kCharacterWidth = 6.9;  // of the tick labels, at 12 units height

AxesChoice choice_for(int width, int height) {
  return {std::clamp(width / 60, 3, 12), std::clamp(height / 42, 3, 10)};
}

std::int64_t count_beyond(const Chart& chart, const Axis& axis) {
  std::int64_t beyond = 0;
  for (const Series& s : chart.series) {
    if (s.style != SeriesStyle::faint) continue;
    beyond += std::count_if(s.y.begin(), s.y.end(), [&](double y) {
      return fits(y, chart.log_y) && (y < axis.low || y > axis.high);
    });
  }
  return beyond;
}

// The rectangle of the plot within the drawing.
struct Frame {
  double left, top, width, height;

  double at_x(const Axis& axis, double x) const { return left + width * axis.place(x); }
  // Values beyond the axis land one unit outside the frame, so they differ from values on its edge.
  double at_y(const Axis& axis, double y) const {
    return std::clamp(top + height * (1 - axis.place(y)), top - 1, top + height + 1);
  }
};

std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

int colour_of(const Chart& chart, std::size_t index) {
  const int own = chart.series[index].colour;
  return (own >= 0 ? own : static_cast<int>(index)) % kChartColours;
}

const char* style_class(SeriesStyle style) {
  constexpr const char* kClasses[] = {"line", "faint", "points", "line dotted", "band"};
  return kClasses[static_cast<std::size_t>(style)];
}

// The outline of a band; points without a place are left out.
std::string outline(const Series& s, const Chart& chart, const ChartAxes& axes, const Frame& frame) {
  std::string path;
  for (std::size_t i = 0; i < s.x.size(); ++i)
    if (fits(s.x[i], chart.log_x) && fits(s.y[i], chart.log_y))
      path += (path.empty() ? "M" : "L") + number(frame.at_x(axes.x, s.x[i])) + " " +
              number(frame.at_y(axes.y, s.y[i]));
  return path.empty() ? path : path + "Z";
}

struct Paths {
  std::string lines;
  std::string dots;
};

Paths draw(const Series& s, const Chart& chart, const ChartAxes& axes, const Frame& frame, int most_points) {
  std::vector<ChartPoint> points = decimate(s.x, s.y, most_points);
  const auto shown = [&](std::size_t i) {
    return i < points.size() && fits(points[i].x, chart.log_x) && fits(points[i].y, chart.log_y);
  };
  constexpr std::size_t kMostDots = 60;  // more of them on a line run into each other
  // Between two points a logarithmic axis bends what was straight: dots show what is known.
  const bool dotted =
      s.style == SeriesStyle::line_points || (s.style == SeriesStyle::line && (chart.log_x || chart.log_y));
  const bool all_dots = s.style == SeriesStyle::points || (dotted && points.size() <= kMostDots);
  Paths paths;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!shown(i)) continue;
    const bool joined_before = i > 0 && shown(i - 1);
    const std::string place =
        number(frame.at_x(axes.x, points[i].x)) + " " + number(frame.at_y(axes.y, points[i].y));
    const bool alone = !joined_before && !shown(i + 1);  // a line of one point would not be seen
    if (all_dots || alone) paths.dots += "M" + place + "h0";
    if (s.style != SeriesStyle::points && !alone) paths.lines += (joined_before ? "L" : "M") + place;
  }
  return paths;
}

void append_axes(std::string& svg, const Chart& chart, const ChartAxes& axes, const Frame& frame) {
  const auto out = std::back_inserter(svg);
  const double bottom = frame.top + frame.height;
  const auto line = [&](double x1, double y1, double x2, double y2) {
    fmt::format_to(out, R"(<line x1="{}" y1="{}" x2="{}" y2="{}"/>)", number(x1), number(y1), number(x2),
                   number(y2));
  };
  const auto text = [&](double x, double y, const char* anchor, const std::string& shown) {
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>\n", number(x), number(y), anchor,
                   shown);
  };
  svg += "<g class=\"axis\">\n";
  for (const Tick& tick : axes.y.ticks) {
    const double y = frame.at_y(axes.y, tick.value);
    line(frame.left, y, frame.left + frame.width, y);
    text(frame.left - 7, y + 4, "end", tick.label);
  }
  for (const Tick& tick : axes.x.ticks) {
    const double x = frame.at_x(axes.x, tick.value);
    line(x, frame.top, x, bottom);
    text(x, bottom + 17, "middle", tick.label);
  }
  svg += "</g>\n";
  fmt::format_to(out, "<text x=\"0\" y=\"11\">{}{}</text>\n", html_escape(chart.y_title),
                 chart.log_y ? " (log scale)" : "");
  text(frame.left + frame.width / 2, bottom + 37, "middle",
       html_escape(chart.x_title) + (chart.log_x ? " (log scale)" : ""));
}

}  // namespace

std::string chart_svg(const Chart& chart, int width, int height, int most_points) {
  const ChartRanges ranges = measure(chart);
  const ChartAxes axes = make_axes(chart, ranges, choice_for(width, height));
  std::size_t longest = 0;
  for (const Tick& tick : axes.y.ticks) longest = std::max(longest, tick.label.size());
  const double left = std::max(30.0, 12 + kCharacterWidth * static_cast<double>(longest));
  const Frame frame = {left, 24, std::max(10.0, width - left - 18), std::max(10.0, height - 24.0 - 42)};

  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(out, "<svg class=\"plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"", width,
                 height, html_escape(chart.title));
  // For the values under the pointer (page.js): the frame in drawing units, and the values at its
  // edges.
  fmt::format_to(out, " data-frame=\"[{},{},{},{},{}]\"", width, number(frame.left), number(frame.top),
                 number(frame.width), number(frame.height));
  fmt::format_to(out, " data-x-title=\"{}\"", html_escape(chart.x_title));
  fmt::format_to(out, " data-x=\"[{},{},{}]\" data-y=\"[{},{},{}]\">\n", axes.x.low, axes.x.high, chart.log_x,
                 axes.y.low, axes.y.high, chart.log_y);
  append_axes(svg, chart, axes, frame);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    const int colour = colour_of(chart, i);
    if (s.style == SeriesStyle::band) {
      fmt::format_to(out, "<path class=\"band c{}\" d=\"{}\"/>\n", colour, outline(s, chart, axes, frame));
      continue;
    }
    const Paths paths = draw(s, chart, axes, frame, most_points);
    const std::string name = html_escape(s.name);
    if (!paths.lines.empty())
      fmt::format_to(out, "<path class=\"{} c{}\" data-name=\"{}\" d=\"{}\"/>\n", style_class(s.style),
                     colour, name, paths.lines);
    if (!paths.dots.empty())
      fmt::format_to(out, "<path class=\"dots c{}\" data-name=\"{}\" d=\"{}\"/>\n", colour, name, paths.dots);
  }
  if (ranges.x.empty)
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" class=\"middle\">nothing to draw yet</text>\n",
                   number(frame.left + frame.width / 2), number(frame.top + frame.height / 2));
  fmt::format_to(out, "<line class=\"cursor\" x1=\"-9\" y1=\"{}\" x2=\"-9\" y2=\"{}\"/>\n</svg>\n",
                 number(frame.top), number(frame.top + frame.height));
  return svg;
}

std::string chart_figure(const Chart& chart, bool full_width) {
  constexpr int kBroadPoints = 1500;
  constexpr int kNarrowPoints = 600;
  const int broad_width = full_width ? 1040 : 510;
  const int broad_height = full_width ? 380 : 270;
  std::string html = full_width ? "<figure class=\"chart full\">\n" : "<figure class=\"chart\">\n";
  const auto out = std::back_inserter(html);
  fmt::format_to(out, "<figcaption>{}</figcaption>\n", html_escape(chart.title));
  if (chart.series.size() > 1) {
    html += "<div class=\"legend\">";
    for (std::size_t i = 0; i < chart.series.size(); ++i) {
      const Series& s = chart.series[i];
      if (s.style == SeriesStyle::band) continue;
      // The line as it is drawn: with its dashes one tells it from the others without colours.
      fmt::format_to(out,
                     "<span class=\"key {0} c{1}\"><svg class=\"sample\" viewBox=\"0 0 30 8\">"
                     "<path class=\"{0}\" d=\"M2 4{2}\"/>{3}</svg>{4}</span>",
                     style_class(s.style), colour_of(chart, i),
                     s.style == SeriesStyle::points ? "m13 0h0" : "H28",
                     s.style == SeriesStyle::line_points ? "<path class=\"points\" d=\"M15 4h0\"/>" : "",
                     html_escape(s.name));
    }
    html += "</div>\n";
  }
  html += "<div class=\"broad\">" + chart_svg(chart, broad_width, broad_height, kBroadPoints) + "</div>\n";
  html += "<div class=\"narrow\">" + chart_svg(chart, 360, 260, kNarrowPoints) + "</div>\n";
  html += "<div class=\"readout\"></div>\n";

  const ChartRanges ranges = measure(chart);
  const std::int64_t beyond =
      count_beyond(chart, make_axes(chart, ranges, choice_for(broad_width, broad_height)).y);
  const auto note = [&](std::int64_t count, const char* one, const char* many) {
    if (count > 0)
      fmt::format_to(out, "<p class=\"note\">{} {}</p>\n", grouped(count), plural(count, one, many));
  };
  note(ranges.not_finite, "value is not finite and leaves a gap.", "values are not finite and leave gaps.");
  note(ranges.not_positive, "value is not positive and has no place on a log scale.",
       "values are not positive and have no place on a log scale.");
  note(beyond, "single value beyond the scale is drawn on its edge.",
       "single values beyond the scale are drawn on its edge.");
  html += "</figure>\n";
  return html;
}

}  // namespace eddy::app
