// The unit recurrence as one kernel for all steps; fused_recurrence.cuh says how. The plain chain of
// unit_recurrence.cu is its test.
//
// Mapping: groups of blocks, each with its share of the sequences, and five phases a step, of which the
// mixing phase has a warp for each head of a row. Shared memory: the weights' share, 11 dim^2 sizeof(T) /
// blocks at mlp = 4 dim, and 32 dim elements of T. Bytes moved: of a row and a step 60 dim forward in f32 and
// 46 dim in bf16, the least, and the weights once a call; fused_recurrence.cuh derives both and says what the
// second-level cache passes on.
#include "cuda/recurrence/unit_recurrence_fused.h"

#include <atomic>

#include "cuda/recurrence/fused_recurrence.cuh"

namespace eddy::cuda {
namespace {

std::atomic<bool> allowed{false};

bool run_or_say(const UnitRecurrenceArgs& args, const Direction<UnitRecurrenceArgs>& direction) {
  if (args.products == Dtype::bf16 ? args.kept != Dtype::bf16 : !fused_recurrences()) return false;
  if (run(args, direction)) return true;
  notice_plain_recurrence("unit_recurrence",
                          {args.dim, args.mlp, args.heads, args.sequences, 0, args.products, nullptr});
  return false;
}

}  // namespace

void set_fused_recurrences(bool on) {
  allowed.store(on);
}

bool fused_recurrences() {
  return allowed.load(std::memory_order_relaxed);
}

bool takes_unit_recurrence(const BlockRecurrenceQuestion& question) {
  if (!fused_recurrences()) return false;
  const auto args = sizes_of<UnitRecurrenceArgs>(question);
  const bool takes =
      plan_of(args, forward_of<false>(args)).groups > 0 && plan_of(args, backward_of<false>(args)).groups > 0;
  if (!takes) {
    BlockRecurrenceQuestion told = question;
    told.block = 0;
    notice_plain_recurrence("unit_recurrence", told);
  }
  return takes;
}

bool fused_unit_recurrence_forward(const UnitRecurrenceArgs& args) {
  return run_or_say(args, forward_of<false>(args));
}

bool fused_unit_recurrence_backward(const UnitRecurrenceArgs& args) {
  return run_or_say(args, backward_of<false>(args));
}

}  // namespace eddy::cuda
