// Looks up where a run stood.
#include "train/app/views/course.h"

#include <algorithm>
#include <cmath>

namespace eddy::app {
using namespace training;

const char* axis_title(Along along) {
  constexpr const char* kTitles[] = {"step", "tokens", "operations of training", "seconds"};
  return kTitles[static_cast<std::size_t>(along)];
}

const char* axis_name(Along along) {
  constexpr const char* kNames[] = {"steps", "tokens", "operations", "seconds"};
  return kNames[static_cast<std::size_t>(along)];
}

double Course::at(std::int64_t step, Along along) const {
  if (along == Along::steps) return static_cast<double>(step);
  const auto after =
      std::lower_bound(points_.begin(), points_.end(), step,
                       [](const Point& point, std::int64_t wanted) { return point.step < wanted; });
  if (after == points_.end() || points_.size() == 1) return std::numeric_limits<double>::quiet_NaN();
  const auto value = [along](const Point& point) {
    return along == Along::seconds ? point.seconds : point.tokens;
  };
  double here = value(*after);
  if (after->step > step) {
    const Point& before = *std::prev(after);
    const double part =
        static_cast<double>(step - before.step) / static_cast<double>(after->step - before.step);
    here = value(before) + part * (here - value(before));
  }
  return along == Along::operations ? 3 * flops_per_token_ * here : here;
}

Series drawn_along(const Series& by_step, const Course& course, Along along) {
  Series series{by_step.name, {}, {}, by_step.style, by_step.colour};
  for (std::size_t i = 0; i < by_step.x.size(); ++i)
    if (const double x = course.at(static_cast<std::int64_t>(by_step.x[i]), along); std::isfinite(x))
      series.add(x, by_step.y[i]);
  return series;
}

Chart drawn_along(Chart by_step, const Course& course, Along along) {
  if (along == Along::steps) return by_step;
  by_step.x_title = axis_title(along);
  for (std::size_t k = 0; k < by_step.series.size(); ++k) {
    Series& series = by_step.series[k];
    series = drawn_along(series, course, along);
    if (series.colour < 0) series.colour = static_cast<int>(k);  // as against steps
  }
  std::erase_if(by_step.series, [](const Series& series) { return series.x.empty(); });
  return by_step;
}

}  // namespace eddy::app
