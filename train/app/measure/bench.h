// Tools of the benchmarks: timing by repetition, and how numbers are shown. On a shared machine the best run shows what
// the code can do and the median what one gets, so both are kept. Every figure is set against ceilings
// measured in the same minute (ceilings.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "train/step/clock.h"

namespace eddy::app {

// The times of repeated runs of the same work.
// units: seconds.
struct Timing {
  double best = 0;
  double median = 0;
  std::int64_t runs = 0;
};

// Returns the best and the median of measured times in seconds.
// errors: ValueError for an empty list.
Timing timing_of(std::vector<double> seconds);

// Returns the times of run() after one untimed run. It is repeated until `seconds` have passed, at least
// `min_runs` times.
Timing measure(const std::function<void()>& run, double seconds, std::int64_t min_runs = 3);

// The same on a device. On a GPU each time is that of ten runs in a row, divided by ten, since waiting after
// every run would time the wait.
Timing measure_on(Device device, const std::function<void()>& run, double seconds, std::int64_t min_runs = 3);

// Returns normal numbers that repeat after some 2^20: more would take the CPU seconds. They are random because a
// GPU draws less power for equal numbers, and runs faster than it otherwise could.
Tensor repeated_normal(const Shape& shape, const char* stream, Dtype dtype, Device device);

// Returns a number with three or more significant digits ("0.0123", "1.23", "12.3", "123"); "-" when it is
// not finite.
std::string table_number(double value);

}  // namespace eddy::app
