// The chain of the unit recurrence, and that of the block recurrence with forget, as one kernel for all
// steps, forward and backward. unit_recurrence_fused.cu and block_forget.cu are its two forms.
//
// Mapping: the sequences of the batch are divided among groups of blocks, which are independent of each
// other. Each block of a group keeps its share of the columns of all four weights in shared memory from the
// first step to the last. A step is five phases with a barrier of the group between them (grid_barrier.cuh):
//
//   forward                                         backward
//   gate -> o               a warp per head         [dk, dv] Wkv -> da1
//   o Wo^T -> r             residual, dropout       norm1' -> dmlp;   dmlp Wdown act'(u) -> du
//   norm2(r);  Wup^T -> act(u)                      du Wup -> da2
//   act Wdown^T -> h        residual, dropout       norm2' -> dx;     dx Wo -> do
//   norm1(h);  Wkv^T -> k, v                        gate' -> dq, dkx, dvx, and dk, dv of the step before
//
// The phases are those of fused_layer.cuh.
//
// Types: the chain is f32. T is what products read: f32, with plain multiply-adds, or bf16 on tensor cores
// with f32 sums, as other products of bf16 activations. What is stored only for products is stored as T, as
// it was staged (RecurrenceArgs::kept). So the weights' gradients after the loop read what the chain's
// products read, except act, which is computed again from u.
//
// Shared memory: this block's share of the weights, 11 dim^2 sizeof(T) / blocks at mlp = 4 dim, and 32 dim
// elements of T. At dim 384, on 132 multiprocessors:
//   T      blocks a group     bytes a block     groups
//   bf16   16                 222 KiB           8
//   f32    44                 192 KiB           3
//
// Bytes moved, of a row and a step, at mlp = 4 dim:
//                            f32        bf16
//   forward                  60 dim     46 dim
//   backward                 128 dim    104 dim
//   weights' gradients       64 dim     30 dim     read again after the loop
//
//   forward reads            f32: qkv, x (4 dim)
//   forward writes           f32: h, key, value, r      T: o, a1, a2, u (7 dim)
//   backward reads           f32: qkv, h, key, value, r, dh, dkey, dvalue      T: u
//   backward writes          f32: dx, dqkv, da1, da2, dkey, dvalue      T: act, du, dattn, dmlp (10 dim)
//                            in bf16 dkey and dvalue once more
//
// README.md has the time that each phase is expected to take.
#pragma once

#include "cuda/recurrence/block_attention.cuh"
#include "cuda/recurrence/fused_layer.cuh"

namespace eddy::cuda {

template <class Args>
inline constexpr bool kBlocks = std::is_same_v<Args, BlockForgetArgs>;

template <class T, bool Drops, class Args>
__global__ void __launch_bounds__(kFusedThreads, 1)
    fused_forward_kernel(const __grid_constant__ Launched<Args> launched) {
  const Args& args = launched.args;
  const int dim = static_cast<int>(args.dim), mlp = static_cast<int>(args.mlp),
            heads = static_cast<int>(args.heads), blocks = launched.blocks;
  Worker<T> worker = worker_of<T>(launched);
  int free = kRows * dim;
  const Tiles wo = load_tiles<T>(free, worker.rank(), blocks, args.wo, dim, dim, dim, 1);
  const Tiles up = load_tiles<T>(free, worker.rank(), blocks, args.up, mlp, dim, dim, 1);
  const Tiles down = load_tiles<T>(free, worker.rank(), blocks, args.down, dim, mlp, mlp, 1);
  const Tiles wkv = load_tiles<T>(free, worker.rank(), blocks, args.wkv, 2 * dim, dim, dim, 1);
  T* const act = static_cast<T*>(launched.act_or_carry);
  const Dropout dropout = dropout_of(Drops, args.dropout);

  for (std::int64_t t = 0; t < args.time; ++t) {
    const Step step{args, t, 0, dropout};
    const int rows_each = kBlocks<Args> ? rows_of(args, t) : 1;
    worker.start_step(rows_each);
    worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
      const int row = item / heads;
      if constexpr (kBlocks<Args>)
        attend<T>(window_of_state(args, step, row / rows_each, item % heads), row % rows_each);
      else
        gate_of_head<T>(args, step, row, item % heads);
    });
    worker.sync_group();
    add_attention(worker, step, wo, args.x);
    worker.sync_group();
    mlp_up(worker, step, up, act);
    worker.sync_group();
    mlp_down(worker, step, down, act);
    worker.sync_group();
    worker.product(
        wkv,
        [&](int first, int count, int, int) {
          stage_norm(worker, step, {args.norm1, args.norm1_bias, args.a1, args.mean1, args.rstd1}, nullptr,
                     first, count, rows_from(step.at(args.h, 0, dim), dim));
        },
        [&](int, int column) { return two_of(args.wkv_bias, column); },
        [&](int row, int column, const Two<float>& product, const Two<float>& bias) {
          float* const to = column < dim ? step.at(args.key, row, dim) + column
                                         : step.at(args.value, row, dim) + column - dim;
          write_two(to, sum_of(product, bias));
        });
    worker.sync_group();
  }
}

template <class T, bool Drops, class Args>
__global__ void __launch_bounds__(kFusedThreads, 1)
    fused_backward_kernel(const __grid_constant__ Launched<Args> launched) {
  const Args& args = launched.args;
  const int dim = static_cast<int>(args.dim), mlp = static_cast<int>(args.mlp),
            heads = static_cast<int>(args.heads), blocks = launched.blocks;
  Worker<T> worker = worker_of<T>(launched);
  int free = kRows * dim;
  const Tiles wkv = load_tiles<T>(free, worker.rank(), blocks, args.wkv, dim, 2 * dim, 1, dim);
  const Tiles down = load_tiles<T>(free, worker.rank(), blocks, args.down, mlp, dim, 1, mlp);
  const Tiles up = load_tiles<T>(free, worker.rank(), blocks, args.up, dim, mlp, 1, dim);
  const Tiles wo = load_tiles<T>(free, worker.rank(), blocks, args.wo, dim, dim, 1, dim);
  float* const carry = static_cast<float*>(launched.act_or_carry);
  const Dropout dropout = dropout_of(Drops, args.dropout);

  for (std::int64_t t = args.time - 1; t >= 0; --t) {
    const Step step{args, t, 0, dropout};
    const int rows_each = kBlocks<Args> ? rows_of(args, t) : 1;
    worker.start_step(rows_each);
    // An array made by the forward pass or by this kernel.
    const auto made = [&](const void* base, int width) { return step.at(base, 0, width); };
    product_into(worker, wkv, step.at(args.da1, 0, dim), dim, [&](int first, int rows, int k, int width) {
      const float* const from = made(k < dim ? args.dkey : args.dvalue, dim);
      stage_converted(
          worker, first, rows, width, [&](int row) { return from + std::int64_t{row} * dim; },
          [&](int row) { return step.at<T>(args.dkv, row, 2 * dim) + k; });
    });
    worker.sync_group();
    mlp_down_backward(worker, step, down, [&](int first, int count, int, int) {
      const NormGradient<T> gradient{DropoutMask(step, 2, args.mlp_key),
                                     made(args.da1, dim),
                                     made(args.h, dim),
                                     made(args.mean1, 1),
                                     made(args.rstd1, 1),
                                     made(args.dh, dim),
                                     args.norm1,
                                     carry,
                                     step.at<T>(args.dmlp_out, 0, dim)};
      worker.stage(norm_gradient_rows(step, worker.rows_of_warp(first, count), gradient), dim);
    });
    worker.sync_group();
    mlp_up_backward(worker, step, up);
    worker.sync_group();
    add_attention_backward(worker, step, wo, carry);
    worker.sync_group();
    worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
      if constexpr (kBlocks<Args>) {
        const int row = item / heads, j = row % rows_each;
        const Window window = window_of_state(args, step, row / rows_each, item % heads);
        query_gradient<T>(window, j);
        key_gradient<T>(window, window.past.rows + j);
      } else {
        const int row = item / heads, head = item % heads;
        const std::int64_t before = ((t - 1) * args.batch + row) * dim + head * (dim / heads);
        gate_backward_of_head(args, step, row, head, static_cast<float*>(args.dkey) + before,
                              static_cast<float*>(args.dvalue) + before);
      }
    });
    if constexpr (kBlocks<Args>) {
      if (t > 0) {
        const int block = static_cast<int>(args.block);
        worker.start_step(block);  // the rows of the previous block
        worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
          const int row = item / heads;
          key_gradient<T>(window_of_state(args, step, row / block, item % heads), row % block);
        });
      }
    }
    worker.sync_group();
  }
}

template <class Args>
Direction<Args> forward_of(const Args& a) {
  return {kBlocks<Args> ? "block_forget" : "unit_recurrence_fused",
          {fused_forward_kernel<float, false, Args>, fused_forward_kernel<float, true, Args>},
          {fused_forward_kernel<bf16, false, Args>, fused_forward_kernel<bf16, true, Args>},
          {{a.dim, a.dim}, {a.mlp, a.dim}, {a.dim, a.mlp}, {2 * a.dim, a.dim}},
          false};
}
template <class Args>
Direction<Args> backward_of(const Args& a) {
  return {kBlocks<Args> ? "block_forget_backward" : "unit_recurrence_fused_backward",
          {fused_backward_kernel<float, false, Args>, fused_backward_kernel<float, true, Args>},
          {fused_backward_kernel<bf16, false, Args>, fused_backward_kernel<bf16, true, Args>},
          {{a.dim, 2 * a.dim}, {a.mlp, a.dim}, {a.dim, a.mlp}, {a.dim, a.dim}},
          true};
}

}  // namespace eddy::cuda
