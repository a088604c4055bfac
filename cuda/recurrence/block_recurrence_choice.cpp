// What is said where a block recurrence does not run as one kernel although it was asked to.
#include "cuda/recurrence/block_recurrence_choice.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"

namespace eddy::cuda {

void warn_not_fused(const RecurrenceSupportQuery& q) {
  if (!q.spreads_output)
    return add_warning(
        "a block recurrence with accumulate = \"hidden\" is composed of other ops: the fused kernel "
        "spreads the output");
  add_warning(fmt::format(
      "a block recurrence is not fused: dim {}, mlp {}, {} heads, blocks of {}, products in {} (the kernel "
      "takes products in bf16, dim in steps of 32 up to 128, mlp in steps of 32 up to 65536, blocks of up to "
      "64 positions, heads of 4 to 32 numbers in steps of 4, and windows that fit into the shared memory "
      "that a thread block has)",
      q.dim, q.mlp, q.heads, q.block, dtype_name(q.products)));
}

}  // namespace eddy::cuda
