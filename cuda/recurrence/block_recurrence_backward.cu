// The gradients of the block recurrences: one kernel walks the windows backward. block_recurrence.cu has the forward,
// block_walk.cuh what both share. The gradients of the weights are products over the rows of all windows, behind it
// (ops/recurrence/block_recurrence.cpp).
//
// Mapping: as the forward. A window, between barriers of the block; weights are transposed:
//
//   dh, dy, and half of dz of the windows that read them as p (of forget dh alone);  dropout -> dmlp
//   dmlp Wdown act'(u) -> du;  du Wup -> da2               32 columns of the MLP at a time, in registers
//   dr = dh + norm2'(da2);  dropout -> do_out;  do_out Wo -> do       to shared memory
//   attention's gradients -> dqkv                          queries, keys, values and do of all warps
//   dqkv Wqkv -> da1;  dz = dr + norm1'(da1)
//
// dx has the sum of a row on its way: dh, then dr, then dz.
//
// Shared memory, in bytes: 128 dim + 512 and 128 heads for each 16 rows of the window, with dropout as the forward, and
// in the rest units of the weights. At dim 96 with blocks of 32: 53 KiB, and 348 of 432 units on GPUs of 9.0; 84 where
// a block has 99 KiB.
//
// Bytes moved: of a row 28 dim are read (z, r; qkv, o and u as bf16, dy) and 38 dim written (da1, da2, dz; dqkv,
// do_out, dmlp, act and du as bf16), once each, which is the least; dz, dr, dh and dqkv pass through the second-level
// cache.
#include "cuda/recurrence/block_attention.cuh"

namespace eddy::cuda {
namespace {

// Writes rows of f32 where they are `stored`.
template <int Steps>
__device__ void write_rows(const TileRows& tile, const bool (&stored)[2], void* to,
                           const WarpRows<Steps>& rows) {
  each_four<Steps>([&](int half) { return stored[half]; },
                   [&](int s, int half) {
                     write_fours<true>(tile.at<float>(to, half, 16 * Steps) + 16 * s, rows.four(s, half), 4);
                   });
}
// Writes rows of bf16 for which T is computed.
template <int Steps>
__device__ void write_left(const TileRows& tile, bf16* const (&to)[2], const Fragments<Steps>& left) {
  each_four<Steps>([&](int half) { return tile.row[half].finished; },
                   [&](int s, int half) {
                     *reinterpret_cast<Neighbours<bf16, 4>*>(to[half] + 16 * s) = left.four(s, half);
                   });
}

// The gradients of the results of the warp's rows: an h is read as the older half of the next window, and of forget
// from outside; a y from outside and as p by both halves of the next window. 0 for rows without a result.
template <int Steps>
__device__ void read_gradients(const BlockWindow& window, const TileRows& tile, WarpRows<Steps>& rows) {
  constexpr int kDim = 16 * Steps;
  const BlockRecurrenceArgs& args = window.args;
  const float *const dy = static_cast<const float*>(args.dh), *const dz = static_cast<const float*>(args.dx);
  const float *own[2], *carried[2], *of_older[2], *of_newer[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const WindowRow& row = tile.row[half];
    const int next = window.t + 1;
    const float *const of_result = dy + window.newer_row(row.block, row.j) * kDim + tile.column,
                       *const of_h = dz + window.older_row(row.block, row.j) * kDim + tile.column;
    own[half] = args.accumulates && !row.older ? of_h : of_result;
    carried[half] = !args.accumulates && next < args.time ? of_h : nullptr;
    of_older[half] = of_newer[half] = nullptr;
    if (row.older && next < args.time) {
      of_older[half] = dz + window.older_row(window.t, row.j) * kDim + tile.column;
      if (row.j < window.rows_of(next))
        of_newer[half] = dz + window.newer_row(next, row.j) * kDim + tile.column;
    }
    if (!row.finished) own[half] = carried[half] = of_older[half] = of_newer[half] = nullptr;
  }
  rows.each([&](int s, int half, Fours& four) {
    const auto read = [s](const float* from) {
      return from == nullptr ? Fours{} : read_fours<true>(from + 16 * s, 4);
    };
    const Fours a = read(of_older[half]), b = read(of_newer[half]), c = read(carried[half]);
    four = read(own[half]);
#pragma unroll
    for (int e = 0; e < 4; ++e) four.at[e] = fmaf(0.5f, a.at[e] + b.at[e], four.at[e] + c.at[e]);
  });
}

// rows, the gradient of a norm's result, become sums + the gradient of its input x, which also takes the place of sums;
// for rows that are `stored`.
template <int Steps>
__device__ void norm_gradient(const TileRows& tile, const bool (&stored)[2], const void* gain, const void* x,
                              const void* means, const void* rstds, void* sums, WarpRows<Steps>& rows) {
  constexpr int kDim = 16 * Steps;
  WarpRows<Steps> normalised;
  float mean[2] = {}, rstd[2] = {},
        of_row[4] = {};  // of the gradient and of its product with the normalised row
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (stored[half]) {
      mean[half] = static_cast<const float*>(means)[tile.row[half].row];
      rstd[half] = static_cast<const float*>(rstds)[tile.row[half].row];
    }
  normalised.each([&](int s, int half, Fours& four) {
    four = stored[half] ? read_fours<true>(tile.at<const float>(x, half, kDim) + 16 * s, 4) : Fours{};
  });
  rows.each([&](int s, int half, Fours& four) {
    const Fours weight = parameters_at(gain, 16 * s + tile.column, 1);
    Fours n = normalised.four(s, half);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      four.at[e] = __fmul_rn(four.at[e], weight.at[e]);
      n.at[e] = __fmul_rn(n.at[e] - mean[half], rstd[half]);
      of_row[half] += four.at[e];
      of_row[2 + half] = fmaf(four.at[e], n.at[e], of_row[2 + half]);
    }
    normalised.set(s, half, n);
  });
  add_over_row(of_row);
  for (float& sum : of_row) sum /= static_cast<float>(kDim);
  rows.each([&](int s, int half, Fours& four) {
    if (!stored[half]) return;
    float* const to = tile.at<float>(sums, half, kDim) + 16 * s;
    const Fours n = normalised.four(s, half), before = read_fours<true>(to, 4);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      four.at[e] =
          fmaf(rstd[half], fmaf(-n.at[e], of_row[2 + half], four.at[e] - of_row[half]), before.at[e]);
    write_fours<true>(to, four, 4);
  });
}

// da2 = (dmlp Wdown act'(u)) Wup, 32 columns of the MLP at a time; writes du and act(u).
template <int Steps, class Activation>
__device__ void mlp_gradient(const BlockLaunch& launched, const Units& units, const TileRows& tile,
                             const Fragments<Steps>& dmlp, WarpRows<Steps>& da2) {
  const BlockRecurrenceArgs& args = launched.args;
  constexpr int kAhead = 2;  // chunks of u that are read ahead of their use
  Neighbours<bf16, 4> ahead[kAhead][2][2];
  const auto read = [&](int chunk, Neighbours<bf16, 4>(&to)[2][2]) {
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        to[s][half] = tile.row[half].finished && chunk < launched.order.chunks
                          ? *reinterpret_cast<const Neighbours<bf16, 4>*>(
                                tile.at<const bf16>(args.u, half, args.mlp) + 32 * chunk + 16 * s)
                          : Neighbours<bf16, 4>{};
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) read(i, ahead[i]);
#pragma unroll 1
  for (int chunk = 0; chunk < launched.order.chunks; ++chunk) {
    const int unit = chunk * launched.order.of_chunk();
    Neighbours<bf16, 4> kept[2][2];
    std::memcpy(kept, ahead[0], sizeof kept);
#pragma unroll
    for (int i = 1; i < kAhead; ++i) std::memcpy(ahead[i - 1], ahead[i], sizeof kept);
    read(chunk + kAhead, ahead[kAhead - 1]);
    WarpRows<2> dact{};
    multiply_units<2, Steps>(dact.at, dmlp.at, units.from(unit));
    dact.each([&](int s, int half, Fours& four) {
      Fours act;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float u = static_cast<float>(kept[s][half].at[e]);
        act.at[e] = Activation::forward(u);
        four.at[e] = Activation::vjp(four.at[e], u);
      }
      if (tile.row[half].finished)
        write_fours<true>(tile.at<bf16>(args.act, half, args.mlp) + 32 * chunk + 16 * s, act, 4);
    });
    Fragments<2> du;
    set_left(du, dact);
    bf16* const to[2] = {tile.at<bf16>(args.du, 0, args.mlp) + 32 * chunk,
                         tile.at<bf16>(args.du, 1, args.mlp) + 32 * chunk};
    write_left(tile, to, du);
    multiply_units<Steps, 2>(da2.at, du.at, units.from(unit + 2 * Steps));
  }
}

// Starts the copies of queries, keys and values of the warp's rows; 0 for rows that are not there.
__device__ inline void start_rows(const BlockWindow& window, const AttentionRows& all) {
  const int eights = 3 * all.dim / 8;
  const bf16* const qkv = static_cast<const bf16*>(window.args.qkv);
#pragma unroll 1
  for (int r = 0; r < kTileRows; ++r) {
    const WindowRow row(window, TileRows::first_row() + r);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x % 32); i < eights; i += 32)
      start_copy(all.at(row.place, 0) + 8 * i, qkv + row.row * (3 * all.dim) + 8 * i, row.there);
  }
}
// Puts the logarithms and do . o of the warp's rows where their attention reads them, behind do. Queries without a
// result have probabilities of 0.
__device__ inline void set_sums(const BlockWindow& window, const AttentionRows& all) {
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x % 32); item < kTileRows * all.heads; item += 32) {
    const int head = item / kTileRows;
    const WindowRow row(window, TileRows::first_row() + item % kTileRows);
    float log_sum = INFINITY, dout_o = 0;
    if (row.finished) {
      log_sum = static_cast<const float*>(window.args.gate)[row.row * all.heads + head];
      const bf16 *const o = static_cast<const bf16*>(window.args.o) + row.row * all.dim + head * all.size,
                        *const dout = all.at(row.place, 3) + head * all.size;
      for (int i = 0; i < all.size; i += 4) {
        const Neighbours<bf16, 4> a = *reinterpret_cast<const Neighbours<bf16, 4>*>(o + i),
                                  b = *reinterpret_cast<const Neighbours<bf16, 4>*>(dout + i);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          dout_o = fmaf(static_cast<float>(a.at[e]), static_cast<float>(b.at[e]), dout_o);
      }
    }
    all.log_sum(head, row.place) = log_sum;
    all.dout_o(head, row.place) = dout_o;
  }
}

template <int Steps>
__global__ void __launch_bounds__(32 * kMostTiles, 1)
    block_backward_kernel(const __grid_constant__ BlockLaunch launched) {
  constexpr int kDim = 16 * Steps, kPitch = 4 * kDim + kPadding;
  const BlockRecurrenceArgs& args = launched.args;
  UnitPart* const near = reinterpret_cast<UnitPart*>(shared_memory());
  const int count = launched.tiles * kTileRows, heads = static_cast<int>(args.heads);
  bf16* const rows = reinterpret_cast<bf16*>(near + 32 * launched.resident);
  float* const sums = reinterpret_cast<float*>(rows + count * kPitch);
  std::uint32_t* const masks = reinterpret_cast<std::uint32_t*>(sums + 2 * heads * count);
  const AttentionRows all{
      rows, kPitch, kDim, heads, kDim / heads, count, sums, masks, launched.mask_words, launched.dropout};
  const Units units = start_units(launched, near);
  finish_copies();

#pragma unroll 1
  for (int t = static_cast<int>(args.time) - (args.accumulates ? 0 : 1); t >= 0; --t) {
    __syncthreads();  // dz of the window behind is seen, its rows in shared memory are not read any more
    const BlockWindow window(args, t, static_cast<int>(blockIdx.x));
    const bool at_work = window.has_rows(TileRows::first_row());
    const TileRows tile(window);
    const bool there[2] = {tile.row[0].there, tile.row[1].there},
               finished[2] = {tile.row[0].finished, tile.row[1].finished};
    Fragments<Steps> left{};
    if (at_work) {
      start_rows(window, all);
      WarpRows<Steps> dh;
      read_gradients(window, tile, dh);
      write_rows(tile, there, args.dx, dh);
      drop_rows(launched, window, tile, 2, dh);
      set_left(left, dh);
    }
    if (window.finishes_rows(TileRows::first_row())) {
      WarpRows<Steps> dr{};
      bf16* const dmlp[2] = {tile.at<bf16>(args.dmlp_out, 0, kDim), tile.at<bf16>(args.dmlp_out, 1, kDim)};
      write_left(tile, dmlp, left);
      if (args.gelu)
        mlp_gradient<Steps, pointwise::Gelu>(launched, units, tile, left, dr);
      else
        mlp_gradient<Steps, pointwise::Relu>(launched, units, tile, left, dr);
      write_rows(tile, finished, args.da2, dr);
      norm_gradient(tile, finished, args.norm2, args.r, args.mean2, args.rstd2, args.dx, dr);
      drop_rows(launched, window, tile, 1, dr);
      set_left(left, dr);
      bf16* const dout[2] = {tile.at<bf16>(args.do_out, 0, kDim), tile.at<bf16>(args.do_out, 1, kDim)};
      write_left(tile, dout, left);
      WarpRows<Steps> attended{};
#pragma unroll
      for (int two = 0; two < Steps / 2; ++two)
        multiply_units<Steps, 2>(attended.at, left.at + 2 * two,
                                 units.from(launched.order.wo() + two * 2 * Steps));
      set_left(left, attended);
    }
    if (at_work) {
      bf16* const to =
          all.at(TileRows::first_row() + static_cast<int>(threadIdx.x % 32 / 4), 3) + tile.column;
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int s = 0; s < Steps; ++s)
          *reinterpret_cast<Neighbours<bf16, 4>*>(to + 8 * half * kPitch + 16 * s) = left.four(s, half);
      __syncwarp();
      set_sums(window, all);
      draw_masks(launched, window, masks);
      finish_copies();
    }
    __syncthreads();
    if (!at_work) continue;
    bf16* dqkv[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      dqkv[half] = static_cast<bf16*>(args.dqkv) + tile.row[half].row * (3 * kDim);
    bf16* const to[2] = {there[0] ? dqkv[0] : nullptr, there[1] ? dqkv[1] : nullptr};
    attention_gradients(all, (window.rows() + kTileRows - 1) / kTileRows, to);
    __syncwarp();
    WarpRows<Steps> da1{};
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      Fragments<Steps> projected;
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int s = 0; s < Steps; ++s)
          projected.set(s, half,
                        there[half] ? *reinterpret_cast<const Neighbours<bf16, 4>*>(dqkv[half] + tile.column +
                                                                                    part * kDim + 16 * s)
                                    : Neighbours<bf16, 4>{});
#pragma unroll
      for (int two = 0; two < Steps / 2; ++two)
        multiply_units<Steps, 2>(da1.at, projected.at + 2 * two,
                                 units.from(launched.order.wqkv() + (part * Steps / 2 + two) * 2 * Steps));
    }
    write_rows(tile, there, args.da1, da1);
    norm_gradient(tile, there, args.norm1, args.z, args.mean1, args.rstd1, args.dx, da1);
  }
  if (!args.accumulates || args.time < 2) return;
  // x of the first block is also read as p, by window 1.
  __syncthreads();
  const BlockWindow first(args, 0, static_cast<int>(blockIdx.x));
  float* const dz = static_cast<float*>(args.dx);
  for (int i = static_cast<int>(threadIdx.x); i < first.own * (kDim / 4); i += static_cast<int>(blockDim.x)) {
    const int j = i / (kDim / 4), column = i % (kDim / 4) * 4;
    float* const to = dz + first.newer_row(0, j) * kDim + column;
    const Fours a = read_fours<true>(dz + first.older_row(0, j) * kDim + column, 4),
                b = j < first.rows_of(1) ? read_fours<true>(dz + first.newer_row(1, j) * kDim + column, 4)
                                         : Fours{};
    Fours dx = read_fours<true>(to, 4);
#pragma unroll
    for (int e = 0; e < 4; ++e) dx.at[e] = fmaf(0.5f, a.at[e] + b.at[e], dx.at[e]);
    write_fours<true>(to, dx, 4);
  }
}

}  // namespace

void block_recurrence_backward(const BlockRecurrenceArgs& args) {
  walk_blocks("block_recurrence_backward", args, true,
              {block_backward_kernel<2>, block_backward_kernel<4>, block_backward_kernel<6>,
               block_backward_kernel<8>});
}

}  // namespace eddy::cuda
