// The backward kernels of the block recurrence with accumulate; block_accumulate.cu says how they work, their
// mapping and bytes included.
#include "cuda/block_accumulate.cuh"

namespace eddy::cuda {

Direction<BlockAccumulateArgs> accumulate_backward_of(const BlockAccumulateArgs& a) {
  return {"block_accumulate_backward",
          accumulate_backward_kernel<float>,
          accumulate_backward_kernel<bf16>,
          {{a.mlp, a.dim}, {a.dim, a.mlp}, {a.dim, a.dim}, {a.dim, 3 * a.dim}},
          2};
}

}  // namespace eddy::cuda
