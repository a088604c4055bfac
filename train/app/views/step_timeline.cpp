// Looks up where a run stood.
#include "train/app/views/step_timeline.h"

#include <algorithm>
#include <cmath>

namespace eddy::app {
using namespace training;

const char* axis_title(XAxis axis) {
  constexpr const char* kTitles[] = {"step", "tokens", "operations of training", "seconds"};
  return kTitles[static_cast<std::size_t>(axis)];
}

const char* axis_name(XAxis axis) {
  constexpr const char* kNames[] = {"steps", "tokens", "operations", "seconds"};
  return kNames[static_cast<std::size_t>(axis)];
}

double StepTimeline::at(std::int64_t step, XAxis axis) const {
  if (axis == XAxis::steps) return static_cast<double>(step);
  const auto after =
      std::lower_bound(points_.begin(), points_.end(), step,
                       [](const Point& point, std::int64_t wanted) { return point.step < wanted; });
  if (after == points_.end() || points_.size() == 1) return std::numeric_limits<double>::quiet_NaN();
  const auto value = [axis](const Point& point) {
    return axis == XAxis::seconds ? point.seconds : point.tokens;
  };
  double here = value(*after);
  if (after->step > step) {
    const Point& before = *std::prev(after);
    const double part =
        static_cast<double>(step - before.step) / static_cast<double>(after->step - before.step);
    here = value(before) + part * (here - value(before));
  }
  return axis == XAxis::operations ? 3 * flops_per_token_ * here : here;
}

Series with_x_axis(const Series& by_step, const StepTimeline& timeline, XAxis axis) {
  Series series{by_step.name, {}, {}, by_step.style, by_step.colour};
  for (std::size_t i = 0; i < by_step.x.size(); ++i)
    if (const double x = timeline.at(static_cast<std::int64_t>(by_step.x[i]), axis); std::isfinite(x))
      series.add(x, by_step.y[i]);
  return series;
}

Chart with_x_axis(Chart by_step, const StepTimeline& timeline, XAxis axis) {
  if (axis == XAxis::steps) return by_step;
  by_step.x_title = axis_title(axis);
  for (std::size_t k = 0; k < by_step.series.size(); ++k) {
    Series& series = by_step.series[k];
    series = with_x_axis(series, timeline, axis);
    if (series.colour < 0) series.colour = static_cast<int>(k);  // as against steps
  }
  std::erase_if(by_step.series, [](const Series& series) { return series.x.empty(); });
  return by_step;
}

}  // namespace eddy::app
