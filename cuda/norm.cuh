// What the norms of rows share on the GPU: how their kernels are launched.
//
// Forward and dx: a warp per row of up to kWarpRow entries, a block per longer row. Partial sums of the
// parameters' gradients: a block of kNormColumns columns x kNormLanes rows for every kNormColumns columns and
// every kNormBlockRows rows.
#pragma once

#include "cuda/numbers.cuh"
#include "cuda/team.cuh"
#include "ops/layer_norm.h"

namespace eddy::cuda {

inline constexpr int kNormColumns = 32, kNormLanes = kThreads / kNormColumns;

// Blocks of columns of a partial sum.
__host__ __device__ inline std::int64_t norm_tiles(std::int64_t width) {
  return (width + kNormColumns - 1) / kNormColumns;
}

// The row that is normalised: of x, or of the sum with delta, which each thread writes for the entries that
// it reads itself.
template <int Threads, class T, class Args>
__device__ const T* row_to_norm(const Args& args, std::int64_t row) {
  const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
  if (args.delta == nullptr) return x;
  const T* const delta = static_cast<const T*>(args.delta) + row * args.delta_stride;
  T* const sum = static_cast<T*>(args.sum) + row * args.width;
  for (std::int64_t i = Team<Threads>::lane(); i < args.width; i += Threads)
    sum[i] = static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(delta[i]));
  return sum;
}

// dx = dsum + gradient where there is a dsum, whose entry `at` is meant, else dx_beta dx + gradient.
template <class T, class Args>
__device__ void set_dx(const Args& args, std::int64_t at, T& dx, float gradient) {
  if (args.dsum != nullptr)
    dx = static_cast<T>(static_cast<float>(static_cast<const T*>(args.dsum)[at]) + gradient);
  else
    add_to(dx, args.dx_beta, gradient);
}

// Runs the kernels of a backward pass: the partial sums first, since dx may overwrite dy. Kernels of what is
// not wanted are not run.
template <class Args>
void launch_norm_backward(const char* name, void (*partials)(Args), void (*dx_of_warp)(Args),
                          void (*dx_of_block)(Args), bool wants_partials,
                          const std::type_identity_t<Args>& args) {
  if (wants_partials)
    launch(name, partials, grid_for(norm_tiles(args.width) * norm_blocks(args.rows), 1, 64), kThreads, args);
  if (args.dx != nullptr) launch_rows(name, dx_of_warp, dx_of_block, args.rows, args.width, args);
}

}  // namespace eddy::cuda
