// The unit recurrence as one kernel for all steps; fused_recurrence.cuh has the kernels. Its test is the
// unfused chain of unit_recurrence.cu.
//
//   mapping        groups of blocks, each with its share of the sequences, and four phases a step
//   shared memory  this block's share of the weights, 11 dim^2 sizeof(T) / blocks at mlp = 4 dim, and 32 dim
//                  elements of T
//   bytes moved    of a row and a step 60 dim forward in f32 and 46 dim in bf16, the least, and the weights
//                  once a call; fused_recurrence.cuh derives both, and the traffic of the second-level cache
#include "cuda/recurrence/unit_recurrence_fused.h"

#include "cuda/recurrence/fused_recurrence.cuh"
#include "tensor/base/error.h"

namespace eddy::cuda {
namespace {

constexpr const char* kNoKernel =
    "unit_recurrence: the GPU has no kernel for these sizes (ask unit_recurrence_supports first)";

}  // namespace

void unit_recurrence_supports(const RecurrenceSupportQuery& query) {
  answer<UnitRecurrenceArgs>("unit_recurrence", query,
                             query.heads <= 32 && query.dim % (8 * query.heads) == 0, forward_of,
                             backward_of);
}

void fused_unit_recurrence_forward(const UnitRecurrenceArgs& args) {
  if (!run(args, forward_of(args))) throw DeviceError(kNoKernel);
}

void fused_unit_recurrence_backward(const UnitRecurrenceArgs& args) {
  if (!run(args, backward_of(args))) throw DeviceError(kNoKernel);
}

}  // namespace eddy::cuda
