// What is said where a recurrence does not run fused although it was asked to.
#include "cuda/recurrence/fused_choice.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"

namespace eddy::cuda {

void warn_not_fused(const char* op, const RecurrenceSupportQuery& q) {
  if (!q.spreads_output)
    return add_warning(fmt::format(
        "{} with accumulate = \"hidden\" is composed of other ops: the fused kernel spreads the output", op));
  add_warning(fmt::format(
      "{} is not fused: dim {}, mlp {}, {} heads, blocks of {}, products in {} (the kernel takes dim and mlp in steps "
      "of 32, dim up to 512, blocks of up to 64 positions, heads of 4 to 32 numbers in steps of 4, and weights that the GPU's "
      "multiprocessors together hold)",
      op, q.dim, q.mlp, q.heads, q.block, dtype_name(q.products)));
}

}  // namespace eddy::cuda
