// When a recurrence runs fused, and what is said about it.
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

void note_fused(const char* op) {
  note_kernels(fmt::format("{} runs as one kernel for all steps", op));
}

// In microseconds, expected and not measured (README.md). A launch of the chain is a small kernel and the gap before
// it. A step of the fused kernels takes as long as ten phases, each with a grid barrier and slices of 32 rows; a call
// first loads the weights, in both directions.
bool fused_wins(std::int64_t rows, std::int64_t steps, int launches, Dtype products) {
  constexpr double kLaunch = 5.5, kBarrier = 1.2, kWeights = 80, kPhases = 10;
  const double slice = products == Dtype::bf16 ? 2.7 : 5.5, slices = static_cast<double>((rows + 31) / 32);
  const double fused = kPhases * (kBarrier + slice * slices) + 2 * kWeights / static_cast<double>(steps);
  return fused < kLaunch * launches;
}

}  // namespace eddy::cuda
