// The unit recurrence and the block recurrences as one kernel for all steps: which calls are supported, and
// the launches. No CUDA header is needed to include this.
#pragma once

#include "ops/recurrence/block_accumulate.h"

namespace eddy::cuda {

// Tells (ops/core/warnings.h) that such a call does not run fused although fused kernels were asked for, or that it
// does by the program's choice. A block of 1 is the unit recurrence. They are defined in a .cpp file, since .cu
// files cannot format.
void warn_not_fused(const char* op, const RecurrenceSupportQuery& sizes);
void note_fused(const char* op);

// Returns whether the fused kernels are expected to take less time than the composed chain, both directions
// together, when a group has `rows` rows of a step; `launches` are those of a step of the chain.
bool fused_wins(std::int64_t rows, std::int64_t steps, int launches, Dtype products);

// Answers whether such a recurrence runs on the fused kernels, forward and backward. They must not be refused
// (set_gpu_kernels), must win unless they are asked for, and support the sizes: dim and mlp are multiples of 32, dim
// is at most 512, and the GPU's multiprocessors together hold the weights; blocks have at most 64 positions and
// heads at most 32 numbers. If they are asked for and do not support it, it gives a warning.
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
