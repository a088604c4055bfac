// The unit recurrence and the block recurrences as one kernel for all steps: which calls are supported, and
// the launches. No CUDA header is needed to include this.
#pragma once

#include "cuda/runtime/context.h"
#include "ops/recurrence/block_accumulate.h"

namespace eddy::cuda {

// Tells (ops/core/warnings.h) that such a call does not run fused although fused kernels were asked for. A block of 1
// is the unit recurrence. It is defined in a .cpp file, since .cu files cannot format.
void warn_not_fused(const char* op, const RecurrenceSupportQuery& sizes);

// Answers whether such a recurrence runs on the fused kernels, forward and backward. They must be asked for
// (set_gpu_kernels) and support the sizes: dim and mlp are multiples of 32, dim is at most 512, and the GPU's
// multiprocessors together hold the weights; blocks have at most 64 positions and heads at most 32 numbers. If they do
// not support it, it gives a warning.
void unit_recurrence_supports(const RecurrenceSupportQuery& query);
void block_forget_supports(const RecurrenceSupportQuery& query);
void block_accumulate_supports(const RecurrenceSupportQuery& query);

// Runs a kernel that waits at so many grid barriers and does nothing else (ops/backends.h).
void run_grid_barriers(int barriers);

// Runs the whole chain of the unit recurrence, or its gradient.
// errors: DeviceError if the kernels do not support the call.
void fused_unit_recurrence_forward(const UnitRecurrenceArgs& args);
void fused_unit_recurrence_backward(const UnitRecurrenceArgs& args);

}  // namespace eddy::cuda
