// The unit recurrence as one kernel for all steps; fused_recurrence.cuh has the kernels. Its test is the
// unfused chain of unit_recurrence.cu.
//
//   mapping        groups of blocks, each with its share of the sequences, and five phases a step; the gate
//                  phase has a warp for each head of a row
//   shared memory  this block's share of the weights, 11 dim^2 sizeof(T) / blocks at mlp = 4 dim, and 32 dim
//                  elements of T
//   bytes moved    of a row and a step 60 dim forward in f32 and 46 dim in bf16, the least, and the weights
//                  once a call; fused_recurrence.cuh derives both, and the traffic of the second-level cache
#include "cuda/recurrence/unit_recurrence_fused.h"

#include "cuda/recurrence/fused_recurrence.cuh"

namespace eddy::cuda {
namespace {

constexpr int kLaunches = 18;  // of a step of the chain, forward and backward

bool runs_fused(const UnitRecurrenceArgs& args) {
  bool fits = args.kept == Dtype::bf16;
  if (args.products != Dtype::bf16)
    unit_recurrence_supports({args.dim, args.mlp, args.heads, args.sequences, 1,
                              args.time * args.batch * args.dim, args.products, &fits});
  return fits;
}

}  // namespace

void unit_recurrence_supports(const RecurrenceSupportQuery& query) {
  answer<UnitRecurrenceArgs>("unit_recurrence", query, true, kLaunches, forward_of, backward_of);
}

bool fused_unit_recurrence_forward(const UnitRecurrenceArgs& args) {
  return runs_fused(args) && run(args, forward_of(args));
}

bool fused_unit_recurrence_backward(const UnitRecurrenceArgs& args) {
  return runs_fused(args) && run(args, backward_of(args));
}

}  // namespace eddy::cuda
