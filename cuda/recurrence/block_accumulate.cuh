// The block recurrence with accumulate as one kernel for all windows, forward and backward;
// ops/recurrence/block_accumulate.h has the formulas.
//
// Mapping: the sequences of the batch are divided among groups of blocks, which are independent of each other. Each
// block of a group keeps its share of the columns of all four weights in shared memory from the first window to the
// last. A window is phases (fused_layer.cuh) with a barrier of the group between them (grid_barrier.cuh). Each phase
// goes over the rows of a window's older half, then over those of its newer half. A Step names the block and rows of a
// half, so no other code knows about windows.
//
//   forward                                         backward
//   z = p/2 + h, p/2 + x;  norm1(z) Wqkv^T -> qkv   dh, dy -> dmlp;  dmlp Wdown act'(u) -> du
//   attention -> o          a warp per query        du Wup -> da2
//   o Wo^T -> r             residual z, dropout     norm2' -> dr;    dr Wo -> do
//   norm2(r);  Wup^T -> act(u)                      attention' -> dqkv
//   act Wdown^T -> y, h     residual, dropout       dqkv Wqkv -> da1
//                                                   norm1' -> dz     a warp per row
//
// Some rows are computed though nobody reads their outputs: of n + 1 windows the older half of one, and a
// part of the last one.
//
// Types: the chain is f32. T is what products read: f32, with plain multiply-adds, or bf16 on tensor cores
// with f32 sums, as other products of bf16 activations. What is stored only for products is stored as T, as
// it was staged (RecurrenceArgs::kept). So the weights' gradients after the loop read what the chain's
// products read, except act, which is computed again from u.
#pragma once

#include "cuda/recurrence/block_attention.cuh"
#include "cuda/recurrence/fused_layer.cuh"
#include "ops/recurrence/block_accumulate.h"

namespace eddy::cuda {

// Calls body(step) for both halves of window t, with the worker's rows set to those of the half.
template <class T, class Body>
__device__ void for_each_half(Worker<T>& worker, const BlockAccumulateArgs& args, const Dropout& dropout,
                              std::int64_t t, Body&& body) {
#pragma unroll 1
  for (int older = 1; older >= 0; --older) {
    const std::int64_t block = t - older;
    if (block < 0 || block >= args.time) continue;
    worker.start_step(rows_of(args, block));
    body(Step{args, block, older, dropout, worker.shift(rows_of(args, block), args.block)});
  }
}

// Returns one head of one sequence in a half. For the newer half the keys of the older one come first.
template <class T>
__device__ Window<T> window_of_half(const BlockAccumulateArgs& args, const Step& step, int sequence,
                                    int head) {
  const int dim = static_cast<int>(args.dim);
  const std::int64_t row = std::int64_t{sequence} * args.block;
  const bool backward = args.window_dqkv != nullptr;
  float* const gradients = static_cast<float*>(args.window_dqkv);
  float* const own = backward ? step.working(gradients, 0, 3 * dim) : nullptr;
  if (step.older != 0 || step.t == 0) return {step, sequence, head, {}, own};
  const Step older{args, step.t - 1, 1};
  const auto part_of = [&](auto* of_row, int part) {
    return of_row + part * dim + head * (dim / static_cast<int>(args.heads));
  };
  const float* const from = older.at(args.qkv, row, 3 * dim);
  float* const to = backward ? older.working(gradients, row, 3 * dim) : nullptr;
  return {step,
          sequence,
          head,
          {static_cast<int>(args.block), part_of(from, 1), part_of(from, 2),
           backward ? part_of(to, 1) : nullptr, backward ? part_of(to, 2) : nullptr},
          own};
}

// Returns where a row of a step is in an earlier block, which is a whole one.
__device__ inline std::int64_t row_of_whole(const Step& step, int row) {
  const int rows = rows_of(step.args, step.t);
  return row / rows * step.args.block + row % rows;
}

// The input of one row of a window: own + spread / 2, or own alone.
struct InputRow {
  RowEntries own;
  OptionalRow spread;

  __device__ InputRow(const Step& step, int row) {
    const RecurrenceArgs& args = step.args;
    const std::int64_t window = step.t + step.older, dim = args.dim;
    const void *const x = args.x, *const out = args.h;
    own.from = Step{args, step.t}.at(step.older != 0 ? out : x, row, dim);
    spread.from = nullptr;
    if (window == 0 || window == args.time) return;
    const std::int64_t whole = row_of_whole(step, row);
    spread.from =
        window == 1 ? Step{args, 0}.at(x, whole, dim) : Step{args, window - 2, 1}.at(out, whole, dim);
  }
  __device__ Eight<float> operator()(int k) const {
    Eight<float> sum = own(k);
    if (spread.from == nullptr) return sum;
    const Eight<float> p = spread(k);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.at[i] += 0.5f * p.at[i];
    return sum;
  }
};

template <class T, bool Drops>
__global__ void __launch_bounds__(kFusedThreads, 1)
    accumulate_forward_kernel(const __grid_constant__ Launched launched) {
  const BlockAccumulateArgs& args = launched.args;
  const int dim = static_cast<int>(args.dim), mlp = static_cast<int>(args.mlp),
            heads = static_cast<int>(args.heads), blocks = launched.blocks;
  Worker<T> worker = worker_of<T>(launched);
  int free = kRows * dim;
  const Tiles wqkv = load_tiles<T>(free, worker.rank(), blocks, args.wqkv, 3 * dim, dim, dim, 1);
  const Tiles wo = load_tiles<T>(free, worker.rank(), blocks, args.wo, dim, dim, dim, 1);
  const Tiles up = load_tiles<T>(free, worker.rank(), blocks, args.up, mlp, dim, dim, 1);
  const Tiles down = load_tiles<T>(free, worker.rank(), blocks, args.down, dim, mlp, mlp, 1);
  T* const act = static_cast<T*>(launched.act_or_carry);
  const Dropout dropout = dropout_of(Drops, args.dropout);

  for (std::int64_t t = 0; t <= args.time; ++t) {
    for_each_half(worker, args, dropout, t, [&](const Step& step) {
      worker.product(
          wqkv,
          [&](int first, int count, int, int) {
            stage_norm(worker, step, {args.norm1, args.norm1_bias, args.a1, args.mean1, args.rstd1}, args.z,
                       first, count, [&](int row) { return InputRow(step, row); });
          },
          [&](int, int column) { return two_of(args.wqkv_bias, column); },
          [&](int row, int column, const Two<float>& product, const Two<float>& bias) {
            write_two(step.at(args.qkv_output, row, 3 * dim) + column, sum_of(product, bias));
          });
    });
    worker.sync_group();
    for_each_half(worker, args, dropout, t, [&](const Step& step) {
      const int rows_each = rows_of(args, step.t);
      worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
        const int row = item / heads;
        attend(window_of_half<T>(args, step, row / rows_each, item % heads), row % rows_each);
      });
    });
    worker.sync_group();
    for_each_half(worker, args, dropout, t,
                  [&](const Step& step) { add_attention(worker, step, wo, args.z); });
    worker.sync_group();
    for_each_half(worker, args, dropout, t,
                  [&](const Step& step) { mlp_up(worker, step, up, step.working(act, 0, mlp)); });
    worker.sync_group();
    for_each_half(worker, args, dropout, t,
                  [&](const Step& step) { mlp_down(worker, step, down, step.working(act, 0, mlp)); });
    worker.sync_group();
  }
}

// What window t propagates to p at a row of p's block: half of the gradients of the rows of both halves. Nothing if the
// window adds no p.
struct SpreadGradientRow {
  OptionalRow older{nullptr}, newer{nullptr};

  __device__ SpreadGradientRow(const RecurrenceArgs& args, std::int64_t t, int row) {
    if (t >= args.time) return;
    const int block = static_cast<int>(args.block), rows = rows_of(args, t), j = row % block;
    const void* const dz = args.dx;
    older.from = Step{args, t - 1, 1}.at(dz, row, args.dim);
    if (j < rows) newer.from = Step{args, t}.at(dz, row / block * rows + j, args.dim);
  }
  __device__ void add_to(Eight<float>& sum, int k) const {
    const Eight<float> a = older(k), b = newer(k);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.at[i] += 0.5f * (a.at[i] + b.at[i]);
  }
};

// Returns the dropout of the gradients of a warp's rows of output, which are written to carry; the dropout is
// written to dmlp_out. An output h is read as the older half of the next window, as y from outside, and as p
// two windows later.
template <class T>
__device__ OfLane output_gradient_rows(const Step& step, const DropoutMask& mask, const WarpRows& rows,
                                       float* carry) {
  const RecurrenceArgs& args = step.args;
  const int dim = static_cast<int>(args.dim);
  const void *const dy = args.dh, *const dz = args.dx;
  OfLane entries = load_rows(rows, dim, [&](int row) {
    // A short block is the last one, whose output is not read as p.
    const bool older = step.older != 0;
    const SpreadGradientRow spread(args, older ? step.t + 2 : args.time, row);
    const RowEntries own{older ? Step{args, step.t}.at(dy, row, dim)
                               : Step{args, step.t, 1}.at(dz, row, dim)};
    return [=](int k) {
      Eight<float> sum = own(k);
      spread.add_to(sum, k);
      return sum;
    };
  });
  for_each_stored(rows, dim, entries, [&](int row, int k, const Eight<float>& sum) {
    write_eight(carry + std::int64_t{row} * dim + k, sum);
  });
  drop(step, mask, rows, entries);
  for_each_stored(rows, dim, entries, [&](int row, int k, const Eight<float>& dropped) {
    write_eight(step.at<T>(args.dmlp_out, row, dim) + k, dropped);
  });
  return entries;
}

template <class T, bool Drops>
__global__ void __launch_bounds__(kFusedThreads, 1)
    accumulate_backward_kernel(const __grid_constant__ Launched launched) {
  const BlockAccumulateArgs& args = launched.args;
  const int dim = static_cast<int>(args.dim), mlp = static_cast<int>(args.mlp), blocks = launched.blocks;
  Worker<T> worker = worker_of<T>(launched);
  int free = kRows * dim;
  const Tiles down = load_tiles<T>(free, worker.rank(), blocks, args.down, mlp, dim, 1, mlp);
  const Tiles up = load_tiles<T>(free, worker.rank(), blocks, args.up, dim, mlp, 1, dim);
  const Tiles wo = load_tiles<T>(free, worker.rank(), blocks, args.wo, dim, dim, 1, dim);
  const Tiles wqkv = load_tiles<T>(free, worker.rank(), blocks, args.wqkv, dim, 3 * dim, 1, dim);
  float* const all_carry = static_cast<float*>(launched.act_or_carry);
  const Dropout dropout = dropout_of(Drops, args.dropout);

  for (std::int64_t t = args.time; t >= 0; --t) {
    for_each_half(worker, args, dropout, t, [&](const Step& step) {
      const DropoutMask mask(step, 2);
      float* const carry = step.working(all_carry, 0, dim);
      mlp_down_backward(worker, step, down, [&](int first, int count, int, int) {
        worker.stage(output_gradient_rows<T>(step, mask, worker.rows_of_warp(first, count), carry), dim);
      });
    });
    worker.sync_group();
    for_each_half(worker, args, dropout, t, [&](const Step& step) { mlp_up_backward(worker, step, up); });
    worker.sync_group();
    for_each_half(worker, args, dropout, t, [&](const Step& step) {
      add_attention_backward(worker, step, wo, step.working(all_carry, 0, dim));
    });
    worker.sync_group();
    // An older key gets the share of its own half first; the warp that has it then adds that of the newer
    // half.
    for_each_half(worker, args, dropout, t, [&](const Step& step) {
      attention_gradients(worker, step, step.older == 0 && t > 0, [&](int sequence, int head) {
        return window_of_half<T>(args, step, sequence, head);
      });
    });
    worker.sync_group();
    for_each_half(worker, args, dropout, t, [&](const Step& step) {
      product_into(worker, wqkv, step.at(args.da1, 0, dim), dim, [&](int first, int rows, int k, int width) {
        stage_converted(
            worker, first, rows, width,
            [&](int row) {
              return step.working(static_cast<const float*>(args.window_dqkv), row, 3 * dim) + k;
            },
            [&](int row) { return step.at<T>(args.dqkv, row, 3 * dim) + k; });
      });
    });
    worker.sync_group();
    // dz overwrites dr.
    for_each_half(worker, args, dropout, t, [&](const Step& step) {
      const auto made = [&](const void* base, int width) { return step.at(base, 0, width); };
      float* const dz = step.at(args.dx, 0, dim);
      const NormGradient<T> gradient{DropoutMask(step, 2),
                                     made(args.da1, dim),
                                     made(args.z, dim),
                                     made(args.mean1, 1),
                                     made(args.rstd1, 1),
                                     dz,
                                     args.norm1,
                                     dz,
                                     nullptr};
      worker.for_owned_rows(
          [&](const WarpRows& rows) { static_cast<void>(norm_gradient_rows(step, rows, gradient)); });
    });
    worker.sync_group();
  }
  // x_0 is also read as p, by window 1.
  worker.start_step(rows_of(args, 0));
  worker.for_owned_rows([&](const WarpRows& rows) {
    const OfLane entries = load_rows(rows, dim, [&](int row) {
      const SpreadGradientRow spread(args, 1, row);
      const RowEntries own{Step{args, 0}.at(static_cast<const void*>(args.dx), row, dim)};
      return [=](int k) {
        Eight<float> dx = own(k);
        spread.add_to(dx, k);
        return dx;
      };
    });
    for_each_stored(rows, dim, entries, [&](int row, int k, const Eight<float>& dx) {
      write_eight(Step{args, 0}.at(args.dx, row, dim) + k, dx);
    });
  });
}

// Defined in block_accumulate_backward.cu, since its kernels take twice as long to compile as the others.
Direction accumulate_backward_of(const BlockAccumulateArgs& a);

}  // namespace eddy::cuda
