// The block recurrence with accumulate as one kernel for all windows; block_accumulate.cuh says how. The
// chain composed of other ops (models/recurrent_transformer/block_accumulate.cpp) is its test.
//
// Mapping: groups of blocks and phases as in fused_recurrence.cuh, five a window forward and six backward;
// the attention phase has a warp for each query of a head, backward one for each query and each key.
//
// Shared memory: the weights' share, 12 dim^2 sizeof(T) / blocks at mlp = 4 dim, and 32 dim elements of T. At
// dim 96 that is 222 KiB for one block in bf16, and in f32, where two blocks would need 1 KiB more than a
// multiprocessor has, 156 KiB for three. 64 sequences on 132 multiprocessors make 64 groups of two blocks in
// bf16, 114 KiB each, and in f32 32 groups of four, 120 KiB.
//
// Bytes and operations of the copy task: dim 96, 6 heads, mlp 384, blocks of 32, 64 sequences of 4128
// positions in f32. The rows of all windows are twice the positions, 528 k. Kept for the backward are 13 dim
// of each (z, qkv, a1, o, r, a2, the result; u has 4 dim), 5.0 KB: 2.6 GB are written forward, and x is read,
// 0.10 GB: 0.57 ms at 4.8 TB/s, the least. With products in bf16 a1, o, a2 and u are kept as bf16, 38 dim
// bytes in place of 52: 3.6 KB. Backward 10 dim are read again (z, qkv, o, r, u), dy too, and 16
// written (dqkv, da1, dz, da2, do, dmlp; act and du have 4 dim): 5.4 GB, 1.1 ms; in bf16 o, u, dqkv, do,
// dmlp, act and du have 2 bytes: 30 dim bytes read and 38 written in place of 40 and 64. Multiply-adds: 12
// dim^2 of products a row and 2 dim 32.5 of attention on average, 62 G forward: 1.8 ms at 67 TFLOP/s in f32;
// products in bf16 are 0.12 ms at 990, and attention is f32 there too. Backward the same products, the
// weights' gradients following after the loop, and twice the attention, whose scores are computed again
// besides. To this come 130 windows of five meetings, and of six. The composed chain passes each array
// through memory some three times, in 34 launches a block forward and 57 back. None of these times has been
// measured.
#include "cuda/recurrence/block_accumulate.cuh"

#include "cuda/recurrence/unit_recurrence_fused.h"
#include "tensor/base/error.h"

namespace eddy::cuda {
namespace {

constexpr const char* kNoKernel =
    "block_accumulate: the GPU has no kernel for these sizes (ask block_accumulate_fits first)";

Direction<BlockAccumulateArgs> accumulate_forward_of(const BlockAccumulateArgs& a) {
  return {"block_accumulate",
          accumulate_forward_kernel<float>,
          accumulate_forward_kernel<bf16>,
          {{3 * a.dim, a.dim}, {a.dim, a.dim}, {a.mlp, a.dim}, {a.dim, a.mlp}},
          false,
          2};
}

}  // namespace

bool takes_block_accumulate(const BlockRecurrenceQuestion& question) {
  if (!fused_recurrences()) return false;
  const auto args = sizes_of<BlockAccumulateArgs>(question);
  const bool takes = takes_blocks(question) && plan_of(args, accumulate_forward_of(args)).groups > 0 &&
                     plan_of(args, accumulate_backward_of(args)).groups > 0;
  if (!takes) notice_plain_recurrence("block_accumulate", question);
  return takes;
}

void block_accumulate_forward(const BlockAccumulateArgs& args) {
  if (!run(args, accumulate_forward_of(args))) throw DeviceError(kNoKernel);
}

void block_accumulate_backward(const BlockAccumulateArgs& args) {
  if (!run(args, accumulate_backward_of(args))) throw DeviceError(kNoKernel);
}

}  // namespace eddy::cuda
