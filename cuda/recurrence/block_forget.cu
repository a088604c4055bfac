// The block recurrence with forget as one kernel for all blocks; fused_recurrence.cuh has the kernels. Its
// test is the same chain composed of other ops (models/recurrent_transformer/block_forget.cpp).
//
// Mapping: that of the unit recurrence, with the rows of a block per sequence in place of one row. The
// attention phase has a warp for each query of a head (block_attention.cuh); backward one for each query and
// each key.
//
// Shared memory: this block's share of the weights, 11 dim^2 sizeof(T) / blocks at mlp = 4 dim, and 32 dim
// elements of T:
//   dim 32, f32     one block a group with all weights, 44 KiB + 4 KiB; its grid barriers are block barriers
//   dim 96, f32     two blocks a group with 198 KiB + 12 KiB each
//
// Bytes moved forward, for dim 32, 4 heads, mlp 128, blocks of 32 positions, f32: 15 dim x 4 bytes a row and
// step as in the unit recurrence, 1.9 KB (with products in bf16 46 dim bytes, as there), 0.5 GB for 256
// sequences of 1024 positions: 0.1 ms at 4.8 TB/s, the least.
//
// Work: 11 dim^2 multiply-adds of products and about 2 dim 48 of attention a row, 3.8 G: 0.12 ms at 33 T a
// second.
//
// The composed chain moves each of these arrays through memory some three times, in 14 launches a block
// forward and 25 backward. Measured on an H200: it takes less time all the same (README.md).
#include "cuda/recurrence/fused_recurrence.cuh"
#include "cuda/recurrence/unit_recurrence_fused.h"
#include "tensor/base/error.h"

namespace eddy::cuda {

extern template Direction<BlockForgetArgs> backward_of(
    const BlockForgetArgs& a);  // in block_forget_backward.cu

namespace {

constexpr const char* kNoKernel =
    "block_forget: the GPU has no kernel for these sizes (ask block_forget_fits first)";

}  // namespace

void block_forget_supports(const RecurrenceSupportQuery& query) {
  answer<BlockForgetArgs>("block_forget", query, supports_blocks(query), forward_of, backward_of);
}

void block_forget_forward(const BlockForgetArgs& args) {
  if (!run(args, forward_of(args))) throw DeviceError(kNoKernel);
}

void block_forget_backward(const BlockForgetArgs& args) {
  if (!run(args, backward_of(args))) throw DeviceError(kNoKernel);
}

}  // namespace eddy::cuda
