// Tools of the benchmarks: timing by repetition, and tables for reading. On a machine shared with others the
// best run is what the code can do and the median what one gets; both are kept, and every figure is set
// against ceilings measured in the same minute (bench/ceilings.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/base/device.h"

namespace eddy {

using BenchClock = std::chrono::steady_clock;

// Seconds from `from` to `to`, or until now.
double elapsed_seconds(BenchClock::time_point from, BenchClock::time_point to = BenchClock::now());

// What repeated runs of the same work took.
// units: seconds.
struct Timing {
  double best = 0;
  double median = 0;
  std::int64_t runs = 0;
};

// The best and the median of measured seconds.
// errors: ValueError without any.
Timing timing_of(std::vector<double> seconds);

// Times of run() after one untimed run: repeated until `seconds` have passed, at least `min_runs` times.
Timing measure(const std::function<void()>& run, double seconds, std::int64_t min_runs = 3);

// The same on a device. On a GPU each time is that of ten runs in a row, divided by ten: to wait behind every
// one would time the wait.
Timing measure_on(Device device, const std::function<void()>& run, double seconds, std::int64_t min_runs = 3);

// Lines of text: the first row is the head, the first column stands left, the others right.
// errors: ValueError when rows differ in length.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

// A number with three or more digits' worth of decimals ("0.0123", "1.23", "12.3", "123"); "-" when it is not
// finite.
std::string table_number(double value);

}  // namespace eddy
