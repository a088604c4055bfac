// What is said where a block recurrence does not run as one kernel although it was asked to. No CUDA header is needed
// to include this.
#pragma once

#include "cuda/runtime/context.h"
#include "ops/recurrence/block_recurrence.h"

namespace eddy::cuda {

// Tells so (ops/core/warnings.h). It is defined in a .cpp file, since .cu files cannot format.
void warn_not_fused(const RecurrenceSupportQuery& sizes);

}  // namespace eddy::cuda
