// The unit recurrence and the block recurrences as one kernel for all steps: which calls it takes. No CUDA
// header is needed to include this.
#pragma once

#include "ops/recurrence/block_accumulate.h"

namespace eddy::cuda {

// Whether the fused kernels may take the calls that they can. Off at the start.
void set_fused_recurrences(bool on);
bool fused_recurrences();

// Says in a notice (ops/core/warnings.h) that such a call goes another way although fused kernels were chosen;
// blocks of 0 for the unit recurrence. In a file of its own, since .cu files cannot format.
void notice_plain_recurrence(const char* op, const BlockRecurrenceQuestion& sizes);

// Whether the kernels take such a unit recurrence, forward and backward: they may, dim and mlp are multiples
// of 32, dim is at most 512, and the GPU's multiprocessors together hold the weights. A notice says so where
// they may and do not.
bool takes_unit_recurrence(const BlockRecurrenceQuestion& question);
// The whole chain of the unit recurrence, or its gradient. Returns whether the kernel took the call, and does
// nothing otherwise but say so. With products in bf16 rows are kept as the answer to the question said, and
// that decides, forward and backward; in f32 it is asked here.
bool fused_unit_recurrence_forward(const UnitRecurrenceArgs& args);
bool fused_unit_recurrence_backward(const UnitRecurrenceArgs& args);

// Whether the kernels take such a block recurrence: as the unit recurrence, and blocks are of at most 64
// positions, heads of at most 32 numbers. A notice says so where they may and do not.
bool takes_block_recurrence(const BlockRecurrenceQuestion& question);
// The chain of the block recurrence and its gradient.
// errors: DeviceError for what they do not take.
void block_recurrence_forward(const UnitRecurrenceArgs& args);
void block_recurrence_backward(const UnitRecurrenceArgs& args);
// The same with accumulate.
bool takes_block_accumulate(const BlockRecurrenceQuestion& question);
void block_accumulate_forward(const BlockAccumulateArgs& args);
void block_accumulate_backward(const BlockAccumulateArgs& args);

}  // namespace eddy::cuda
