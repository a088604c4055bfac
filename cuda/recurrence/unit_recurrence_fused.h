// The unit recurrence and the block recurrences as one kernel for all steps: which calls are supported, and
// the launches. No CUDA header is needed to include this.
#pragma once

#include "ops/recurrence/block_accumulate.h"

namespace eddy::cuda {

// Sets whether calls that the fused kernels support use them. Off by default.
void set_fused_recurrences(bool on);
bool fused_recurrences();

// Warns (ops/core/warnings.h) that such a call does not run fused although fused kernels were chosen. A block
// of 0 means the unit recurrence. It is defined in a .cpp file, since .cu files cannot format.
void warn_not_fused(const char* op, const RecurrenceSupportQuery& sizes);

// Returns whether the fused kernels are on and support such a unit recurrence, forward and backward: dim and
// mlp are multiples of 32, dim is at most 512, and the GPU's multiprocessors together hold the weights. If
// they are on and do not support it, it gives a warning.
bool supports_unit_recurrence(const RecurrenceSupportQuery& query);
// Runs the whole chain of the unit recurrence, or its gradient. Returns whether the fused kernel supports the
// call; if not, it only gives a warning. With products in bf16 the rows are stored as the capability query
// answered, so that decides, forward and backward; in f32 the setting is checked here.
bool fused_unit_recurrence_forward(const UnitRecurrenceArgs& args);
bool fused_unit_recurrence_backward(const UnitRecurrenceArgs& args);

// Returns whether the fused kernels are on and support such a block recurrence: as for the unit recurrence,
// and blocks have at most 64 positions and heads at most 32 numbers. If they are on and do not support it, it
// gives a warning.
bool supports_block_forget(const RecurrenceSupportQuery& query);
// Runs the chain of the block recurrence with forget, or its gradient.
// errors: DeviceError for unsupported sizes.
void block_forget_forward(const UnitRecurrenceArgs& args);
void block_forget_backward(const UnitRecurrenceArgs& args);
// The same for the block recurrence with accumulate.
bool supports_block_accumulate(const RecurrenceSupportQuery& query);
void block_accumulate_forward(const BlockAccumulateArgs& args);
void block_accumulate_backward(const BlockAccumulateArgs& args);

}  // namespace eddy::cuda
