// Axes of a chart: where the ticks stand and how they are labelled, on a linear or a logarithmic scale.
#pragma once

#include <string>
#include <vector>

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

}  // namespace eddy::app
