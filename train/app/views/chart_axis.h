// Axes of a chart: where the ticks stand and how they are labelled, on a linear or a logarithmic scale.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/record/figures.h"

namespace eddy::app {

struct Tick {
  double value = 0;
  std::string label;
};

struct Axis {
  bool log = false;
  double low = 0;
  double high = 1;
  std::vector<Tick> ticks;  // ascending, inside [low, high]

  // Returns the position of a value along the axis: 0 at low, 1 at high, outside [0, 1] beyond them.
  double place(double value) const;
};

struct AxisOptions {
  bool log = false;
  bool round_ends = false;   // move low and high outwards to the next ticks; else they stay at the data
  bool whole_steps = false;  // linear: no ticks between whole numbers
  int most_ticks = 7;        // >= 2
};

// Returns an axis that covers [low, high] with ticks at 1, 2 or 5 times a power of ten, or, on a logarithmic
// scale of many decades, at powers of ten. An empty range is widened around its value, and with round_ends
// also one of less than a thousandth of its values.
// errors: ValueError when low or high is not finite or beyond 1e300, low > high, log and low <= 0, or
// most_ticks < 2.
Axis make_axis(double low, double high, const AxisOptions& options);

// Returns the label of a tick on an axis whose ticks stand `step` apart and whose largest magnitude is
// `largest`: "0.25", "20k", "3e-4".
std::string tick_label(double value, double step, double largest);

// The values of a chart that are drawn, and how many are not.
struct ChartRanges {
  struct Range {
    double low = 0, high = 0;
    bool empty = true;

    void take(double value);
  };

  Range x, y;                                     // without the rarest values of faint series
  bool whole_x = true, whole_y = true;            // every value is a whole number: steps, nodes
  std::int64_t not_finite = 0, not_positive = 0;  // values that are not drawn
};

// Whether a value has a place on an axis.
bool fits(double value, bool log);
// errors: ValueError when x and y of a series differ in length.
ChartRanges measure(const training::Chart& chart);

struct AxesChoice {
  int x_ticks = 7, y_ticks = 7;  // at most
  bool from_zero = false;        // a linear x axis of positive values starts at 0, wherever they begin
};

// The axes of a chart; for one without a point, empty ones from 0 to 1.
struct ChartAxes {
  Axis x, y;
};
ChartAxes make_axes(const training::Chart& chart, const ChartRanges& ranges, const AxesChoice& choice = {});

}  // namespace eddy::app
