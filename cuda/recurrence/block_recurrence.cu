// The block recurrences as one kernel for all windows, forward; block_recurrence_backward.cu has the gradients,
// block_walk.cuh what both share. Products are of bf16 with sums in f32, the chain from window to window is f32. Its
// test is the same chains composed of other ops (models/recurrent_transformer/block_accumulate.cpp, block_forget.cpp).
//
// Mapping: a thread block walks the windows of one sequence, a warp for each 16 rows of the longest window. No block
// waits for another. A window, between barriers of the block:
//
//   z = p/2 + h, p/2 + x;  norm1(z) Wqkv^T -> q, k, v     to shared memory; of forget z is h and x
//   attention of the warp's rows; o Wo^T -> r             keys and values of all warps
//   norm2(r);  Wup^T, act, Wdown^T -> h, y                32 columns of the MLP at a time, in registers
//
// Warps of forget's older halves have nothing to do behind their keys and values. Of accumulate some rows are computed
// though nobody reads their outputs: of n + 1 windows the older half of one, and a part of the last one.
//
// Shared memory, in bytes: 96 dim + 512 for each 16 rows of the window, 64 heads for each 16 rows and 32 keys with
// dropout, and in the rest as many units of 512 bytes of the weights as fit, of 24 dim^2 / 512 at mlp = 4 dim. At dim
// 96 with blocks of 32: 38 KiB, and 372 of 432 units on GPUs of 9.0; 120 where a block has 99 KiB.
//
// Bytes moved: of a row 32 dim are written (z, qkv, a1, o, r, a2, h; u with 4 dim) and 4 dim of x read, the least for
// what the backward needs; z, r, h and p come back from the second-level cache, 16 dim. Weights are read from shared
// memory once for each 16 rows of a window, 24 dim^2 bytes: 0.9 MB a window of 64 rows at dim 96.
#include "cuda/core/map.cuh"
#include "cuda/recurrence/block_attention.cuh"
#include "cuda/recurrence/block_recurrence_choice.h"
#include "ops/backends.h"
#include "tensor/base/error.h"

namespace eddy::cuda {
namespace {

// Norms of the warp's rows, in place, which become the left operand of a product; those that are `stored`, and their
// statistics, are written for the backward.
template <int Steps>
__device__ void norm_rows(WarpRows<Steps>& rows, const TileRows& tile, double eps, const void* gain,
                          const void* shift, void* made, void* means, void* rstds, const bool (&stored)[2],
                          Fragments<Steps>& left) {
  constexpr float kDim = 16 * Steps;
  float mean[2] = {}, rstd[2] = {};
  rows.each([&](int, int half, Fours& four) {
    for (const float number : four.at) mean[half] += number;
  });
  add_over_row(mean);
  for (float& of_row : mean) of_row /= kDim;
  rows.each([&](int, int half, Fours& four) {
#pragma unroll
    for (float& number : four.at) {
      number -= mean[half];
      rstd[half] = fmaf(number, number, rstd[half]);
    }
  });
  add_over_row(rstd);
  for (float& of_row : rstd) of_row = 1.0f / sqrtf(of_row / kDim + static_cast<float>(eps));
  rows.each([&](int s, int half, Fours& four) {
    const Fours weight = parameters_at(gain, 16 * s + tile.column, 1),
                bias = parameters_at(shift, 16 * s + tile.column, 0);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      four.at[e] = fmaf(__fmul_rn(four.at[e], rstd[half]), weight.at[e], bias.at[e]);
  });
  set_left(left, rows);
  each_four<Steps>([&](int half) { return stored[half]; },
                   [&](int s, int half) {
                     *reinterpret_cast<Neighbours<bf16, 4>*>(tile.at<bf16>(made, half, 16 * Steps) + 16 * s) =
                         left.four(s, half);
                   });
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (stored[half] && tile.column == 0) {
      static_cast<float*>(means)[tile.row[half].row] = mean[half];
      static_cast<float*>(rstds)[tile.row[half].row] = rstd[half];
    }
}

// Reads the inputs of the warp's rows: own + spread / 2, or own alone. 0 for rows that are not there.
template <int Steps>
__device__ void read_inputs(const BlockWindow& window, const TileRows& tile, WarpRows<Steps>& z) {
  constexpr int kDim = 16 * Steps;
  const BlockRecurrenceArgs& args = window.args;
  const float *const x = static_cast<const float*>(args.x), *const out = static_cast<const float*>(args.h);
  const float *own[2], *spread[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const WindowRow& row = tile.row[half];
    own[half] = (row.older ? out : x) + window.newer_row(row.block, row.j) * kDim + tile.column;
    // An earlier block is a whole one.
    spread[half] = !args.accumulates || window.t == 0 || window.t == args.time ? nullptr
                   : window.t == 1 ? x + window.newer_row(0, row.j) * kDim + tile.column
                                   : out + window.older_row(window.t - 2, row.j) * kDim + tile.column;
    if (!row.there) own[half] = spread[half] = nullptr;
  }
  z.each([&](int s, int half, Fours& four) {
    four = own[half] == nullptr ? Fours{} : read_fours<true>(own[half] + 16 * s, 4);
    if (spread[half] == nullptr) return;
    const Fours p = read_fours<true>(spread[half] + 16 * s, 4);
#pragma unroll
    for (int e = 0; e < 4; ++e) four.at[e] = fmaf(0.5f, p.at[e], four.at[e]);
  });
}

// rows = residual + drop(rows + bias), which is written.
template <int Steps>
__device__ void add_residual(const BlockLaunch& launched, const BlockWindow& window, const TileRows& tile,
                             int which, const void* bias, const void* residual, void* to,
                             WarpRows<Steps>& rows) {
  constexpr int kDim = 16 * Steps;
  rows.each([&](int s, int, Fours& four) {
    const Fours add = parameters_at(bias, 16 * s + tile.column, 0);
#pragma unroll
    for (int e = 0; e < 4; ++e) four.at[e] += add.at[e];
  });
  drop_rows(launched, window, tile, which, rows);
  rows.each([&](int s, int half, Fours& four) {
    if (!tile.row[half].finished) return;
    const Fours before = read_fours<true>(tile.at<const float>(residual, half, kDim) + 16 * s, 4);
#pragma unroll
    for (int e = 0; e < 4; ++e) four.at[e] += before.at[e];
    write_fours<true>(tile.at<float>(to, half, kDim) + 16 * s, four, 4);
  });
}

// Queries, keys and values of the warp's rows, to shared memory and for the backward.
template <int Steps>
__device__ void project(const BlockLaunch& launched, const Units& units, const TileRows& tile,
                        const Fragments<Steps>& left, const AttentionRows& all) {
  const BlockRecurrenceArgs& args = launched.args;
  bf16* const rows = all.at(TileRows::first_row() + static_cast<int>(threadIdx.x % 32 / 4), 0) + tile.column;
#pragma unroll 1
  for (int two = 0; two < 3 * Steps / 2; ++two) {
    WarpRows<2> sums{};
    multiply_units<2, Steps>(sums.at, left.at, units.from(launched.order.wqkv() + two * 2 * Steps));
    sums.each([&](int s, int, Fours& four) {
      const Fours bias = parameters_at(args.wqkv_bias, 32 * two + 16 * s + tile.column, 0);
#pragma unroll
      for (int e = 0; e < 4; ++e) four.at[e] += bias.at[e];
    });
    Fragments<2> rounded;
    set_left(rounded, sums);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const Neighbours<bf16, 4> four = rounded.four(s, half);
        const int column = 32 * two + 16 * s;
        *reinterpret_cast<Neighbours<bf16, 4>*>(rows + 8 * half * all.pitch + column) = four;
        if (tile.row[half].there)
          *reinterpret_cast<Neighbours<bf16, 4>*>(tile.at<bf16>(args.qkv_output, half, 48 * Steps) + column) =
              four;
      }
  }
}

// rows = act(left Wup^T + bias) Wdown^T, 32 columns of the MLP at a time.
template <int Steps, class Activation>
__device__ void add_mlp(const BlockLaunch& launched, const Units& units, const TileRows& tile,
                        const Fragments<Steps>& left, WarpRows<Steps>& rows) {
  const BlockRecurrenceArgs& args = launched.args;
#pragma unroll 1
  for (int chunk = 0; chunk < launched.order.chunks; ++chunk) {
    const int unit = chunk * launched.order.of_chunk();
    WarpRows<2> u{};
    multiply_units<2, Steps>(u.at, left.at, units.from(unit));
    Fragments<2> kept, act;
    u.each([&](int s, int, Fours& four) {
      const Fours bias = parameters_at(args.up_bias, 32 * chunk + 16 * s + tile.column, 0);
#pragma unroll
      for (int e = 0; e < 4; ++e) four.at[e] += bias.at[e];
    });
    set_left(kept, u);
    each_four<2>([&](int half) { return tile.row[half].finished; },
                 [&](int s, int half) {
                   *reinterpret_cast<Neighbours<bf16, 4>*>(tile.at<bf16>(args.u, half, args.mlp) +
                                                           32 * chunk + 16 * s) = kept.four(s, half);
                 });
    u.each([&](int, int, Fours& four) {
#pragma unroll
      for (float& number : four.at) number = Activation::forward(number);
    });
    set_left(act, u);
    multiply_units<Steps, 2>(rows.at, act.at, units.from(unit + 2 * Steps));
  }
}

// Row blocks of 32 numbers: dim is 16 Steps.
template <int Steps>
__global__ void __launch_bounds__(32 * kMostTiles, 1)
    block_forward_kernel(const __grid_constant__ BlockLaunch launched) {
  constexpr int kDim = 16 * Steps;
  const BlockRecurrenceArgs& args = launched.args;
  UnitPart* const near = reinterpret_cast<UnitPart*>(shared_memory());
  const int count = launched.tiles * kTileRows, heads = static_cast<int>(args.heads);
  bf16* const rows = reinterpret_cast<bf16*>(near + 32 * launched.resident);
  constexpr int kPitch = 3 * kDim + kPadding;
  std::uint32_t* const masks = reinterpret_cast<std::uint32_t*>(rows + count * kPitch);
  const AttentionRows all{
      rows, kPitch, kDim, heads, kDim / heads, count, nullptr, masks, launched.mask_words, launched.dropout};
  const Units units = start_units(launched, near);
  finish_copies();

#pragma unroll 1
  for (int t = 0; t < static_cast<int>(args.time) + (args.accumulates ? 1 : 0); ++t) {
    __syncthreads();  // what the window before wrote is seen, its keys and values are not read any more
    const BlockWindow window(args, t, static_cast<int>(blockIdx.x));
    const TileRows tile(window);
    if (window.has_rows(TileRows::first_row())) {
      WarpRows<Steps> z;
      Fragments<Steps> a1;
      read_inputs(window, tile, z);
      each_four<Steps>([&](int half) { return tile.row[half].there; },
                       [&](int s, int half) {
                         write_fours<true>(tile.at<float>(args.z, half, kDim) + 16 * s, z.four(s, half), 4);
                       });
      norm_rows(z, tile, args.eps, args.norm1, args.norm1_bias, args.a1, args.mean1, args.rstd1,
                {tile.row[0].there, tile.row[1].there}, a1);
      project(launched, units, tile, a1, all);
    }
    __syncthreads();
    if (!window.finishes_rows(TileRows::first_row())) continue;
    draw_masks(launched, window, masks);
    __syncwarp();
    float* log_sums[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      log_sums[half] =
          tile.row[half].finished ? static_cast<float*>(args.gate) + tile.row[half].row * heads : nullptr;
    attend(all, log_sums);
    WarpRows<Steps> r{};
    const bf16* const attended =
        all.at(TileRows::first_row() + static_cast<int>(threadIdx.x % 32 / 4), 0) + tile.column;
#pragma unroll 1
    for (int two = 0; two < Steps / 2; ++two) {
      Fragments<2> o;
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const Neighbours<bf16, 4> four =
              *reinterpret_cast<const Neighbours<bf16, 4>*>(attended + 8 * half * kPitch + 32 * two + 16 * s);
          o.set(s, half, four);
          if (tile.row[half].finished)
            *reinterpret_cast<Neighbours<bf16, 4>*>(tile.at<bf16>(args.o, half, kDim) + 32 * two + 16 * s) =
                four;
        }
      multiply_units<Steps, 2>(r.at, o.at, units.from(launched.order.wo() + two * 2 * Steps));
    }
    add_residual(launched, window, tile, 1, args.wo_bias, args.z, args.r, r);
    Fragments<Steps> a2;
    norm_rows(r, tile, args.eps, args.norm2, args.norm2_bias, args.a2, args.mean2, args.rstd2,
              {tile.row[0].finished, tile.row[1].finished}, a2);
    WarpRows<Steps> h{};
    if (args.gelu)
      add_mlp<Steps, pointwise::Gelu>(launched, units, tile, a2, h);
    else
      add_mlp<Steps, pointwise::Relu>(launched, units, tile, a2, h);
    add_residual(launched, window, tile, 2, args.down_bias, args.r, args.h, h);
  }
}

// A part of a unit for each thread: where its two columns' numbers begin in the weight, and how far apart they are.
struct PackLaunch {
  const float *wqkv, *wo, *up, *down;
  UnitPart* units;
  UnitOrder order;
  int dim, mlp;
  bool backward;
};

__global__ void pack_units_kernel(const __grid_constant__ PackLaunch launched) {
  const UnitOrder& order = launched.order;
  const int steps = order.steps;
  for (std::int64_t i = first_item(); i < 32 * order.all(); i += item_step()) {
    int unit = static_cast<int>(i / 32), n, k;  // 16 columns of the result, 16 numbers of the depth
    // Of a weight [out, in] forward a column is a row of it, backward a number of the depth is.
    const float* from;
    int width;
    if (unit < order.wo()) {
      const int chunk = unit / order.of_chunk(), in_chunk = unit % order.of_chunk(), first = 2 * steps;
      const bool into = in_chunk < first;  // the MLP
      from = into != launched.backward ? launched.up : launched.down;
      width = into != launched.backward ? launched.dim : launched.mlp;
      n = into ? 2 * chunk + in_chunk % 2 : (in_chunk - first) % steps;
      k = into ? in_chunk / 2 : 2 * chunk + (in_chunk - first) / steps;
    } else if (unit < order.wqkv()) {
      unit -= order.wo();
      from = launched.wo;
      width = launched.dim;
      n = unit % steps;
      k = unit / steps;
    } else {
      unit -= order.wqkv();
      from = launched.wqkv;
      width = launched.dim;
      n = launched.backward ? unit % steps : unit / (2 * steps) * 2 + unit % 2;
      k = launched.backward ? unit / steps : unit % (2 * steps) / 2;
    }
    const int lane = static_cast<int>(i % 32), column = 16 * n + lane / 8 * 4 + lane / 4 % 2,
              depth = 16 * k + lane % 4 * 4;
    const std::int64_t of_column = launched.backward ? 1 : width, of_depth = launched.backward ? width : 1;
    UnitPart part;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const float* const two = from + (column + word / 2 * 2) * of_column + (depth + word % 2 * 2) * of_depth;
      part.at[word] = pack(two[0], two[of_depth]);
    }
    launched.units[i] = part;
  }
}

}  // namespace

Tensor pack_units(const BlockRecurrenceArgs& args, const UnitOrder& order, bool backward) {
  const Tensor units =
      Tensor::empty({order.all() * kUnitBytes}, Dtype::u8, Device{DeviceType::cuda, device_index()});
  const auto weight = [](const void* from) { return static_cast<const float*>(from); };
  launch("block_recurrence_weights", pack_units_kernel, grid_for(32 * order.all(), kThreads), kThreads,
         {weight(args.wqkv), weight(args.wo), weight(args.up), weight(args.down),
          static_cast<UnitPart*>(units.raw_data()), order, static_cast<int>(args.dim),
          static_cast<int>(args.mlp), backward});
  return units;
}

void block_recurrence_supports(const RecurrenceSupportQuery& query) {
  const KernelChoice choice = kernel_choice(KernelOp::recurrence);
  *query.fits = false;
  if (choice.kernel != Kernel::fused) return;
  // Backward needs more room than forward.
  *query.fits = takes_blocks(query) &&
                WindowRoom(query.dim, query.heads, 2 * query.block, true, true).bytes <= most_shared_bytes();
  if (!*query.fits && choice.asked) warn_not_fused(query);
}

void block_recurrence_forward(const BlockRecurrenceArgs& args) {
  walk_blocks(
      "block_recurrence", args, false,
      {block_forward_kernel<2>, block_forward_kernel<4>, block_forward_kernel<6>, block_forward_kernel<8>});
}

}  // namespace eddy::cuda
