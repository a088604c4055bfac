// Rows brought to unit length, and the gradient.
//
// Mapping: rows of up to kHeldRow entries, in whole groups of 16 bytes, are held in the registers of a team
// of threads (register_rows.cuh), up to 16 entries to a thread: of heads of 64 a warp takes eight. Of others a
// warp takes a row of up to 1024 entries, a block a longer one, and each thread every 32nd or 256th entry.
// Shared memory: up to 128 bytes. Bytes moved: x and y once, and in the gradient dy, y and dx once, the
// least; rows that are not held are found in the cache the second time. Registers (nvcc 13.0, sm_90) where
// rows are held and aligned: 31 to 56, none spilled, so 36 to 64 warps on a multiprocessor.
#include "cuda/core/install.h"
#include "cuda/core/numbers.cuh"
#include "cuda/core/register_rows.cuh"
#include "cuda/core/team.cuh"
#include "ops/norm/unit_norm.h"

namespace eddy::cuda {
namespace {

constexpr int kHeldEntries = 16;  // of a thread

template <class Args>
struct HeldUnitNorm {
  Args args;
  RowTeams by;
};

template <bool Aligned, class T>
__global__ void __launch_bounds__(32 * kMostTeamWarps)
    held_forward_kernel(HeldUnitNorm<UnitNormArgs> launched) {
  constexpr int kHeld = kHeldEntries / kGroup<T>;
  const UnitNormArgs& args = launched.args;
  const RowTeams& by = launched.by;
  const float eps = static_cast<float>(args.eps);
  int turn = 0;
  for (std::int64_t first = blockIdx.x * std::int64_t{by.count}; first < args.rows;
       first += gridDim.x * std::int64_t{by.count}) {
    const std::int64_t row = first + by.team(), read = min(row, args.rows - 1);
    const int groups = row < args.rows ? by.groups : 0;  // a team without a row goes along with nothing
    Group<T> x[kHeld];
    read_row<Aligned>(x, static_cast<const T*>(args.x) + read * args.x_stride, by);
    float squares[1] = {0};
    each_group<T, kHeld>(by, groups, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) squares[0] += x[k].at[j] * x[k].at[j];
    });
    add_up(squares, by, turn);
    const float scale = unit_norm_plain(args, read) ? 1.0f : 1.0f / sqrtf(squares[0] + eps);
    T* const y = static_cast<T*>(args.y) + row * args.width;
    each_group<T, kHeld>(by, groups, [&](int k, int column) {
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) x[k].at[j] *= scale;
      write_held<Aligned>(y + column, x[k]);
    });
    if (by.lane() == 0 && groups > 0) static_cast<float*>(args.scale)[row] = scale;
  }
}

template <int Threads, class T>
__global__ void forward_kernel(UnitNormArgs args) {
  using Rows = Team<Threads>;
  const float eps = static_cast<float>(args.eps);
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* const y = static_cast<T*>(args.y) + row * args.width;
    float squares = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads)
      squares += static_cast<float>(x[i]) * static_cast<float>(x[i]);
    const float length = sqrtf(Rows::reduce(squares, Plus{}) + eps);
    const float scale = unit_norm_plain(args, row) ? 1.0f : 1.0f / length;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads)
      y[i] = static_cast<T>(static_cast<float>(x[i]) * scale);
    if (Rows::lane() == 0) static_cast<float*>(args.scale)[row] = scale;
  }
}

// dx = r (dy - y sum(dy y)) with y = x r.
template <bool Aligned, class T>
__global__ void __launch_bounds__(32 * kMostTeamWarps)
    held_backward_kernel(HeldUnitNorm<UnitNormBackwardArgs> launched) {
  constexpr int kHeld = kHeldEntries / kGroup<T>;
  const UnitNormBackwardArgs& args = launched.args;
  const RowTeams& by = launched.by;
  const bool adds = args.beta != 0.0f;
  int turn = 0;
  for (std::int64_t first = blockIdx.x * std::int64_t{by.count}; first < args.rows;
       first += gridDim.x * std::int64_t{by.count}) {
    const std::int64_t row = first + by.team(), read = min(row, args.rows - 1);
    const int groups = row < args.rows ? by.groups : 0;  // as above
    const float scale = static_cast<const float*>(args.scale)[read];
    Group<T> dy[kHeld], y[kHeld];
    read_row<Aligned>(dy, static_cast<const T*>(args.dy) + read * args.dy_stride, by);
    read_row<Aligned>(y, static_cast<const T*>(args.y) + read * args.width, by);
    float product[1] = {0};
    each_group<T, kHeld>(by, groups, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) product[0] += dy[k].at[j] * y[k].at[j];
    });
    add_up(product, by, turn);
    const float along = unit_norm_plain(args, read) ? 0.0f : product[0];
    T* const dx = static_cast<T*>(args.dx) + row * args.width;
    each_group<T, kHeld>(by, groups, [&](int k, int column) {
      Group<T> result;
      if (adds) result = read_held<Aligned>(dx + column);
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) {
        const float gradient = scale * (dy[k].at[j] - y[k].at[j] * along);
        result.at[j] = adds ? args.beta * result.at[j] + gradient : gradient;
      }
      write_held<Aligned>(dx + column, result);
    });
  }
}

template <int Threads, class T>
__global__ void backward_kernel(UnitNormBackwardArgs args) {
  using Rows = Team<Threads>;
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const T* const dy = static_cast<const T*>(args.dy) + row * args.dy_stride;
    const T* const y = static_cast<const T*>(args.y) + row * args.width;
    T* const dx = static_cast<T*>(args.dx) + row * args.width;
    const float scale = static_cast<const float*>(args.scale)[row];
    float product = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads)
      product += static_cast<float>(dy[i]) * static_cast<float>(y[i]);
    const float sum = Rows::reduce(product, Plus{}), along = unit_norm_plain(args, row) ? 0.0f : sum;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) {
      add_to(dx[i], args.beta, scale * (static_cast<float>(dy[i]) - static_cast<float>(y[i]) * along));
    }
  }
}

// Runs one of the kernels above: by teams that hold rows where they can.
template <class T, class Args>
void run(const char* name, void (*held)(HeldUnitNorm<Args>), void (*of_warp)(Args), void (*of_block)(Args),
         const Args& args) {
  if (!rows_held<T>(args.width)) return launch_rows(name, of_warp, of_block, args.rows, args.width, args);
  const RowTeams by = row_teams<kHeldEntries, T>(args.width);
  if (args.rows > 0) launch(name, held, grid_for(args.rows, by.count, 64), by.threads(), {args, by});
}

}  // namespace

void install_unit_norm() {
  constexpr int kCuda = static_cast<int>(DeviceType::cuda);
  unit_norm_forward_slot.function[kCuda] = [](const UnitNormArgs& args) {
    for_activations("unit_norm", args.dtype, [&](auto* type) {
      using T = StoredIn<decltype(type)>;
      const bool all = rows_aligned<T>(args.x, args.x_stride) && rows_aligned<T>(args.y);
      run<T>("unit_norm", all ? held_forward_kernel<true, T> : held_forward_kernel<false, T>,
             forward_kernel<32, T>, forward_kernel<kThreads, T>, args);
    });
  };
  unit_norm_backward_slot.function[kCuda] = [](const UnitNormBackwardArgs& args) {
    for_activations("unit_norm", args.dtype, [&](auto* type) {
      using T = StoredIn<decltype(type)>;
      const bool all =
          rows_aligned<T>(args.dy, args.dy_stride) && rows_aligned<T>(args.y) && rows_aligned<T>(args.dx);
      run<T>("unit_norm_backward", all ? held_backward_kernel<true, T> : held_backward_kernel<false, T>,
             backward_kernel<32, T>, backward_kernel<kThreads, T>, args);
    });
  };
}

}  // namespace eddy::cuda
