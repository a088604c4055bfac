// Round ticks, and the axes of a chart. A linear step is the smallest of 1, 2, 5 times a power of ten that needs no
// more ticks than allowed. On a logarithmic scale the choices are 1-2-5 within each decade, every decade, every second
// decade and so on.
#include "train/app/views/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tensor/base/format.h"

namespace eddy::app {
using namespace training;
namespace {

// Larger values are not drawn: the arithmetic of an axis needs room above them.
constexpr double kLargestDrawn = 1e290;
// A tick that differs from the end of the axis only by rounding counts as inside.
constexpr double kSlack = 1e-9;

int decade_of(double value) {
  return static_cast<int>(std::floor(std::log10(std::abs(value)) + kSlack));
}

// mantissa * 10^exponent. Negative powers divide, which rounds only once: 3 / 10 is the double nearest to
// 0.3.
double scaled(double mantissa, int exponent) {
  return exponent < 0 ? mantissa / std::pow(10.0, -exponent) : mantissa * std::pow(10.0, exponent);
}

void set_linear_ticks(Axis& axis, const AxisOptions& options) {
  const double range = axis.high - axis.low;
  int exponent = static_cast<int>(std::floor(std::log10(range / options.most_ticks)));
  if (options.whole_steps) exponent = std::max(exponent, 0);
  for (;; ++exponent) {
    for (const int mantissa : {1, 2, 5}) {
      const double step = scaled(mantissa, exponent);
      const double low = axis.low / step;
      const double high = axis.high / step;
      const double first = options.round_ends ? std::floor(low + kSlack) : std::ceil(low - kSlack);
      const double last = options.round_ends ? std::ceil(high - kSlack) : std::floor(high + kSlack);
      if (last - first + 1 > options.most_ticks) continue;
      const double largest = std::max(std::abs(first * step), std::abs(last * step));
      for (double k = first; k <= last; ++k) {
        const double value = scaled(k * mantissa, exponent);
        axis.ticks.push_back({value, tick_label(value, step, largest)});
      }
      if (options.round_ends) {
        axis.low = axis.ticks.front().value;
        axis.high = axis.ticks.back().value;
      }
      return;
    }
  }
}

// Returns round values around [low, high]: each of `mantissas` times every power of ten whose exponent is a
// multiple of `stride`.
std::vector<double> log_candidates(const Axis& axis, const std::vector<int>& mantissas, int stride) {
  std::vector<double> values;
  const int first = static_cast<int>(std::floor(std::log10(axis.low) / stride)) * stride;
  const int last = static_cast<int>(std::ceil(std::log10(axis.high) / stride)) * stride;
  for (int exponent = first; exponent <= last; exponent += stride) {
    for (const int mantissa : mantissas) values.push_back(scaled(mantissa, exponent));
  }
  return values;
}

void set_log_ticks(Axis& axis, const AxisOptions& options) {
  // Within a decade 1-2-5 is too coarse; unevenly spaced linear ticks read better.
  if (axis.high / axis.low < 8) {
    AxisOptions linear = options;
    linear.round_ends =
        options.round_ends && axis.low > (axis.high - axis.low) / 2;  // else an end could reach 0
    linear.whole_steps = false;
    set_linear_ticks(axis, linear);
    return;
  }
  for (int stride = 1;; ++stride) {
    for (const bool fine : {true, false}) {
      if (fine && stride > 1) continue;
      std::vector<double> values =
          log_candidates(axis, fine ? std::vector<int>{1, 2, 5} : std::vector<int>{1}, stride);
      double low = axis.low;
      double high = axis.high;
      if (options.round_ends) {
        const auto above = std::upper_bound(values.begin(), values.end(), axis.low * (1 + kSlack));
        if (above != values.begin() && *(above - 1) > 0) low = *(above - 1);
        const auto end = std::lower_bound(values.begin(), values.end(), axis.high * (1 - kSlack));
        if (end != values.end() && std::isfinite(*end)) high = *end;
      }
      std::erase_if(values, [&](double v) { return v < low * (1 - kSlack) || v > high * (1 + kSlack); });
      if (static_cast<int>(values.size()) > options.most_ticks) continue;
      axis.low = std::min(low, axis.low);
      axis.high = std::max(high, axis.high);
      for (const double value : values) axis.ticks.push_back({value, tick_label(value, value, value)});
      return;
    }
  }
}

// Extends the range by a faint series without its rarest values: 0.5 % at either end.
void take_quantiles(ChartRanges::Range& range, std::vector<double> values) {
  if (values.empty()) return;
  const auto quantile = [&](double q) {
    const auto place = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + place, values.end());
    return values[static_cast<std::size_t>(place)];
  };
  range.take(quantile(0.005));
  range.take(quantile(0.995));
}

}  // namespace

double Axis::place(double value) const {
  if (log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  return (value - low) / (high - low);
}

Axis make_axis(double low, double high, const AxisOptions& options) {
  constexpr double kLargest = 1e300;  // leaves room for the range and for rounding outwards
  if (!(std::abs(low) <= kLargest && std::abs(high) <= kLargest && low <= high))
    fail<ValueError>("make_axis: bad range: {} to {} (finite, at most 1e300 in size, low <= high)", low,
                     high);
  if (options.log && !(low > 0)) fail<ValueError>("make_axis: log scale needs low > 0: {}", low);
  if (options.most_ticks < 2)
    fail<ValueError>("make_axis: most_ticks must be at least 2: {}", options.most_ticks);

  Axis axis;
  axis.log = options.log;
  axis.low = low;
  axis.high = high;
  const double size = std::max(std::abs(low), std::abs(high));
  if (options.log) {
    if (high / low < 1 + 1e-6) {
      axis.low = low / 2;
      axis.high = high * 2;
    }
    // Below this the powers of ten of the ticks would be subnormal, and so not round.
    constexpr double kSmallest = 1e-290;
    axis.low = std::max(axis.low, kSmallest);
    axis.high = std::max(axis.high, 10 * kSmallest);
    set_log_ticks(axis, options);
    return axis;
  }
  // Values that hardly vary would have ticks with equal or endless labels, and rounding would look like news.
  const double least = options.round_ends ? 1e-3 : 1e-9;
  if (!(high - low > least * size) || size < 1e-290) {
    const double middle = size < 1e-290 ? 0.0 : low;
    const double half = middle == 0 ? 1.0 : 0.05 * std::abs(middle);
    axis.low = middle - half;
    axis.high = middle + half;
  }
  set_linear_ticks(axis, options);
  return axis;
}

std::string tick_label(double value, double step, double largest) {
  if (value == 0) return "0";
  const int step_decade = decade_of(step);
  if (largest >= 1e15 || largest < 1e-3) {
    const int decade = decade_of(value);
    return fmt::format("{:.{}f}e{}", scaled(value, -decade), std::max(0, decade - step_decade), decade);
  }
  const int unit_decade = largest >= 1e9 ? 9 : largest >= 1e6 ? 6 : largest >= 1e4 ? 3 : 0;
  constexpr const char* kSuffixes[] = {"", "k", "M", "G"};
  return fmt::format("{:.{}f}{}", scaled(value, -unit_decade), std::max(0, unit_decade - step_decade),
                     kSuffixes[unit_decade / 3]);
}

void ChartRanges::Range::take(double value) {
  low = empty ? value : std::min(low, value);
  high = empty ? value : std::max(high, value);
  empty = false;
}

bool fits(double value, bool log) {
  return std::abs(value) <= kLargestDrawn && (!log || value > 0);
}

ChartRanges measure(const Chart& chart) {
  ChartRanges ranges;
  for (const Series& s : chart.series) {
    if (s.x.size() != s.y.size())
      fail<ValueError>("chart: series \"{}\": x and y must have equal length: {} and {}", s.name, s.x.size(),
                       s.y.size());
    std::vector<double> faint;
    for (std::size_t i = 0; i < s.x.size(); ++i) {
      if (!fits(s.x[i], false) || !fits(s.y[i], false)) {
        ++ranges.not_finite;
        continue;
      }
      if (!fits(s.x[i], chart.log_x) || !fits(s.y[i], chart.log_y)) {
        ++ranges.not_positive;
        continue;
      }
      ranges.x.take(s.x[i]);
      ranges.whole_x = ranges.whole_x && s.x[i] == std::floor(s.x[i]);
      ranges.whole_y = ranges.whole_y && s.y[i] == std::floor(s.y[i]);
      if (s.style == SeriesStyle::faint) {
        faint.push_back(s.y[i]);
      } else {
        ranges.y.take(s.y[i]);
      }
    }
    take_quantiles(ranges.y, std::move(faint));
  }
  return ranges;
}

ChartAxes make_axes(const Chart& chart, const ChartRanges& ranges, const AxesChoice& choice) {
  ChartAxes axes;
  if (ranges.x.empty) return axes;
  // Steps are counted from 1, but an axis of steps starts at 0.
  const bool from_zero =
      !chart.log_x && ranges.x.low > 0 && (choice.from_zero || ranges.x.low < 0.05 * ranges.x.high);
  axes.x = make_axis(from_zero ? 0 : ranges.x.low, ranges.x.high,
                     {chart.log_x, false, ranges.whole_x, choice.x_ticks});
  axes.y = make_axis(ranges.y.low, ranges.y.high,
                     {chart.log_y, true, ranges.whole_y && !chart.percent, choice.y_ticks});
  if (chart.percent)
    for (Tick& tick : axes.y.ticks) tick.label = fmt::format("{:.0f} %", 100 * tick.value);
  return axes;
}

}  // namespace eddy::app
