// The chain of the unit recurrence, and that of the block recurrence with forget, as one kernel for all
// steps, forward and backward: unit_recurrence_fused.cu and block_forget.cu are its two forms.
//
// Mapping: the sequences of the batch are split over groups of blocks, and nothing passes between groups.
// Each block of a group holds its share of the columns of all four weights in shared memory from the first
// step to the last. A step is five phases between meetings of the group (grid_barrier.cuh):
//
//   forward                                        backward
//   gate -> o               a warp per head        [dk, dv] Wkv -> da1
//   o Wo^T -> r             residual, dropout      norm1' -> dmlp;   dmlp Wdown act'(u) -> du
//   norm2(r);  Wup^T -> act(u)                     du Wup -> da2
//   act Wdown^T -> h        residual, dropout      norm2' -> dx;     dx Wo -> do
//   norm1(h);  Wkv^T -> k, v                       gate' -> dq, dkx, dvx, and dk, dv of the step before
//
// The phases are those of fused_layer.cuh.
//
// Numbers: the chain is f32. T is what products read: f32, by plain multiply-adds, or bf16 on tensor cores
// with f32 sums, as other products beside bf16 activations are. What is stored for products alone is stored
// as T (UnitRecurrenceArgs::kept says what and why), as it was staged, so that the weights' gradients after
// the loop read what the chain's products read, but for act, which is made again of u.
//
// Shared memory: the weights' share, 11 dim^2 sizeof(T) / blocks at mlp = 4 dim, and 32 dim elements of T. At
// dim 384 that is 222 KiB for 16 blocks in bf16, or for 44 blocks 192 KiB in f32: 8 groups, or 3, on 132
// multiprocessors.
//
// Bytes, mlp = 4 dim, of a row and a step. Forward 4 dim of qkv and x are read; h, key, value, r are kept in
// f32 and o, a1, a2, u, 7 dim, as T: 60 dim bytes in f32, 46 in bf16. Backward qkv, h, key, value, r, dh,
// dkey, dvalue are read in f32 and u as T; dx, dqkv, da1, da2, dkey, dvalue are written in f32, and act, du,
// dattn and dmlp, 10 dim, as T, in bf16 dkey and dvalue once more: 128 dim bytes, and 104. The weights'
// gradients read 64 dim bytes of them in f32 and 30 in bf16.
//
// At dim 384, batch 256, in bf16, a step forward is 4.5 MB, the least: 0.9 us at 4.8 TB/s. Read again by
// every block of a group, from the second-level cache: r, h in f32 and o, act(u) in bf16, 221 KB a block,
// about 2 us at 64 bytes a clock. Products: 1.62 M multiply-adds a row, 3.2 M a block, 0.9 us at the tensor
// cores' full rate. Weights: once a call instead of 3.2 MB a group and step. To this come five meetings. None
// of these times has been measured.
#pragma once

#include "cuda/recurrence/block_attention.cuh"
#include "cuda/recurrence/fused_layer.cuh"

namespace eddy::cuda {

template <class T, bool Blocks>
__global__ void __launch_bounds__(kThreads, 1)
    fused_forward_kernel(const __grid_constant__ Launched<UnitRecurrenceArgs> launched) {
  const UnitRecurrenceArgs& args = launched.args;
  const int dim = static_cast<int>(args.dim), mlp = static_cast<int>(args.mlp),
            heads = static_cast<int>(args.heads), blocks = launched.blocks;
  T* const staged = reinterpret_cast<T*>(shared_memory());
  Worker<T> worker = worker_of<T>(launched, staged);
  T* free = staged + kRows * dim;
  const Tiles<T> wo = load_tiles(free, worker.rank(), blocks, args.wo, dim, dim, dim, 1);
  const Tiles<T> up = load_tiles(free, worker.rank(), blocks, args.up, mlp, dim, dim, 1);
  const Tiles<T> down = load_tiles(free, worker.rank(), blocks, args.down, dim, mlp, mlp, 1);
  const Tiles<T> wkv = load_tiles(free, worker.rank(), blocks, args.wkv, 2 * dim, dim, dim, 1);
  T* const act = static_cast<T*>(launched.between);
  const Norm norm1{args.norm1, args.norm1_bias, args.a1, args.mean1, args.rstd1};

  for (std::int64_t t = 0; t < args.time; ++t) {
    const Step step{args, t};
    const int rows_each = Blocks ? rows_of(args, t) : 1;
    worker.start_step(rows_each);
    worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
      const int row = item / heads;
      if constexpr (Blocks)
        attend<T>(window_of_state(step, row / rows_each, item % heads), row % rows_each);
      else
        gate_of_head<T>(step, item);
    });
    worker.meet();
    add_attention(worker, step, wo, args.x);
    worker.meet();
    mlp_up(worker, step, up, act);
    worker.meet();
    mlp_down(worker, step, down, act);
    worker.meet();
    worker.product(
        wkv,
        [&](int first, int rows, int, int) {
          worker.stage_by_warp(first, rows, [&](int row, bool store, OfLane& entries) {
            norm_row<T>(step, row, norm1, store, entries,
                        [&](int k) { return read_eight(step.at(args.h, row, dim) + k); });
          });
        },
        [&](int row, int column, float value, float next) {
          float* const to = column < dim ? step.at(args.key, row, dim) + column
                                         : step.at(args.value, row, dim) + column - dim;
          to[0] = value + bias_at(args.wkv_bias, column);
          to[1] = next + bias_at(args.wkv_bias, column + 1);
        });
    worker.meet();
  }
}

template <class T, bool Blocks>
__global__ void __launch_bounds__(kThreads, 1)
    fused_backward_kernel(const __grid_constant__ Launched<UnitRecurrenceArgs> launched) {
  const UnitRecurrenceArgs& args = launched.args;
  const int dim = static_cast<int>(args.dim), mlp = static_cast<int>(args.mlp),
            heads = static_cast<int>(args.heads), blocks = launched.blocks;
  T* const staged = reinterpret_cast<T*>(shared_memory());
  Worker<T> worker = worker_of<T>(launched, staged);
  T* free = staged + kRows * dim;
  const Tiles<T> wkv = load_tiles(free, worker.rank(), blocks, args.wkv, dim, 2 * dim, 1, dim);
  const Tiles<T> down = load_tiles(free, worker.rank(), blocks, args.down, mlp, dim, 1, mlp);
  const Tiles<T> up = load_tiles(free, worker.rank(), blocks, args.up, dim, mlp, 1, dim);
  const Tiles<T> wo = load_tiles(free, worker.rank(), blocks, args.wo, dim, dim, 1, dim);
  float* const carry = static_cast<float*>(launched.between);

  for (std::int64_t t = args.time - 1; t >= 0; --t) {
    const Step step{args, t};
    const int rows_each = Blocks ? rows_of(args, t) : 1;
    worker.start_step(rows_each);
    // Of an array that was made by the forward, or by this kernel.
    const auto made = [&](const void* base, int width) { return step.at(base, 0, width); };
    worker.product(
        wkv,
        [&](int first, int rows, int k, int width) {
          const float* const from = made(k < dim ? args.dkey : args.dvalue, dim);
          worker.stage_rows(
              first, rows, width, [&](int row) { return from + std::int64_t{row} * dim; },
              [&](int row) {
                return args.dproducts == nullptr ? nullptr : step.at<T>(args.dproducts, row, 2 * dim) + k;
              });
        },
        [&](int row, int column, float value, float next) {
          float* const to = step.at(args.da1, row, dim) + column;
          to[0] = value;
          to[1] = next;
        });
    worker.meet();
    mlp_down_backward(
        worker, step, down,
        stage_norm_gradient<T>(
            worker, step,
            {Site(step, 2, args.mlp_key), made(args.da1, dim), made(args.h, dim), made(args.mean1, 1),
             made(args.rstd1, 1), made(args.dh, dim), args.norm1, carry, step.at<T>(args.dmlp_out, 0, dim)}));
    worker.meet();
    mlp_up_backward(worker, step, up);
    worker.meet();
    add_attention_backward(worker, step, wo, carry);
    worker.meet();
    worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
      if constexpr (Blocks) {
        const int row = item / heads, j = row % rows_each;
        const Window window = window_of_state(step, row / rows_each, item % heads);
        query_gradient<T>(window, j);
        key_gradient<T>(window, window.past.rows + j);
      } else {
        gate_backward_of_head(step, item);
      }
    });
    if constexpr (Blocks) {
      if (t > 0) {
        const int block = static_cast<int>(args.block);
        worker.start_step(block);  // the rows of the block before
        worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
          const int row = item / heads;
          key_gradient<T>(window_of_state(step, row / block, item % heads), row % block);
        });
      }
    }
    worker.meet();
  }
}

template <bool Blocks>
Direction<UnitRecurrenceArgs> forward_of(const UnitRecurrenceArgs& a) {
  return {Blocks ? "block_recurrence" : "unit_recurrence_fused",
          fused_forward_kernel<float, Blocks>,
          fused_forward_kernel<bf16, Blocks>,
          {{a.dim, a.dim}, {a.mlp, a.dim}, {a.dim, a.mlp}, {2 * a.dim, a.dim}},
          false};
}
template <bool Blocks>
Direction<UnitRecurrenceArgs> backward_of(const UnitRecurrenceArgs& a) {
  return {Blocks ? "block_recurrence_backward" : "unit_recurrence_fused_backward",
          fused_backward_kernel<float, Blocks>,
          fused_backward_kernel<bf16, Blocks>,
          {{a.dim, 2 * a.dim}, {a.mlp, a.dim}, {a.dim, a.mlp}, {a.dim, a.dim}},
          true};
}

}  // namespace eddy::cuda
