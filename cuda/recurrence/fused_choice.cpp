// What is said where a recurrence does not run fused although it was asked to.
#include "cuda/recurrence/unit_recurrence_fused.h"
#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"

namespace eddy::cuda {

void warn_not_fused(const char* op, const RecurrenceSupportQuery& q) {
  if (!q.spreads_output)
    return add_warning(fmt::format(
        "{} with accumulate = \"hidden\" is composed of other ops: the fused kernel spreads the output", op));
  const bool blocks = q.block > 1;
  add_warning(fmt::format(
      "{} is not fused: dim {}, mlp {}{}, products in {} (the kernel takes dim and mlp in steps of 32, dim "
      "up to 512{}, and weights that the GPU's multiprocessors together hold)",
      op, q.dim, q.mlp, blocks ? fmt::format(", {} heads, blocks of {}", q.heads, q.block) : "",
      dtype_name(q.products),
      blocks ? ", blocks of up to 64 positions, heads of up to 32 numbers"
             : ", up to 32 heads of a multiple of 8 numbers"));
}

}  // namespace eddy::cuda
