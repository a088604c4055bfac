// The block recurrence with forget as one kernel for all blocks; fused_recurrence.cuh says how. The chain
// composed of other ops (models/recurrent_transformer/block_forget.cpp) is its test.
//
// Mapping: that of the unit recurrence, a sequence having the block's rows in place of one; the mixing phase
// has a warp for each query of a head (block_attention.cuh), backward one for each query and each key.
//
// Shared memory: the weights' share, 11 dim^2 sizeof(T) / blocks at mlp = 4 dim, and 32 dim elements of T. At
// dim 32 in f32 a group is one block, which holds all weights, 44 KiB and 4, and its meetings are barriers;
// at dim 96 in f32 it is two blocks with 198 KiB and 12 each.
//
// Bytes forward, dim 32, 4 heads, mlp 128, blocks of 32 positions, f32: a row and a step 15 dim x 4 bytes as
// in the unit recurrence, 1.9 KB (with products in bf16 46 dim bytes, as there), 0.5 GB for 256 sequences of
// 1024 positions: 0.1 ms at 4.8 TB/s, the least. Multiply-adds: 11 dim^2 of products and about 2 dim 48 of
// attention a row, 3.8 G: 0.12 ms at 33 T a second. The composed chain passes each of these arrays through
// memory some three times, in 14 launches a block forward and 25 back. None of these times has been measured.
#include "cuda/recurrence/fused_recurrence.cuh"
#include "cuda/recurrence/unit_recurrence_fused.h"
#include "tensor/base/error.h"

namespace eddy::cuda {

extern template Direction<UnitRecurrenceArgs> backward_of<true>(
    const UnitRecurrenceArgs& a);  // in block_forget_backward.cu

namespace {

constexpr const char* kNoKernel =
    "block_recurrence: the GPU has no kernel for these sizes (ask block_recurrence_fits first)";

}  // namespace

bool takes_block_recurrence(const BlockRecurrenceQuestion& question) {
  if (!fused_recurrences()) return false;
  const auto args = sizes_of<UnitRecurrenceArgs>(question);
  const bool takes = takes_blocks(question) && plan_of(args, forward_of<true>(args)).groups > 0 &&
                     plan_of(args, backward_of<true>(args)).groups > 0;
  if (!takes) notice_plain_recurrence("block_recurrence", question);
  return takes;
}

void block_recurrence_forward(const UnitRecurrenceArgs& args) {
  if (!run(args, forward_of<true>(args))) throw DeviceError(kNoKernel);
}

void block_recurrence_backward(const UnitRecurrenceArgs& args) {
  if (!run(args, backward_of<true>(args))) throw DeviceError(kNoKernel);
}

}  // namespace eddy::cuda
