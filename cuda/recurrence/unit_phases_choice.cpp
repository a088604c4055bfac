// Which calls of the unit recurrence run by phases, and what is said of those that do not although they were asked to.
#include "cuda/recurrence/unit_phases.h"
#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"

namespace eddy::cuda {

bool runs_by_phases(const UnitRecurrenceArgs& args) {
  const auto [kernel, asked] = kernel_choice(KernelOp::unit_recurrence);
  if (kernel != Kernel::phases) return false;
  const std::int64_t head = args.dim / args.heads;
  const bool fits = args.kept == Dtype::bf16 && args.dim % 8 == 0 && args.dim <= 512 && args.mlp % 8 == 0 &&
                    args.mlp <= 1 << 16 && head % 4 == 0 && head <= 64;
  if (!fits && asked)
    add_warning(fmt::format(
        "unit_recurrence does not run by phases: dim {}, mlp {}, heads of {}, products in {} (phases take products in "
        "bf16, dim and mlp in steps of 8, dim up to 512, mlp up to 65536, heads of 4 to 64 numbers in steps of 4)",
        args.dim, args.mlp, head, dtype_name(args.kept)));
  return fits;
}

}  // namespace eddy::cuda
