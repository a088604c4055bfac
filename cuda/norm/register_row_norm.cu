// Layer norm and RMS norm of rows that are kept in registers (register_rows.cuh): whole groups of 16 bytes, up to
// kLongestRegisterRow entries. row_norm.cu has the formulas.
//
// Rows that are aligned and rows that are not are two instances of a kernel with the same bits. So what the
// compiler might contract in one of them alone is written out, with fmaf and __fmul_rn.
//
// Forward.
//   mapping        a team of threads per row, 64 bytes of it to a thread: for 1024 entries a warp in bf16,
//                  two in f32. Mean and variance are two passes over registers.
//   bytes moved    x and y once, and delta and the sum for a norm of a sum, the least; weight and bias come
//                  from the L1 cache
//   registers      40 to 82 (nvcc 13.0, sm_90), none spilled, so a multiprocessor holds 20 to 48 warps, each
//                  with 2 KiB of loads in flight, 4 for a norm of a sum. An H200 at 4.8 TB/s needs some 20
//                  KiB (two thirds of it reads, 0.8 us each; an estimate).
//
// Backward.
//   mapping        a team per row, 16 entries to a thread. With many rows a block takes norm_block_rows of
//                  them. A thread has the same columns of all its rows and accumulates dy n and dy in
//                  registers, and dx as it is stored where its sums are wanted; the teams of a block are added
//                  in order into one row of partial sums. With few rows the partial sums are a kernel of their
//                  own, without those of dx, and dy and x are read twice.
//   shared memory  8 KiB (8,192 bytes)
//   bytes moved    dy, x and dx once, and dsum or the former dx, the least; partial sums add 2 % in bf16, and
//                  summing them another 2 %
//   registers      96 to 119 with the partial sums, none spilled: 16 to 20 warps, each with 2 KiB of dy and x
//                  in flight in bf16, 4 in f32. 104 to 128 with those of dx, in one of eight kernels 16 bytes
//                  spilled: 16 warps. 32,768 rows are 512 blocks, 3.9 for each of 132
//                  multiprocessors, which hold 4 at once.
//
// To try where a GPU reaches less than 80 % of a copy's rate: in the backward pass 8 entries to a thread, for
// more warps; or loading the next row before this one's sums are reduced.
#include "cuda/core/register_rows.cuh"
#include "cuda/norm/row_norm.cuh"

namespace eddy::cuda {
namespace {

// Elements of a row in the registers of a thread: 64 bytes forward; backward it has two rows and the sums.
template <class T>
constexpr int kForwardElements = 4 * kGroup<T>;
constexpr int kBackwardElements = 16;

template <class Args>
struct RegisterRowNorm {
  Args args;
  RowTeams teams;
  std::int64_t block_rows;  // rows that a block takes at a time
};

// y = (x - mean) rstd weight + bias. An RMS norm has no mean, and a row of the table in place of the bias.
// With `Adds` the norm is of x + delta, which is written too.
template <bool Centred, bool Aligned, bool Adds, class T>
__global__ void __launch_bounds__(kLongestRegisterRow / kForwardElements<T>)
    register_norm_kernel(RegisterRowNorm<RowNormArgs> launched) {
  constexpr int kThreadGroups = kForwardElements<T> / kGroup<T>;
  const RowNormArgs& args = launched.args;
  const RowTeams& teams = launched.teams;
  const float* const weight = static_cast<const float*>(args.weight);
  const float count = static_cast<float>(static_cast<int>(args.width)), eps = static_cast<float>(args.eps);
  int turn = 0;
  for (std::int64_t first = blockIdx.x * launched.block_rows; first < args.rows;
       first += gridDim.x * launched.block_rows) {
    const std::int64_t row = first + teams.team();
    // Teams past the end reread the last row so that every thread reaches the barriers; their result is
    // discarded.
    const int groups = row < args.rows ? teams.groups : 0;
    const std::int64_t read = min(row, args.rows - 1);
    Group<T> x[kThreadGroups];
    read_row<Aligned>(x, static_cast<const T*>(args.x) + read * args.x_stride, teams);
    if constexpr (Adds) {
      Group<T> delta[kThreadGroups];
      read_row<Aligned>(delta, static_cast<const T*>(args.delta) + read * args.delta_stride, teams);
#pragma unroll
      for (int k = 0; k < kThreadGroups; ++k) {
#pragma unroll
        for (int j = 0; j < kGroup<T>; ++j) x[k].at[j] += delta[k].at[j];
        x[k] = computed(stored(x[k]));  // what a norm of the sum would read
      }
      T* const sum = static_cast<T*>(args.sum) + row * args.width;
      each_group<T, kThreadGroups>(teams, groups,
                                   [&](int k, int column) { write_row_group<Aligned>(sum + column, x[k]); });
    }
    float mean = 0;
    if constexpr (Centred) {
      float sum[1] = {0};
      each_group<T, kThreadGroups>(teams, groups, [&](int k, int) {
#pragma unroll
        for (int j = 0; j < kGroup<T>; ++j) sum[0] += x[k].at[j];
      });
      add_up(sum, teams, turn);
      mean = sum[0] / count;
    }
    float squares[1] = {0};  // of deviations: sum(x^2) - n mean^2 would cancel
    each_group<T, kThreadGroups>(teams, groups, [&](int k, int) {
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) squares[0] = fmaf(x[k].at[j] - mean, x[k].at[j] - mean, squares[0]);
    });
    add_up(squares, teams, turn);
    const float rstd = 1.0f / sqrtf(squares[0] / count + eps);
    const float* const shift = shift_of<Centred>(args, row);
    T* const y = static_cast<T*>(args.y) + row * args.y_stride;
    each_group<T, kThreadGroups>(teams, groups, [&](int k, int column) {
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) x[k].at[j] = __fmul_rn(x[k].at[j] - mean, rstd);
      if (weight != nullptr) {
        const Group<T> by_weight = read_parameters<Aligned, T>(weight + column);
#pragma unroll
        for (int j = 0; j < kGroup<T>; ++j) x[k].at[j] = __fmul_rn(x[k].at[j], by_weight.at[j]);
      }
      if (shift != nullptr) {
        const Group<T> by_shift = read_parameters<Aligned, T>(shift + column);
#pragma unroll
        for (int j = 0; j < kGroup<T>; ++j) x[k].at[j] += by_shift.at[j];
      }
      write_row_group<Aligned>(y + column, x[k]);
    });
    if (teams.lane() == 0 && groups > 0) {
      if constexpr (Centred)
        if (args.mean != nullptr) static_cast<float*>(args.mean)[row] = mean;
      if (args.rstd != nullptr) static_cast<float*>(args.rstd)[row] = rstd;
    }
  }
}

// partials[column] = beta * itself + the sums of the block's teams, in order. All threads of the block must
// call it.
template <class T, int ThreadGroups>
__device__ void write_partials(const Group<T> (&sums)[ThreadGroups], float* partials, float beta,
                               const RowTeams& teams) {
  __shared__ float of_teams[kRegisterRowThreads * kBackwardElements];
  const int width = teams.groups * kGroup<T>;
  const auto write = [&](int column, float sum) {
    partials[column] = beta == 0.0f ? sum : fmaf(beta, partials[column], sum);
  };
  each_group<T, ThreadGroups>(teams, teams.groups, [&](int k, int column) {
#pragma unroll
    for (int j = 0; j < kGroup<T>; ++j) {
      if (teams.count > 1)
        of_teams[teams.team() * width + column + j] = sums[k].at[j];
      else
        write(column + j, sums[k].at[j]);
    }
  });
  if (teams.count == 1) return;
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < width; column += kRegisterRowThreads) {
    float sum = 0;
    for (int team = 0; team < teams.count; ++team) sum += of_teams[team * width + column];
    write(column, sum);
  }
  __syncthreads();  // the next call overwrites the shared sums
}

// Partial sums that a backward kernel makes beside dx: none, those of dweight and dbias, or those of dx's columns too.
enum class NormSums { none, parameters, columns };

//   dx      = rstd (g - mean(g) - n mean(g n))     g = dy weight,  n = (x - mean) rstd
//   dweight = sum of dy n over rows
//   dbias   = sum of dy over rows
//
// An RMS norm has neither mean nor mean(g). dx may be dy.
template <bool Centred, bool Aligned, NormSums Sums, class T>
__global__ void __launch_bounds__(32 * kMostTeamWarps)
    register_norm_backward_kernel(RegisterRowNorm<RowNormBackwardArgs> launched) {
  constexpr int kThreadGroups = kBackwardElements / kGroup<T>;
  const RowNormBackwardArgs& args = launched.args;
  const RowTeams& teams = launched.teams;
  const float* const weight = static_cast<const float*>(args.weight);
  const float count = static_cast<float>(static_cast<int>(args.width));
  // dx accumulates into dsum's row or into beta times its own. With neither, `old` is dy, loaded from the
  // cache and not used, since a condition would make the threads wait for it (read_row).
  const bool adds = args.dx != nullptr && (args.dsum != nullptr || args.dx_beta != 0.0f);
  const T* const olds = static_cast<const T*>(!adds ? args.dy : args.dsum != nullptr ? args.dsum : args.dx);
  const std::int64_t old_stride = !adds ? args.dy_stride : args.dsum != nullptr ? args.width : args.dx_stride;
  const float beta = args.dsum != nullptr ? 1.0f : args.dx_beta;
  int turn = 0;
  for (std::int64_t block = blockIdx.x; block * launched.block_rows < args.rows; block += gridDim.x) {
    Group<T> dweight[kThreadGroups] = {}, dbias[kThreadGroups] = {}, of_dx[kThreadGroups] = {};
    const std::int64_t last = min((block + 1) * launched.block_rows, args.rows);
    for (std::int64_t first = block * launched.block_rows; first < last; first += teams.count) {
      const std::int64_t row = first + teams.team();
      const int groups = row < last ? teams.groups : 0;  // as above
      const std::int64_t read = min(row, last - 1);
      float mean = 0;
      if constexpr (Centred) mean = static_cast<const float*>(args.mean)[read];
      const float rstd = static_cast<const float*>(args.rstd)[read];
      Group<T> g[kThreadGroups], n[kThreadGroups], old[kThreadGroups];
      read_row<Aligned>(g, static_cast<const T*>(args.dy) + read * args.dy_stride, teams);
      read_row<Aligned>(n, static_cast<const T*>(args.x) + read * args.x_stride, teams);
      read_row<Aligned>(old, olds + read * old_stride, teams);
      float sums[Centred ? 2 : 1] = {};  // of g n and of g
      each_group<T, kThreadGroups>(teams, groups, [&](int k, int column) {
        Group<T> scale;
#pragma unroll
        for (int j = 0; j < kGroup<T>; ++j) scale.at[j] = 1;
        if (weight != nullptr) scale = read_parameters<Aligned, T>(weight + column);
#pragma unroll
        for (int j = 0; j < kGroup<T>; ++j) {
          const float dy = g[k].at[j];
          n[k].at[j] = __fmul_rn(n[k].at[j] - mean, rstd);
          g[k].at[j] = __fmul_rn(dy, scale.at[j]);
          sums[0] = fmaf(g[k].at[j], n[k].at[j], sums[0]);
          if constexpr (Centred) sums[1] += g[k].at[j];
          if constexpr (Sums != NormSums::none) {
            dweight[k].at[j] = fmaf(dy, n[k].at[j], dweight[k].at[j]);
            if constexpr (Centred) dbias[k].at[j] += dy;
          }
        }
      });
      if (args.dx == nullptr) continue;  // the same for all threads
      add_up(sums, teams, turn);
      const float mean_gn = sums[0] / count;
      float mean_g = 0;
      if constexpr (Centred) mean_g = sums[1] / count;
      T* const dx = static_cast<T*>(args.dx) + row * args.dx_stride;
      each_group<T, kThreadGroups>(teams, groups, [&](int k, int column) {
#pragma unroll
        for (int j = 0; j < kGroup<T>; ++j) {
          const float gradient = __fmul_rn(rstd, fmaf(-n[k].at[j], mean_gn, g[k].at[j] - mean_g));
          g[k].at[j] = adds ? fmaf(beta, old[k].at[j], gradient) : gradient;
        }
        write_row_group<Aligned>(dx + column, g[k]);
        if constexpr (Sums == NormSums::columns) {
          const Group<T> kept = computed(stored(g[k]));
#pragma unroll
          for (int j = 0; j < kGroup<T>; ++j) of_dx[k].at[j] += kept.at[j];
        }
      });
    }
    if constexpr (Sums != NormSums::none) {
      const auto write = [&](const Group<T>(&sums)[kThreadGroups], void* partials) {
        if (partials != nullptr)
          write_partials<T>(sums, static_cast<float*>(partials) + block * args.width, args.partial_beta,
                            teams);
      };
      write(dweight, args.dweight_partials);
      if constexpr (Centred) write(dbias, args.dbias_partials);
      if constexpr (Sums == NormSums::columns) write(of_dx, args.dx_partials);
    }
  }
}

}  // namespace

template <bool Centred, class T>
void register_norm_forward(const char* name, const RowNormArgs& args) {
  const RowTeams teams = row_teams<kForwardElements<T>, T>(args.width);
  const bool all = rows_aligned<T>(args.x, args.x_stride) && rows_aligned<T>(args.y, args.y_stride) &&
                   rows_aligned<T>(args.delta, args.delta_stride) && rows_aligned<T>(args.sum) &&
                   aligned(args.weight) && aligned(args.bias) && aligned(args.table);
  const bool adds = args.delta != nullptr;
  const auto kernel = all ? (adds ? register_norm_kernel<Centred, true, true, T>
                                  : register_norm_kernel<Centred, true, false, T>)
                          : (adds ? register_norm_kernel<Centred, false, true, T>
                                  : register_norm_kernel<Centred, false, false, T>);
  if (args.rows > 0)
    launch(name, kernel, grid_for(args.rows, teams.count, 64), teams.threads(), {args, teams, teams.count});
}

template <bool Centred, class T>
void register_norm_backward(const char* name, const RowNormBackwardArgs& args, bool joint) {
  const RowTeams teams = row_teams<kBackwardElements, T>(args.width);
  const bool all = rows_aligned<T>(args.dy, args.dy_stride) && rows_aligned<T>(args.x, args.x_stride) &&
                   rows_aligned<T>(args.dx, args.dx_stride) && rows_aligned<T>(args.dsum) &&
                   aligned(args.weight);
  const RegisterRowNorm<RowNormBackwardArgs> launched{args, teams,
                                                      joint ? norm_block_rows(true, args.rows) : teams.count};
  const auto kernel_of = [&](auto aligned_rows) {
    if (!joint) return register_norm_backward_kernel<Centred, aligned_rows, NormSums::none, T>;
    return args.dx_partials == nullptr
               ? register_norm_backward_kernel<Centred, aligned_rows, NormSums::parameters, T>
               : register_norm_backward_kernel<Centred, aligned_rows, NormSums::columns, T>;
  };
  const auto kernel = all ? kernel_of(std::true_type{}) : kernel_of(std::false_type{});
  launch(name, kernel, grid_for(args.rows, launched.block_rows, 64), teams.threads(), launched);
}

#define EDDY_HELD_NORMS(Centred, T)                                                      \
  template void register_norm_forward<Centred, T>(const char* name, const RowNormArgs&); \
  template void register_norm_backward<Centred, T>(const char* name, const RowNormBackwardArgs&, bool);
EDDY_HELD_NORMS(true, float)
EDDY_HELD_NORMS(true, bf16)
EDDY_HELD_NORMS(false, float)
EDDY_HELD_NORMS(false, bf16)
#undef EDDY_HELD_NORMS

}  // namespace eddy::cuda
