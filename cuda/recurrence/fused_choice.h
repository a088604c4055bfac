// What is around the one recurrence in one kernel, that of block accumulate: what is said where it does not take a
// call, and its grid barriers alone. No CUDA header is needed to include this.
#pragma once

#include "cuda/runtime/context.h"
#include "ops/recurrence/block_accumulate.h"

namespace eddy::cuda {

// Tells (ops/core/warnings.h) that such a call does not run fused although fused kernels were asked for. It is defined
// in a .cpp file, since .cu files cannot format.
void warn_not_fused(const char* op, const RecurrenceSupportQuery& sizes);

// Runs a kernel that waits at so many grid barriers and does nothing else (ops/backends.h).
void run_grid_barriers(int barriers);

}  // namespace eddy::cuda
