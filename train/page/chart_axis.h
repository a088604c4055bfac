// Axes of a chart: where the round ticks stand and what they are called, on a linear or a logarithmic scale.
#pragma once

#include <string>
#include <vector>

namespace eddy {

struct Tick {
  double value = 0;
  std::string label;
};

struct Axis {
  bool log = false;
  double low = 0;
  double high = 1;
  std::vector<Tick> ticks;  // ascending, inside [low, high]

  // The place of a value along the axis: 0 at low, 1 at high, beyond them outside.
  double place(double value) const;
};

struct AxisOptions {
  bool log = false;
  bool round_ends = false;   // low and high move outwards onto ticks; else they stay at the data
  bool whole_steps = false;  // linear: no ticks between whole numbers
  int most_ticks = 7;        // >= 2
};

// An axis that covers [low, high] with ticks at 1, 2 or 5 times a power of ten (or, on a logarithmic scale of
// many decades, at powers of ten). An empty range is widened around its value.
// errors: ValueError when low or high is not finite or beyond 1e300, low > high, log and low <= 0, or
// most_ticks < 2.
Axis make_axis(double low, double high, const AxisOptions& options);

// The label of a tick on an axis whose ticks stand `step` apart and reach up to `largest` in size: "0.25",
// "20k", "3e-4".
std::string tick_label(double value, double step, double largest);

}  // namespace eddy
