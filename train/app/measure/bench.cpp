// Timing by repetition.
#include "train/app/measure/bench.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/backends.h"
#include "ops/core/op_spec.h"
#include "tensor/base/format.h"

namespace eddy::app {
using namespace training;

Timing timing_of(std::vector<double> seconds) {
  if (seconds.empty()) fail<ValueError>("bench: nothing was measured (at least one run)");
  std::sort(seconds.begin(), seconds.end());
  // A coarse clock can show 0, and rates divide by the time.
  for (double& value : seconds) value = std::max(value, 1e-9);
  return {seconds.front(), seconds[seconds.size() / 2], std::ssize(seconds)};
}

Timing measure(const std::function<void()>& run, double seconds, std::int64_t min_runs) {
  run();
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  do {
    const Clock::time_point before = Clock::now();
    run();
    times.push_back(seconds_between(before));
  } while (std::ssize(times) < min_runs || seconds_between(start) < seconds);
  return timing_of(std::move(times));
}

Timing measure_on(Device device, const std::function<void()>& run, double seconds, std::int64_t min_runs) {
  const int together = device == kCpu ? 1 : 10;
  const Timing all = measure(
      [&] {
        for (int i = 0; i < together; ++i) run();
        synchronize(device);
      },
      seconds, min_runs);
  return {all.best / together, all.median / together, all.runs};
}

Tensor repeated_normal(const Shape& shape, const char* stream, Dtype dtype, Device device) {
  const std::int64_t elements = shape.elements(), period = std::gcd(elements, std::int64_t{1} << 20);
  const Tensor some = raw::to_device(raw::cast(sample_normal({1, period}, stream), dtype), device);
  return raw::reshape(raw::copy(raw::expand(some, {elements / period, period})), shape);
}

std::string table_number(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  if (size == 0 || size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  if (size >= 0.9995) return fmt::format("{:.2f}", value);
  return fmt::format("{:.4f}", value);
}

}  // namespace eddy::app
