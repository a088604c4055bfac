// Timing by repetition, and text tables.
#include "train/app/measure/bench.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/backends.h"
#include "ops/core/op_spec.h"
#include "tensor/base/format.h"
#include "train/files/utf8.h"

namespace eddy::app {
using namespace training;
namespace {

// Returns the number of characters: bytes that begin one.
std::size_t width_of(const std::string& text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation));
}

}  // namespace

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

std::string text_table(const std::vector<std::vector<std::string>>& rows, bool markdown) {
  if (rows.empty()) return "";
  std::vector<std::size_t> widths(rows.front().size(), markdown ? 3 : 0);
  for (const std::vector<std::string>& row : rows) {
    if (row.size() != widths.size())
      fail<ValueError>("table: a row of {} cells below a head of {} (equal numbers)", row.size(),
                       widths.size());
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width_of(row[i]), ' ');
      if (markdown)
        text += "| " + row[i] + space + ' ';
      else
        text += i == 0 ? row[i] + space : "  " + space + row[i];
    }
    text += markdown ? "|\n" : "\n";
    if (!markdown || &row != &rows.front()) continue;
    for (const std::size_t width : widths) text += "| " + std::string(width, '-') + ' ';
    text += "|\n";
  }
  return text;
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
