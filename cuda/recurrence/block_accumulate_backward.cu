// The backward kernels of the block recurrence with accumulate; block_accumulate.cuh has their source.
//
//   mapping        groups of blocks and six phases a window; the attention phase has a warp for each query and
//                  each key of a head
//   shared memory  as the forward kernel, for the same weights, transposed: 12 dim^2 sizeof(T) / blocks at
//                  mlp = 4 dim, and 32 dim elements of T
//   bytes moved    of a row in f32 11 dim x 4 bytes are read (z, qkv, o, r, u, dy) and 16 dim x 4 written,
//                  once each: the least; with products in bf16 34 dim and 38 dim bytes
#include "cuda/recurrence/block_accumulate.cuh"

namespace eddy::cuda {

Direction accumulate_backward_of(const BlockAccumulateArgs& a) {
  return {"block_accumulate_backward",
          {accumulate_backward_kernel<float, false>, accumulate_backward_kernel<float, true>},
          {accumulate_backward_kernel<bf16, false>, accumulate_backward_kernel<bf16, true>},
          {{a.mlp, a.dim}, {a.dim, a.mlp}, {a.dim, a.dim}, {a.dim, 3 * a.dim}},
          true,
          2};
}

}  // namespace eddy::cuda
