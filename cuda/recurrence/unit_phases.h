// The unit recurrence by a launch for each phase: four a step, forward and backward (unit_phases.cu). It is a choice of
// kernels, `unit_recurrence=phases`. No CUDA header is needed to include this.
#pragma once

#include "cuda/runtime/context.h"
#include "ops/recurrence/unit_recurrence.h"

namespace eddy::cuda {

// Whether a call runs by phases. Where it was asked to and cannot, that is said once (ops/core/warnings.h).
bool runs_by_phases(const UnitRecurrenceArgs& args);

// Calls for which runs_by_phases holds; arrays begin at multiples of 16 bytes.
// shapes: those of the op's slots.
// dtypes: those of the op's slots.
void unit_phases_forward(const UnitRecurrenceArgs& args);
void unit_phases_backward(const UnitRecurrenceArgs& args);

// The gate of step 0, by the composed chain's kernel; o is stored as bf16.
void launch_first_gate(const UnitRecurrenceArgs& args);

}  // namespace eddy::cuda
