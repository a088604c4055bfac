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

#include <atomic>

#include "cuda/recurrence/fused_recurrence.cuh"

namespace eddy::cuda {
namespace {

std::atomic<bool> allowed{false};

bool run_or_warn(const UnitRecurrenceArgs& args, const Direction<UnitRecurrenceArgs>& direction) {
  if (args.products == Dtype::bf16 ? args.kept != Dtype::bf16 : !fused_recurrences()) return false;
  if (run(args, direction)) return true;
  warn_not_fused("unit_recurrence",
                 {args.dim, args.mlp, args.heads, args.sequences, 1, args.products, nullptr});
  return false;
}

}  // namespace

void set_fused_recurrences(bool on) {
  allowed.store(on);
}

bool fused_recurrences() {
  return allowed.load(std::memory_order_relaxed);
}

void unit_recurrence_supports(const RecurrenceSupportQuery& query) {
  answer<UnitRecurrenceArgs>("unit_recurrence", query, true, forward_of, backward_of);
}

bool fused_unit_recurrence_forward(const UnitRecurrenceArgs& args) {
  return run_or_warn(args, forward_of(args));
}

bool fused_unit_recurrence_backward(const UnitRecurrenceArgs& args) {
  return run_or_warn(args, backward_of(args));
}

}  // namespace eddy::cuda
