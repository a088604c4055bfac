// The chain of the unit recurrence, and that of the block recurrence with forget, as one kernel for all
// steps, forward and backward. unit_recurrence_fused.cu and block_forget.cu are its two forms.
//
// Mapping: the sequences of the batch are divided among groups of blocks, which are independent of each
// other. Each block of a group keeps its share of the columns of all four weights in shared memory from the
// first step to the last. A step is phases with a barrier of the group between them (grid_barrier.cuh):
//
//   unit recurrence, forward                        backward
//   gate -> o;  o Wo^T -> r                         gate' -> dk, dv;  [dk, dv] Wkv -> da1
//   norm2(r);  Wup^T -> act(u)                      norm1' -> dmlp;   dmlp Wdown act'(u) -> du
//   act Wdown^T -> h                                du Wup -> da2
//   norm1(h);  Wkv^T -> k, v                        norm2' -> dx;     dx Wo -> do
//
// dq, dkx and dvx of a step, which no later phase reads, are computed while a block waits at the next barrier.
// Block recurrence: the attention over a block and its gradient are phases of their own, a warp for each row of a head,
// before the product with Wo and after it.
//
// The phases are those of fused_layer.cuh and fused_gate.cuh.
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
//   backward                 128 dim    96 dim
//   weights' gradients       64 dim     30 dim     read again after the loop
//
//   forward reads            f32: qkv, x (4 dim)
//   forward writes           f32: h, key, value, r      T: o, a1, a2, u (7 dim)
//   backward reads           f32: qkv, h, key, value, r, dh, dkey, dvalue      T: u
//   backward writes          f32: dx, dqkv, da1, da2      T: act, du, dattn, dmlp, dkey, dvalue (12 dim)
//
// This is the unit recurrence. The block recurrence adds to dkey and dvalue in memory, 8 dim more.
//
// README.md has the time that each phase is expected to take.
#pragma once

#include "cuda/recurrence/block_attention.cuh"
#include "cuda/recurrence/fused_gate.cuh"

namespace eddy::cuda {

template <class Args>
inline constexpr bool kBlocks = std::is_same_v<Args, BlockForgetArgs>;

template <class T, bool Drops, class Args>
__global__ void __launch_bounds__(kFusedThreads, 1)
    fused_forward_kernel(const __grid_constant__ Launched<Args> launched) {
  const Args& args = launched.args;
  const int dim = static_cast<int>(args.dim), mlp = static_cast<int>(args.mlp), blocks = launched.blocks;
  Worker<T> worker = worker_of<T>(launched);
  int free = kRows * dim;
  const Tiles wo = load_tiles<T>(free, worker.rank(), blocks, args.wo, dim, dim, dim, 1);
  const Tiles up = load_tiles<T>(free, worker.rank(), blocks, args.up, mlp, dim, dim, 1);
  const Tiles down = load_tiles<T>(free, worker.rank(), blocks, args.down, dim, mlp, mlp, 1);
  const Tiles wkv = load_tiles<T>(free, worker.rank(), blocks, args.wkv, 2 * dim, dim, dim, 1);
  T* const act = static_cast<T*>(launched.act_or_carry);
  const Dropout dropout = dropout_of(Drops, args.dropout);
  if constexpr (!kBlocks<Args>) {
    if (args.key0 != nullptr) {
      leave_first_gate_sums(worker, launched, Step{args, 0});
      worker.sync_group();
    }
  }

  for (std::int64_t t = 0; t < args.time; ++t) {
    const Step step{args, t, 0, dropout, kBlocks<Args> ? worker.shift(rows_of(args, t), args.block) : 0};
    if constexpr (kBlocks<Args>) {
      const int heads = static_cast<int>(args.heads), rows_each = rows_of(args, t);
      worker.start_step(rows_each);
      worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
        const int row = item / heads;
        attend(window_of_state<T>(args, step, row / rows_each, item % heads), row % rows_each);
      });
      worker.sync_group();
      add_attention(worker, step, wo, args.x);
    } else {
      add_attention(worker, step, wo, args.x, [&](int first, int count, int, int) {
        stage_gate(worker, launched, step, first, count);
      });
    }
    worker.sync_group();
    mlp_up(worker, step, up, step.working(act, 0, mlp));
    worker.sync_group();
    mlp_down(worker, step, down, step.working(act, 0, mlp));
    worker.sync_group();
    make_state(worker, launched, step, wkv, [&](int first, int count, int, int) {
      stage_norm(worker, step, {args.norm1, args.norm1_bias, args.a1, args.mean1, args.rstd1}, nullptr, first,
                 count, rows_from(step.at(args.h, 0, dim), dim));
    });
    worker.sync_group();
  }
}

template <class T, bool Drops, class Args>
__global__ void __launch_bounds__(kFusedThreads, 1)
    fused_backward_kernel(const __grid_constant__ Launched<Args> launched) {
  const Args& args = launched.args;
  const int dim = static_cast<int>(args.dim), mlp = static_cast<int>(args.mlp), blocks = launched.blocks;
  Worker<T> worker = worker_of<T>(launched);
  int free = kRows * dim;
  const Tiles wkv = load_tiles<T>(free, worker.rank(), blocks, args.wkv, dim, 2 * dim, 1, dim);
  const Tiles down = load_tiles<T>(free, worker.rank(), blocks, args.down, mlp, dim, 1, mlp);
  const Tiles up = load_tiles<T>(free, worker.rank(), blocks, args.up, dim, mlp, 1, dim);
  const Tiles wo = load_tiles<T>(free, worker.rank(), blocks, args.wo, dim, dim, 1, dim);
  float* const all_carry = static_cast<float*>(launched.act_or_carry);
  const Dropout dropout = dropout_of(Drops, args.dropout);

  // The unit recurrence has a turn more, -1, for what step 0 leaves to the one before it.
  for (std::int64_t t = args.time - 1; t >= (kBlocks<Args> ? 0 : -1); --t) {
    const Step step{args, t, 0, dropout, kBlocks<Args> ? worker.shift(rows_of(args, t), args.block) : 0};
    if constexpr (kBlocks<Args>) worker.start_step(rows_of(args, t));
    float* const carry = step.working(all_carry, 0, dim);
    // An array made by the forward pass or by this kernel.
    const auto made = [&](const void* base, int width) { return step.at(base, 0, width); };
    if (t >= 0)
      product_into(worker, wkv, step.at(args.da1, 0, dim), dim, [&](int first, int rows, int k, int width) {
        if constexpr (kBlocks<Args>) {
          const float* const from = made(k < dim ? args.dkey : args.dvalue, dim);
          stage_converted(
              worker, first, rows, width, [&](int row) { return from + std::int64_t{row} * dim; },
              [&](int row) { return step.at<T>(args.dkv, row, 2 * dim) + k; });
        } else {
          stage_state_gradient(worker, launched, step, first, rows, k);
        }
      });
    // The gradients of q, kx and vx of the step after, which no phase waits for.
    worker.sync_group([&] {
      if constexpr (!kBlocks<Args>)
        if (t + 1 < args.time) gate_input_gradients(worker, args, Step{args, t + 1, 0, dropout});
    });
    if (t < 0) return;
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
    if constexpr (kBlocks<Args>) {
      add_attention_backward(worker, step, wo, carry);
      worker.sync_group();
      attention_gradients(worker, step, t > 0, [&](int sequence, int head) {
        return window_of_state<T>(args, step, sequence, head);
      });
    } else {
      gate_output_gradient(worker, launched, step, wo, carry);
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
