// The backward kernels of the block recurrence; block_forget.cu says how they work. They stand apart
// because compiling them takes as long as all else of it.
//
// Mapping: groups of blocks and phases as in fused_recurrence.cuh; the mixing phase has a warp for each query
// of a head, then one for each key of the block and of the one before. Shared memory: that of the forward
// kernel, for the same weights are held, turned. Bytes in f32, as there: a row and a step 15 dim x 4 bytes
// are read (h, o, r, u, q, k, v, key, value and what comes in) and 18 dim x 4 written, 4.2 KB at dim 32, 1.1
// GB for 256 sequences of 1024 positions: 0.23 ms at 4.8 TB/s, the least; with products in bf16 (o and u read
// as bf16, act, du, dattn, dmlp so written, dkey and dvalue once more) 50 dim and 56 dim bytes, 3.4 KB.
// Multiply-adds: 11 dim^2 a row, and 9 dim to a pair in place of 2, since queries and keys each compute its
// score: 6.6 G. No time has been measured.
#include "cuda/recurrence/fused_recurrence.cuh"

namespace eddy::cuda {

template Direction<UnitRecurrenceArgs> backward_of<true>(const UnitRecurrenceArgs& a);

}  // namespace eddy::cuda
