// Rows scaled to unit length, and the gradient.
//
//   y  = x r                      r = 1 / sqrt(sum(x^2) + eps)
//   dx = r (dy - y sum(dy y))
//
//   mapping        rows of up to kLongestRegisterRow entries, in whole groups of 16 bytes, are kept in the
//                  registers of a team of threads (register_rows.cuh), up to 16 entries to a thread: a warp
//                  takes eight heads of 64. Other rows: a warp for up to 1024 entries, a block for more; each
//                  thread takes every 32nd or 256th entry.
//   shared memory  up to 128 bytes
//   bytes moved    x and y once; in the gradient dy, y and dx once, the least. Rows that are not
//                  register-resident come from the cache the second time.
//   bits           those of aligned rows and of others are the same: contractions are written (fmaf, __fmul_rn)
//   registers      31 to 56 for aligned register-resident rows (nvcc 13.0, sm_90), none spilled, so 36 to 64
//                  warps on a multiprocessor
#include "cuda/core/numbers.cuh"
#include "cuda/core/register_rows.cuh"
#include "cuda/core/team.cuh"
#include "ops/norm/unit_norm.h"

namespace eddy::cuda {
namespace {

constexpr int kThreadElements = 16;  // per thread

template <class Args>
struct RegisterRowUnitNorm {
  Args args;
  RowTeams teams;
};

template <bool Aligned, class T>
__global__ void __launch_bounds__(32 * kMostTeamWarps)
    register_forward_kernel(RegisterRowUnitNorm<UnitNormArgs> launched) {
  constexpr int kThreadGroups = kThreadElements / kGroup<T>;
  const UnitNormArgs& args = launched.args;
  const RowTeams& teams = launched.teams;
  const float eps = static_cast<float>(args.eps);
  int turn = 0;
  for (std::int64_t first = blockIdx.x * std::int64_t{teams.count}; first < args.rows;
       first += gridDim.x * std::int64_t{teams.count}) {
    const std::int64_t row = first + teams.team(), read = min(row, args.rows - 1);
    const int groups = row < args.rows ? teams.groups : 0;  // a team without a row writes nothing
    Group<T> x[kThreadGroups];
    read_row<Aligned>(x, static_cast<const T*>(args.x) + read * args.x_stride, teams);
    float squares[1] = {0};
    each_group<T, kThreadGroups>(teams, groups, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) squares[0] = fmaf(x[k].at[j], x[k].at[j], squares[0]);
    });
    add_up(squares, teams, turn);
    const float scale = unit_norm_plain(args, read) ? 1.0f : 1.0f / sqrtf(squares[0] + eps);
    T* const y = static_cast<T*>(args.y) + row * args.width;
    each_group<T, kThreadGroups>(teams, groups, [&](int k, int column) {
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) x[k].at[j] *= scale;
      write_row_group<Aligned>(y + column, x[k]);
    });
    if (teams.lane() == 0 && groups > 0) static_cast<float*>(args.scale)[row] = scale;
  }
}

template <int Threads, class T>
__global__ void forward_kernel(UnitNormArgs args) {
  using RowTeam = Team<Threads>;
  const float eps = static_cast<float>(args.eps);
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* const y = static_cast<T*>(args.y) + row * args.width;
    const float length = sqrtf(eps + RowTeam::sum(0, args.width, [=](std::int64_t i) {
                                 return static_cast<float>(x[i]) * static_cast<float>(x[i]);
                               }));
    const float scale = unit_norm_plain(args, row) ? 1.0f : 1.0f / length;
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads)
      y[i] = static_cast<T>(static_cast<float>(x[i]) * scale);
    if (RowTeam::lane() == 0) static_cast<float*>(args.scale)[row] = scale;
  }
}

// dx = r (dy - y sum(dy y))
template <bool Aligned, class T>
__global__ void __launch_bounds__(32 * kMostTeamWarps)
    register_backward_kernel(RegisterRowUnitNorm<UnitNormBackwardArgs> launched) {
  constexpr int kThreadGroups = kThreadElements / kGroup<T>;
  const UnitNormBackwardArgs& args = launched.args;
  const RowTeams& teams = launched.teams;
  const bool adds = args.beta != 0.0f;
  int turn = 0;
  for (std::int64_t first = blockIdx.x * std::int64_t{teams.count}; first < args.rows;
       first += gridDim.x * std::int64_t{teams.count}) {
    const std::int64_t row = first + teams.team(), read = min(row, args.rows - 1);
    const int groups = row < args.rows ? teams.groups : 0;  // as above
    const float scale = static_cast<const float*>(args.scale)[read];
    Group<T> dy[kThreadGroups], y[kThreadGroups];
    read_row<Aligned>(dy, static_cast<const T*>(args.dy) + read * args.dy_stride, teams);
    read_row<Aligned>(y, static_cast<const T*>(args.y) + read * args.width, teams);
    float product[1] = {0};
    each_group<T, kThreadGroups>(teams, groups, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) product[0] = fmaf(dy[k].at[j], y[k].at[j], product[0]);
    });
    add_up(product, teams, turn);
    const float dy_y = unit_norm_plain(args, read) ? 0.0f : product[0];
    T* const dx = static_cast<T*>(args.dx) + row * args.width;
    each_group<T, kThreadGroups>(teams, groups, [&](int k, int column) {
      Group<T> result;
      if (adds) result = read_row_group<Aligned>(dx + column);
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) {
        const float gradient = __fmul_rn(scale, fmaf(-y[k].at[j], dy_y, dy[k].at[j]));
        result.at[j] = adds ? fmaf(args.beta, result.at[j], gradient) : gradient;
      }
      write_row_group<Aligned>(dx + column, result);
    });
  }
}

template <int Threads, class T>
__global__ void backward_kernel(UnitNormBackwardArgs args) {
  using RowTeam = Team<Threads>;
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const T* const dy = static_cast<const T*>(args.dy) + row * args.dy_stride;
    const T* const y = static_cast<const T*>(args.y) + row * args.width;
    T* const dx = static_cast<T*>(args.dx) + row * args.width;
    const float scale = static_cast<const float*>(args.scale)[row];
    const float sum = RowTeam::sum(
        0, args.width, [=](std::int64_t i) { return static_cast<float>(dy[i]) * static_cast<float>(y[i]); });
    const float dy_y = unit_norm_plain(args, row) ? 0.0f : sum;
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads) {
      add_to(dx[i], args.beta, scale * (static_cast<float>(dy[i]) - static_cast<float>(y[i]) * dy_y));
    }
  }
}

// Launches one of the kernels above: with register-resident rows where possible.
template <class T, class Args>
void run(const char* name, void (*register_kernel)(RegisterRowUnitNorm<Args>), void (*warp_kernel)(Args),
         void (*block_kernel)(Args), const Args& args) {
  if (!rows_fit_registers<T>(args.width))
    return launch_rows(name, warp_kernel, block_kernel, args.rows, args.width, args);
  const RowTeams teams = row_teams<kThreadElements, T>(args.width);
  if (args.rows > 0)
    launch(name, register_kernel, grid_for(args.rows, teams.count, 64), teams.threads(), {args, teams});
}

}  // namespace

void unit_norm_forward(const UnitNormArgs& args) {
  for_activations("unit_norm", args.dtype, [&](auto* type) {
    using T = StoredIn<decltype(type)>;
    const bool all = rows_aligned<T>(args.x, args.x_stride) && rows_aligned<T>(args.y);
    run<T>("unit_norm", all ? register_forward_kernel<true, T> : register_forward_kernel<false, T>,
           forward_kernel<32, T>, forward_kernel<kThreads, T>, args);
  });
}

void unit_norm_backward(const UnitNormBackwardArgs& args) {
  for_activations("unit_norm", args.dtype, [&](auto* type) {
    using T = StoredIn<decltype(type)>;
    const bool all =
        rows_aligned<T>(args.dy, args.dy_stride) && rows_aligned<T>(args.y) && rows_aligned<T>(args.dx);
    run<T>("unit_norm_backward", all ? register_backward_kernel<true, T> : register_backward_kernel<false, T>,
           backward_kernel<32, T>, backward_kernel<kThreads, T>, args);
  });
}

}  // namespace eddy::cuda
