// The backward kernels of the block recurrence with accumulate; block_accumulate.cu says how they work.
//
// Mapping: groups of blocks and six phases a window as in fused_recurrence.cuh; the attention phase has a
// warp for each query and each key of a head. Shared memory: that of the forward kernel, 12 dim^2 sizeof(T) /
// blocks at mlp = 4 dim and 32 dim elements of T, for the same weights are held, turned. Bytes moved: of a
// row 11 dim x 4 bytes are read (z, qkv, o, r, u, dy) and 16 dim x 4 written, once each: the least;
// with products in bf16 34 dim bytes and 38 dim.
#include "cuda/recurrence/block_accumulate.cuh"

namespace eddy::cuda {

Direction<BlockAccumulateArgs> accumulate_backward_of(const BlockAccumulateArgs& a) {
  return {"block_accumulate_backward",
          accumulate_backward_kernel<float>,
          accumulate_backward_kernel<bf16>,
          {{a.mlp, a.dim}, {a.dim, a.mlp}, {a.dim, a.dim}, {a.dim, 3 * a.dim}},
          true,
          2};
}

}  // namespace eddy::cuda
