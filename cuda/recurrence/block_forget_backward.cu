// The backward kernels of the block recurrence with forget; fused_recurrence.cuh has their source. They have
// a file of their own because compiling them takes as long as all the rest.
//
//   mapping        groups of blocks and phases as in fused_recurrence.cuh; the attention phase has a warp for
//                  each query of a head, then one for each key of the block and of the previous one
//   shared memory  as the forward kernel, for the same weights, transposed
//   bytes moved    f32: of a row and step 15 dim x 4 bytes are read (h, o, r, u, q, k, v, key, value and the
//                  incoming gradient) and 18 dim x 4 written, 4.2 KB at dim 32, 1.1 GB for 256 sequences of
//                  1024 positions: 0.23 ms at 4.8 TB/s, the least. With products in bf16 50 dim and 56 dim
//                  bytes, 3.4 KB: o and u are read as bf16; act, du, dattn, dmlp are written as bf16, and
//                  dkey and dvalue once more.
//   work           11 dim^2 multiply-adds a row, and 9 dim a pair in place of 2, since queries and keys each
//                  compute its score: 6.6 G
#include "cuda/recurrence/fused_recurrence.cuh"

namespace eddy::cuda {

template Direction<BlockForgetArgs> backward_of(const BlockForgetArgs& a);

}  // namespace eddy::cuda
