// The products of a step and its attention, each timed alone: the same calls at the same shapes, one after the other
// with nothing between them, on a GPU in one captured graph. Beside it stands the floor: the operations at the rate of
// one large product. What a kernel multiplies by itself,
// such as the CPU's recurrences and window attention, is in neither.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/cost/recorded_calls.h"
#include "train/app/measure/bench.h"
#include "train/app/measure/step_trial.h"

namespace eddy::app {

// What a step multiplies.
struct StepCalls {
  std::vector<RecordedCall> products, attention;
  double flops = 0;  // of all kernels
};
// Records one step, which is not captured.
StepCalls record_calls(StepTrial& trial, Device device);

struct CallsAlone {
  std::int64_t calls = 0;
  double flops = 0;
  Timing time;  // seconds of all calls once
};
struct StepAlone {
  CallsAlone products, attention;
  double other_flops = 0;  // of kernels that multiply by themselves
  std::string problem{};   // why nothing is timed, such as a lack of memory
};
// Times what was recorded, for so long each. It takes as much memory again as the step's operands:
// the trial may be gone.
StepAlone time_alone(StepCalls calls, Device device, double seconds);

}  // namespace eddy::app
