// The unit recurrence and the block recurrences as one kernel for all steps: which calls are supported, and
// the launches. No CUDA header is needed to include this.
#pragma once

#include "ops/recurrence/block_accumulate.h"

namespace eddy::cuda {

// Sets whether calls that the fused kernels support use them. Off by default.
void set_fused_recurrences(bool on);
bool fused_recurrences();

// Warns (ops/core/warnings.h) that such a call does not run fused although fused kernels were chosen. A block
// of 1 is the unit recurrence. It is defined in a .cpp file, since .cu files cannot format.
void warn_not_fused(const char* op, const RecurrenceSupportQuery& sizes);

// Answers whether the fused kernels are on and support such a recurrence, forward and backward: dim and mlp
// are multiples of 32, dim is at most 512, and the GPU's multiprocessors together hold the weights; blocks
// have at most 64 positions and heads at most 32 numbers. If the kernels are on and do not support it, it
// gives a warning.
void unit_recurrence_supports(const RecurrenceSupportQuery& query);
void block_forget_supports(const RecurrenceSupportQuery& query);
void block_accumulate_supports(const RecurrenceSupportQuery& query);

// Runs the whole chain of the unit recurrence, or its gradient. Returns whether the fused kernel supports the
// call; if not, it only gives a warning. With products in bf16 the rows are stored as the capability query
// answered, so that decides, forward and backward; in f32 the setting is checked here.
bool fused_unit_recurrence_forward(const UnitRecurrenceArgs& args);
bool fused_unit_recurrence_backward(const UnitRecurrenceArgs& args);

}  // namespace eddy::cuda
