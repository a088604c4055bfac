// The unit recurrence as one kernel for all steps: which calls it takes, as unit_recurrence.cu calls it. No
// CUDA header is needed to include this.
#pragma once

#include "ops/unit_recurrence.h"

namespace eddy::cuda {

// Whether the fused kernels may take the calls that they can. Off at the start.
void set_fused_unit_recurrence(bool on);

// The whole chain, or its gradient. Returns whether the kernel took the call, and does nothing otherwise: it
// may, dim and mlp are multiples of 32, dim is at most 512, and the GPU's multiprocessors together hold the
// weights.
bool fused_unit_recurrence_forward(const UnitRecurrenceArgs& args);
bool fused_unit_recurrence_backward(const UnitRecurrenceArgs& args);

}  // namespace eddy::cuda
