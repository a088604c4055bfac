// The x axes of curves: steps, or how far a run was at each of them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "train/app/views/chart.h"

namespace eddy::app {

enum class XAxis : std::uint8_t { steps, tokens, operations, seconds };
inline constexpr std::array kXAxes = {XAxis::steps, XAxis::tokens, XAxis::operations, XAxis::seconds};

// The title of an axis, and the name of the choice.
const char* axis_title(XAxis axis);
const char* axis_name(XAxis axis);

// The tokens, operations and seconds at the steps of one run. Operations are three times those of the forward pass (the
// backward pass has two products for each one).
class StepTimeline {
 public:
  // records: with step, tokens and seconds (StepRecord in train/record/metrics.h),
  // by step; those without tokens say nothing.
  // flops_per_token: of the forward pass; NaN where it is not known.
  template <class Records>
  explicit StepTimeline(const Records& records,
                        double flops_per_token = std::numeric_limits<double>::quiet_NaN())
      : points_{{}}, flops_per_token_(flops_per_token) {
    for (const auto& record : records)
      if (record.tokens > 0 && record.step > points_.back().step)
        points_.push_back({record.step, static_cast<double>(record.tokens), record.seconds});
  }

  // Returns where the run stood at this step, on a straight line between the recorded ones. Step 0 is the beginning.
  // NaN: the file does not say, as that of a loop of one's own may not.
  double at(std::int64_t step, XAxis axis) const;

 private:
  struct Point {
    std::int64_t step = 0;
    double tokens = 0, seconds = 0;
  };
  std::vector<Point> points_;  // by step; the beginning first
  double flops_per_token_;
};

// Returns a series whose x are steps, against another quantity. Points of which nothing is known are left out.
training::Series with_x_axis(const training::Series& by_step, const StepTimeline& timeline, XAxis axis);
// Returns a chart whose x are steps, against another quantity. Points of which nothing is known are left out, and
// series without any.
training::Chart with_x_axis(training::Chart by_step, const StepTimeline& timeline, XAxis axis);

}  // namespace eddy::app
