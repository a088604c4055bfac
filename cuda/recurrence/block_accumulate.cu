// The block recurrence with accumulate as one kernel for all windows; block_accumulate.cuh has the kernels.
// Its test is the same chain composed of other ops (models/recurrent_transformer/block_accumulate.cpp).
//
// Mapping: groups of blocks, with five phases a window forward and six backward. The attention phase has a warp for
// each query of a head; backward one for each query and each key.
//
// Shared memory: this block's share of the weights, 12 dim^2 sizeof(T) / blocks at mlp = 4 dim, and 32 dim
// elements of T. At dim 96:
//   T      least blocks     bytes a block     with 64 sequences on 132 multiprocessors
//   bf16   1                222 KiB           64 groups of two blocks, 114 KiB each
//   f32    3                156 KiB           32 groups of four blocks, 120 KiB each
// In f32 two blocks would need 1 KiB more than a multiprocessor has.
//
// Bytes moved, for the copy task: dim 96, 6 heads, mlp 384, blocks of 32, 64 sequences of 4128 positions. The
// rows of all windows are twice the positions, 528 k. Bytes of a row:
//   forward, kept        f32     52 dim, 5.0 KB    z, qkv, a1, o, r, a2, the result; u with 4 dim
//                        bf16    38 dim, 3.6 KB    a1, o, a2 and u have 2 bytes
//   backward, read       f32     40 dim            z, qkv, o, r, u; and dy
//                        bf16    30 dim            o and u have 2 bytes
//   backward, written    f32     64 dim            dqkv, da1, dz, da2, do, dmlp; act and du with 4 dim
//                        bf16    38 dim            dqkv, do, dmlp, act and du have 2 bytes
// In f32 2.6 GB are written forward and 0.10 GB of x read: 0.57 ms at 4.8 TB/s, the least. Backward: 5.4 GB,
// 1.1 ms.
//
// Work: 12 dim^2 multiply-adds of products a row and 2 dim 32.5 of attention on average, 62 G forward: 1.8 ms
// at 67 TFLOP/s in f32. Products in bf16 are 0.12 ms at 990 TFLOP/s; attention is f32 there too. Backward has
// the same products (those of the weights' gradients follow after the loop), twice the attention, and
// computes the scores again. Each of the 130 windows has five grid barriers forward and six backward.
//
// The composed chain moves each array through memory some three times, in 34 launches a block forward and 57
// backward. Measured on an H200, bf16: fused 31 ms forward and 90 backward, composed a third of it (README.md).
#include "cuda/recurrence/block_accumulate.cuh"

#include "tensor/base/error.h"

namespace eddy::cuda {
namespace {

constexpr const char* kNoKernel =
    "block_accumulate: the GPU has no kernel for these sizes (ask block_accumulate_fits first)";

Direction accumulate_forward_of(const BlockAccumulateArgs& a) {
  return {"block_accumulate",
          {accumulate_forward_kernel<float, false>, accumulate_forward_kernel<float, true>},
          {accumulate_forward_kernel<bf16, false>, accumulate_forward_kernel<bf16, true>},
          {{3 * a.dim, a.dim}, {a.dim, a.dim}, {a.mlp, a.dim}, {a.dim, a.mlp}},
          false,
          2};
}

}  // namespace

void block_accumulate_supports(const RecurrenceSupportQuery& query) {
  answer("block_accumulate", query, supports_blocks(query), accumulate_forward_of, accumulate_backward_of);
}

void block_accumulate_forward(const BlockAccumulateArgs& args) {
  if (!run(args, accumulate_forward_of(args))) throw DeviceError(kNoKernel);
}

void block_accumulate_backward(const BlockAccumulateArgs& args) {
  if (!run(args, accumulate_backward_of(args))) throw DeviceError(kNoKernel);
}

}  // namespace eddy::cuda
