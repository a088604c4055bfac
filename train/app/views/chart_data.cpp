// Prepares series for drawing: decimate() keeps fewer points that draw the same, running_median() smooths, wants_log()
// chooses an axis, add_runs() draws several runs as one.
#include <algorithm>
#include <cmath>
#include <set>

#include "tensor/base/format.h"
#include "train/app/views/chart.h"

namespace eddy::app {
using namespace training;
namespace {

bool drawable(double x, double y) {
  return std::isfinite(x) && std::isfinite(y);
}

// The value of a series at x, on a straight line between its points; NaN beyond them.
double value_on_line(const Series& series, double x) {
  const auto after = std::lower_bound(series.x.begin(), series.x.end(), x);
  if (after == series.x.end()) return std::nan("");
  const auto i = static_cast<std::size_t>(after - series.x.begin());
  if (*after == x) return series.y[i];
  if (i == 0) return std::nan("");
  const double part = (x - series.x[i - 1]) / (series.x[i] - series.x[i - 1]);
  return series.y[i - 1] + part * (series.y[i] - series.y[i - 1]);
}

}  // namespace

std::vector<ChartPoint> decimate(const std::vector<double>& x, const std::vector<double>& y, int most) {
  if (x.size() != y.size())
    fail<ValueError>("decimate: x and y must have equal length: {} and {}", x.size(), y.size());
  if (most < 8) fail<ValueError>("decimate: most must be at least 8: {}", most);
  std::vector<ChartPoint> points;
  const auto keep = [&](std::size_t i) {
    points.push_back({x[i], drawable(x[i], y[i]) ? y[i] : std::nan("")});
  };
  const std::size_t n = x.size();
  if (n <= static_cast<std::size_t>(most)) {
    for (std::size_t i = 0; i < n; ++i) keep(i);
    return points;
  }
  // Each stretch gives at most its lowest point, its highest point and a gap; two more points are the first
  // and the last.
  const std::size_t stretches = (static_cast<std::size_t>(most) - 2) / 3;
  keep(0);
  for (std::size_t s = 0; s < stretches; ++s) {
    const std::size_t begin = 1 + (n - 2) * s / stretches;
    const std::size_t end = 1 + (n - 2) * (s + 1) / stretches;
    std::size_t lowest = end;
    std::size_t highest = end;
    std::size_t hole = end;
    for (std::size_t i = begin; i < end; ++i) {
      if (!drawable(x[i], y[i])) {
        hole = i;
        continue;
      }
      if (lowest == end || y[i] < y[lowest]) lowest = i;
      if (highest == end || y[i] > y[highest]) highest = i;
    }
    for (const std::size_t i : std::set{lowest, highest, hole})
      if (i < end) keep(i);
  }
  keep(n - 1);
  return points;
}

Series running_median(const Series& series) {
  if (series.x.size() != series.y.size())
    fail<ValueError>("running_median: x and y must have equal length: {} and {}", series.x.size(),
                     series.y.size());
  constexpr std::size_t kFewest = 50;
  constexpr std::size_t kMostPoints = 400;
  constexpr std::size_t kMostUneven = 8;  // how many more values one side of a window may have
  Series finite;
  Series smooth{series.name, {}, {}, series.style, series.colour};
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (drawable(series.x[i], series.y[i])) finite.add(series.x[i], series.y[i]);
  }
  const std::size_t n = finite.x.size();
  if (n < kFewest) return smooth;

  const std::size_t half_window = std::max<std::size_t>(2, n / 100);
  const std::size_t count = std::min(n, kMostPoints);
  std::vector<double> window;
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = k * (n - 1) / (count - 1);
    // The sides are nearly equal, so that what follows a steep beginning does not pull it down.
    const std::size_t before = std::min({half_window, i, n - 1 - i + kMostUneven});
    const std::size_t after = std::min({half_window, n - 1 - i, i + kMostUneven});
    const auto here = finite.y.begin() + static_cast<std::ptrdiff_t>(i);
    window.assign(here - static_cast<std::ptrdiff_t>(before), here + static_cast<std::ptrdiff_t>(after + 1));
    const auto middle = window.begin() + static_cast<std::ptrdiff_t>(window.size() / 2);
    std::nth_element(window.begin(), middle, window.end());
    smooth.add(finite.x[i], *middle);
  }
  return smooth;
}

Series smoothed(Series series) {
  Series smooth = running_median(series);
  return smooth.x.empty() ? series : smooth;
}

bool wants_log(const std::vector<Series>& series) {
  double low = INFINITY;
  double high = 0;
  for (const Series& s : series) {
    if (s.style == SeriesStyle::faint) continue;
    for (const double y : s.y) {
      if (!std::isfinite(y)) continue;
      low = std::min(low, y);
      high = std::max(high, y);
    }
  }
  return low > 0 && high > 50 * low;
}

SeriesStyle line_style(int colour) {
  return colour < kChartColours ? SeriesStyle::line : SeriesStyle::line_points;
}

void add_runs(Chart& chart, std::vector<Series> runs, const std::string& name, int colour) {
  constexpr std::size_t kMostPoints = 500;  // of a band, whose outline is drawn whole
  std::erase_if(runs, [](const Series& run) { return run.x.empty(); });
  if (runs.empty()) return;
  Series line{name, {}, {}, line_style(colour), colour}, upper, lower;
  if (runs.size() == 1) {
    line.x = std::move(runs.front().x);
    line.y = std::move(runs.front().y);
    chart.series.push_back(std::move(line));
    return;
  }
  const std::vector<double>& places = runs.front().x;
  const std::size_t stride = (places.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t i = 0; i < places.size();
       i += i + 1 == places.size() ? 1 : std::min(stride, places.size() - 1 - i)) {
    double low = INFINITY, high = -INFINITY, sum = 0;
    for (const Series& run : runs) {
      const double value = value_on_line(run, places[i]);
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    if (!std::isfinite(sum)) continue;
    line.add(places[i], sum / static_cast<double>(runs.size()));
    upper.add(places[i], high);
    lower.add(places[i], low);
  }
  if (line.x.empty()) return;
  Series band{name, upper.x, upper.y, SeriesStyle::band, colour};
  for (std::size_t i = lower.x.size(); i-- > 0;) band.add(lower.x[i], lower.y[i]);
  chart.series.push_back(std::move(band));
  chart.series.push_back(std::move(line));
}

}  // namespace eddy::app
