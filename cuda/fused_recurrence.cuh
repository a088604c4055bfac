// The chain of the unit recurrence, and that of the block recurrence with forget, as one kernel for all
// steps, forward and backward: unit_recurrence_fused.cu and block_recurrence.cu are its two forms.
//
// Mapping: the sequences of the batch are split over groups of blocks, and nothing passes between groups.
// Each block of a group holds its share of the columns of all four weights in shared memory from the first
// step to the last. A step is five phases between meetings of the group (block_group.cuh):
//
//   forward                                        backward
//   gate -> o               a warp per head        [dk, dv] Wkv -> da1
//   o Wo^T -> r             residual, dropout      norm1' -> dmlp;   dmlp Wdown act'(u) -> du
//   norm2(r);  Wup^T -> act(u)                     du Wup -> da2
//   act Wdown^T -> h        residual, dropout      norm2' -> dx;     dx Wo -> do
//   norm1(h);  Wkv^T -> k, v                       gate' -> dq, dkx, dvx, and dk, dv of the step before
//
// Products are those of group_product.cuh. A norm needs whole rows, which the products leave scattered over
// the group: each block normalises all rows for itself, which costs a read of them from the second-level
// cache and saves a meeting; one block of the group stores them for the backward.
//
// Numbers: the chain is f32. T is what products read: f32, by plain multiply-adds, or bf16 on tensor cores
// with f32 sums, as other products beside bf16 activations are.
//
// Shared memory: the weights' share, 11 dim^2 sizeof(T) / blocks at mlp = 4 dim, and 32 dim elements of T. At
// dim 384 that is 222 KiB for 16 blocks in bf16, or for 44 blocks 192 KiB in f32: 8 groups, or 3, on 132
// multiprocessors.
//
// Bytes, dim 384, batch 256, bf16, a step forward: 4 dim of qkv and x are read and 11 dim are kept for the
// backward, 4 bytes x 256 rows of each, 5.9 MB, the least: 1.2 us at 4.8 TB/s. Read again by every block of a
// group, from the second-level cache: o, r, h in f32 and act(u) in bf16, 246 KB a block, about 2.2 us at 64
// bytes a clock. Products: 1.62 M multiply-adds a row, 3.2 M a block, 0.9 us at the tensor cores' full rate.
// Weights: once a call instead of 3.2 MB a group and step. To this come five meetings. None of these times
// has been measured.
#pragma once

#include <algorithm>

#include "cuda/block_recurrence.cuh"
#include "cuda/context.h"
#include "cuda/group_product.cuh"
#include "ops/pointwise_functors.h"
#include "tensor/tensor.h"

namespace eddy::cuda {

struct Launched {
  UnitRecurrenceArgs args;
  unsigned* counters;
  void* operand;  // [batch, mlp] of T: act(u) or du as the next product reads it
  float* carry;   // [batch, dim]: the gradient of h on its way to that of r; backward only
  int groups, blocks;
};

// This block, and the group's share of the sequences.
template <class T>
__device__ Worker<T> worker_of(const Launched& launched, T* staged) {
  const BlockGroup group(launched.counters, launched.blocks);
  const std::int64_t sequences = launched.args.sequences;
  return {group,
          launched.blocks,
          staged,
          static_cast<int>(launched.args.dim),
          static_cast<int>(sequences * group.index / launched.groups),
          static_cast<int>(sequences * (group.index + 1) / launched.groups)};
}

__device__ inline float weight_at(const void* weight, int k) {
  return weight == nullptr ? 1.0f : static_cast<const float*>(weight)[k];
}
__device__ inline float bias_at(const void* bias, int k) {
  return bias == nullptr ? 0.0f : static_cast<const float*>(bias)[k];
}

// The dropout of a result [rows, dim] of a step: element (first_row + row) dim + column draws by `key`.
struct Site {
  RandomKey key;
  std::int64_t first_row;

  // Number `which` of a step's keys; where there are none, `whole` for all steps.
  __device__ Site(const Step& step, int which, const RandomKey& whole)
      : key(step.args.keys == nullptr ? whole : step.args.keys[3 * step.t + which]),
        first_row(step.args.keys == nullptr ? step.t * step.args.batch : 0) {}
};

// ---- forward

// The norm of a row of y, of this step, into `entries`.
__device__ inline void norm_row(const Step& step, int row, const void* y, const void* weight,
                                const void* bias, bool store, void* normalised, void* mean_to, void* rstd_to,
                                OfLane& entries) {
  using Warp = Team<32>;
  const int dim = static_cast<int>(step.args.dim);
  const float* const from = step.at(y, row, dim);
  float sum = 0, squares = 0;
  for_each_eight(dim, entries, [&](Eight<float>& eight, int k) {
    eight = read_eight(from + k);
#pragma unroll
    for (const float entry : eight.at) sum += entry;
  });
  const float mean = Warp::reduce(sum, Plus{}) / static_cast<float>(dim);
  for_each_eight(dim, entries, [&](const Eight<float>& eight, int) {
#pragma unroll
    for (const float entry : eight.at) squares += (entry - mean) * (entry - mean);
  });
  const float variance = Warp::reduce(squares, Plus{}) / static_cast<float>(dim);
  const float rstd = 1.0f / sqrtf(variance + static_cast<float>(step.args.eps));
  for_each_eight(dim, entries, [&](Eight<float>& eight, int k) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      eight.at[i] = (eight.at[i] - mean) * rstd * weight_at(weight, k + i) + bias_at(bias, k + i);
    if (store) write_eight(step.at(normalised, row, dim) + k, eight);
  });
  if (store && Warp::lane() == 0) {
    *step.at(mean_to, row, 1) = mean;
    *step.at(rstd_to, row, 1) = rstd;
  }
}

// Two neighbours of a row of `to`, of this step: residual + drop(product + bias).
__device__ inline void add_residual(const Step& step, const Site& site, const void* residual,
                                    const void* bias, void* to, int row, int column, float value,
                                    float next) {
  const std::int64_t element = (step.t * step.args.batch + row) * step.args.dim + column,
                     drawn = (site.first_row + row) * step.args.dim + column;
  const float values[2] = {value, next};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    static_cast<float*>(to)[element + i] =
        static_cast<const float*>(residual)[element + i] +
        step.keep(site.key, drawn + i) * (values[i] + bias_at(bias, column + i));
}

template <class T, bool Blocks>
__global__ void __launch_bounds__(kThreads, 1) fused_forward_kernel(Launched launched) {
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
  T* const act = static_cast<T*>(launched.operand);

  for (std::int64_t t = 0; t < args.time; ++t) {
    const Step step{args, t};
    const Site attn_site(step, 1, args.attn_key), mlp_site(step, 2, args.mlp_key);
    const int rows_each = Blocks ? rows_of(args, t) : 1;
    worker.start_step(rows_each);
    worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
      const int row = item / heads;
      if constexpr (Blocks)
        attend(Window(step, row / rows_each, item % heads), row % rows_each);
      else
        gate_of_head(step, item);
    });
    worker.meet();
    worker.product(
        wo,
        [&](int first, int rows, int, int width) {
          worker.stage_rows(first, rows, width,
                            [&](int row) { return step.at(static_cast<const void*>(args.o), row, dim); });
        },
        [&](int row, int column, float value, float next) {
          add_residual(step, attn_site, args.x, args.wo_bias, args.r, row, column, value, next);
        });
    worker.meet();
    worker.product(
        up,
        [&](int first, int rows, int, int) {
          worker.stage_by_warp(first, rows, [&](int row, bool store, OfLane& entries) {
            norm_row(step, row, args.r, args.norm2, args.norm2_bias, store, args.a2, args.mean2, args.rstd2,
                     entries);
          });
        },
        [&](int row, int column, float value, float next) {
          const float values[2] = {value, next};
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float u = values[i] + bias_at(args.up_bias, column + i);
            step.at(args.u, row, mlp)[column + i] = u;
            act[std::int64_t{row} * mlp + column + i] =
                static_cast<T>(args.gelu ? pointwise::Gelu::forward(u) : pointwise::Relu::forward(u));
          }
        });
    worker.meet();
    worker.product(
        down,
        [&](int first, int rows, int k, int width) {
          worker.stage_rows(first, rows, width, [&](int row) { return act + std::int64_t{row} * mlp + k; });
        },
        [&](int row, int column, float value, float next) {
          add_residual(step, mlp_site, args.r, args.down_bias, args.h, row, column, value, next);
        });
    worker.meet();
    worker.product(
        wkv,
        [&](int first, int rows, int, int) {
          worker.stage_by_warp(first, rows, [&](int row, bool store, OfLane& entries) {
            norm_row(step, row, args.h, args.norm1, args.norm1_bias, store, args.a1, args.mean1, args.rstd1,
                     entries);
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

// ---- backward

// Everything here begins at row 0 of a step; widths are dim, of the statistics 1.
struct NormGradient {
  Site site;
  const float *dy, *x, *mean, *rstd, *from;
  const void* weight;
  float *to, *dropped;
};

// A row of from + the norm's gradient of dy, into `to`, and drop() of that into `dropped` and `entries`.
// `to` is not `from`: other blocks read that at the same time.
__device__ inline void norm_gradient_row(const Step& step, int row, const NormGradient& rows, bool store,
                                         OfLane& entries) {
  using Warp = Team<32>;
  const int dim = static_cast<int>(step.args.dim);
  const std::int64_t begin = std::int64_t{row} * dim;
  const float mean = rows.mean[row], rstd = rows.rstd[row];
  OfLane normalised;
  float sum_g = 0, sum_gn = 0;
  for_each_eight(dim, normalised, [&](Eight<float>& n, int k) {
    const Eight<float> dy = read_eight(rows.dy + begin + k), x = read_eight(rows.x + begin + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float g = dy.at[i] * weight_at(rows.weight, k + i);
      n.at[i] = (x.at[i] - mean) * rstd;
      sum_g += g;
      sum_gn += g * n.at[i];
    }
  });
  const float mean_g = Warp::reduce(sum_g, Plus{}) / static_cast<float>(dim),
              mean_gn = Warp::reduce(sum_gn, Plus{}) / static_cast<float>(dim);
  const std::int64_t drawn = (rows.site.first_row + row) * dim;
  for_each_eight(dim, normalised, [&](Eight<float>& n, int k) {
    const Eight<float> dy = read_eight(rows.dy + begin + k);
    Eight<float> to = read_eight(rows.from + begin + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to.at[i] += rstd * (dy.at[i] * weight_at(rows.weight, k + i) - mean_g - n.at[i] * mean_gn);
      n.at[i] = step.keep(rows.site.key, drawn + k + i) * to.at[i];
    }
    if (!store) return;
    write_eight(rows.to + begin + k, to);
    write_eight(rows.dropped + begin + k, n);
  });
  entries = normalised;
}

template <class T, bool Blocks>
__global__ void __launch_bounds__(kThreads, 1) fused_backward_kernel(Launched launched) {
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
  T* const du_operand = static_cast<T*>(launched.operand);

  for (std::int64_t t = args.time - 1; t >= 0; --t) {
    const Step step{args, t};
    const int rows_each = Blocks ? rows_of(args, t) : 1;
    worker.start_step(rows_each);
    // Of an array that was made by the forward, or by this kernel.
    const auto made = [&](const void* base, int width) { return step.at(base, 0, width); };
    const auto stage_gradient = [&](const NormGradient& rows) {
      return [&worker, &step, rows](int first, int count, int, int) {
        worker.stage_by_warp(first, count, [&](int row, bool store, OfLane& entries) {
          norm_gradient_row(step, row, rows, store, entries);
        });
      };
    };
    worker.product(
        wkv,
        [&](int first, int rows, int k, int width) {
          const float* const from = made(k < dim ? args.dkey : args.dvalue, dim);
          worker.stage_rows(first, rows, width, [&](int row) { return from + std::int64_t{row} * dim; });
        },
        [&](int row, int column, float value, float next) {
          float* const to = step.at(args.da1, row, dim) + column;
          to[0] = value;
          to[1] = next;
        });
    worker.meet();
    worker.product(down,
                   stage_gradient({Site(step, 2, args.mlp_key), made(args.da1, dim), made(args.h, dim),
                                   made(args.mean1, 1), made(args.rstd1, 1), made(args.dh, dim), args.norm1,
                                   launched.carry, step.at(args.dmlp_out, 0, dim)}),
                   [&](int row, int column, float value, float next) {
                     const float values[2] = {value, next};
#pragma unroll
                     for (int i = 0; i < 2; ++i) {
                       const float u = made(args.u, mlp)[std::int64_t{row} * mlp + column + i];
                       const float du = args.gelu ? pointwise::Gelu::vjp(values[i], u)
                                                  : pointwise::Relu::vjp(values[i], u);
                       step.at(args.act, row, mlp)[column + i] =
                           args.gelu ? pointwise::Gelu::forward(u) : pointwise::Relu::forward(u);
                       step.at(args.du, row, mlp)[column + i] = du;
                       du_operand[std::int64_t{row} * mlp + column + i] = static_cast<T>(du);
                     }
                   });
    worker.meet();
    worker.product(
        up,
        [&](int first, int rows, int k, int width) {
          worker.stage_rows(first, rows, width,
                            [&](int row) { return du_operand + std::int64_t{row} * mlp + k; });
        },
        [&](int row, int column, float value, float next) {
          float* const to = step.at(args.da2, row, dim) + column;
          to[0] = value;
          to[1] = next;
        });
    worker.meet();
    worker.product(wo,
                   stage_gradient({Site(step, 1, args.attn_key), made(args.da2, dim), made(args.r, dim),
                                   made(args.mean2, 1), made(args.rstd2, 1), launched.carry, args.norm2,
                                   step.at(args.dx, 0, dim), step.at(args.do_out, 0, dim)}),
                   [&](int row, int column, float value, float next) {
                     float* const to = static_cast<float*>(args.scratch) + std::int64_t{row} * dim + column;
                     to[0] = value;
                     to[1] = next;
                   });
    worker.meet();
    worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
      if constexpr (Blocks) {
        const int row = item / heads, j = row % rows_each;
        const Window window(step, row / rows_each, item % heads);
        query_gradient(window, j);
        key_gradient(window, window.past + j);
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
          key_gradient(Window(step, row / block, item % heads), row % block);
        });
      }
    }
    worker.meet();
  }
}

// ---- host

struct Weight {
  std::int64_t width, depth;
};

struct Plan {
  int groups = 0, blocks = 0, shared_bytes = 0;  // no groups: the kernel cannot take the call
};

// As few blocks to a group as hold the weights, as many groups as the GPU then holds and 16 rows each keep
// busy, and the rest of the GPU spread over them.
template <class T>
Plan plan_for(const UnitRecurrenceArgs& args, void (*kernel)(Launched), const Weight (&weights)[4]) {
  if (args.dim % 32 != 0 || args.mlp % 32 != 0 || args.dim > kLongestRow ||
      args.batch * std::max(args.mlp, args.heads) > 0x7fffffff)
    return {};
  const auto bytes = [&](int blocks) {
    std::int64_t elements = kRows * args.dim;
    for (const Weight& weight : weights)
      elements += most_tiles(static_cast<int>(weight.width), blocks) * 8 * weight.depth;
    return elements * static_cast<std::int64_t>(sizeof(T));
  };
  // More blocks than this would have no columns of the narrower weights.
  const int most_blocks = static_cast<int>(args.dim / 8), most_bytes = most_shared_bytes();
  int least = 1;
  while (least <= most_blocks && bytes(least) > most_bytes) ++least;
  if (least > most_blocks) return {};
  const int resident = blocks_together(kernel, kThreads, static_cast<int>(bytes(least)));
  const int groups =
      static_cast<int>(std::min({std::int64_t{resident / least}, args.sequences, (args.batch + 15) / 16}));
  if (groups == 0) return {};
  const int blocks = std::min(resident / groups, most_blocks);
  return {groups, blocks, static_cast<int>(bytes(blocks))};
}

using Kernel = void (*)(Launched);

// A direction of the chain: its kernels, and the weights as it reads them.
struct Direction {
  const char* name;
  Kernel in_f32, in_bf16;
  Weight weights[4];
};

template <bool Blocks>
Direction forward_of(const UnitRecurrenceArgs& a) {
  return {Blocks ? "block_recurrence" : "unit_recurrence_fused",
          fused_forward_kernel<float, Blocks>,
          fused_forward_kernel<bf16, Blocks>,
          {{a.dim, a.dim}, {a.mlp, a.dim}, {a.dim, a.mlp}, {2 * a.dim, a.dim}}};
}
template <bool Blocks>
Direction backward_of(const UnitRecurrenceArgs& a) {
  return {Blocks ? "block_recurrence_backward" : "unit_recurrence_fused_backward",
          fused_backward_kernel<float, Blocks>,
          fused_backward_kernel<bf16, Blocks>,
          {{a.dim, 2 * a.dim}, {a.mlp, a.dim}, {a.dim, a.mlp}, {a.dim, a.dim}}};
}

inline Plan plan_of(const UnitRecurrenceArgs& args, const Direction& direction) {
  return args.products == Dtype::bf16 ? plan_for<bf16>(args, direction.in_bf16, direction.weights)
                                      : plan_for<float>(args, direction.in_f32, direction.weights);
}

// Runs the kernel. Returns false, and does nothing, where it cannot take the call.
inline bool run(const UnitRecurrenceArgs& args, const Direction& direction) {
  const Plan plan = plan_of(args, direction);
  if (plan.groups == 0) return false;
  const Device device{DeviceType::cuda, device_index()};
  const Tensor counters = Tensor::empty({plan.groups * BlockGroup::kCounterStride}, Dtype::i32, device);
  const Tensor operand = Tensor::empty({args.batch, args.mlp}, args.products, device);
  const Tensor carry = Tensor::empty({args.batch, args.dim}, Dtype::f32, device);
  check(cudaMemsetAsync(counters.raw_data(), 0,
                        static_cast<std::size_t>(plan.groups * BlockGroup::kCounterStride) * sizeof(unsigned),
                        stream()),
        "cudaMemsetAsync");
  start_together(direction.name, args.products == Dtype::bf16 ? direction.in_bf16 : direction.in_f32,
                 plan.groups * plan.blocks, kThreads, plan.shared_bytes,
                 Launched{args, static_cast<unsigned*>(counters.raw_data()), operand.raw_data(),
                          static_cast<float*>(carry.raw_data()), plan.groups, plan.blocks});
  check_launch(direction.name);
  return true;
}

}  // namespace eddy::cuda
