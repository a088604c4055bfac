// The chain of the unit recurrence as one kernel for all steps, forward and backward; the plain chain of
// unit_recurrence.cu is its test.
//
// Mapping: the rows of the batch are split over groups of blocks, and nothing passes between groups. Each
// block of a group holds its share of the columns of all four weights in shared memory from the first step to
// the last. A step is five phases between meetings of the group (block_group.cuh):
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
#include "cuda/unit_recurrence_fused.h"

#include <algorithm>
#include <atomic>

#include "cuda/context.h"
#include "cuda/group_product.cuh"
#include "cuda/unit_recurrence.cuh"
#include "ops/pointwise_functors.h"
#include "tensor/tensor.h"

namespace eddy::cuda {
namespace {

struct Launched {
  UnitRecurrenceArgs args;
  unsigned* counters;
  void* operand;  // [batch, mlp] of T: act(u) or du as the next product reads it
  float* carry;   // [batch, dim]: the gradient of h on its way to that of r; backward only
  int groups, blocks;
};

// This block, and the group's share of the batch.
template <class T>
__device__ Worker<T> worker_of(const Launched& launched, T* staged) {
  const BlockGroup group(launched.counters, launched.blocks);
  const std::int64_t batch = launched.args.batch;
  return {group,
          launched.blocks,
          staged,
          static_cast<int>(launched.args.dim),
          static_cast<int>(batch * group.index / launched.groups),
          static_cast<int>(batch * (group.index + 1) / launched.groups)};
}

__device__ inline float weight_at(const void* weight, int k) {
  return weight == nullptr ? 1.0f : static_cast<const float*>(weight)[k];
}
__device__ inline float bias_at(const void* bias, int k) {
  return bias == nullptr ? 0.0f : static_cast<const float*>(bias)[k];
}

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
__device__ inline void add_residual(const Step& step, const RandomKey& key, const void* residual,
                                    const void* bias, void* to, int row, int column, float value,
                                    float next) {
  const std::int64_t element = (step.t * step.args.batch + row) * step.args.dim + column;
  const float values[2] = {value, next};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    static_cast<float*>(to)[element + i] =
        static_cast<const float*>(residual)[element + i] +
        step.keep(key, element + i) * (values[i] + bias_at(bias, column + i));
}

template <class T>
__global__ void __launch_bounds__(kThreads) fused_forward_kernel(Launched launched) {
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
    for (int item = worker.begin * heads + worker.rank() * kWarps + static_cast<int>(threadIdx.x) / 32;
         item < worker.end * heads; item += blocks * kWarps)
      gate_of_head(step, item);
    worker.meet();
    worker.product(
        wo,
        [&](int first, int rows, int, int width) {
          worker.stage_rows(first, rows, width,
                            [&](int row) { return step.at(static_cast<const void*>(args.o), row, dim); });
        },
        [&](int row, int column, float value, float next) {
          add_residual(step, args.attn_key, args.x, args.wo_bias, args.r, row, column, value, next);
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
          add_residual(step, args.mlp_key, args.r, args.down_bias, args.h, row, column, value, next);
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
  RandomKey key;
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
  const std::int64_t element = (step.t * step.args.batch + row) * dim;
  for_each_eight(dim, normalised, [&](Eight<float>& n, int k) {
    const Eight<float> dy = read_eight(rows.dy + begin + k);
    Eight<float> to = read_eight(rows.from + begin + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to.at[i] += rstd * (dy.at[i] * weight_at(rows.weight, k + i) - mean_g - n.at[i] * mean_gn);
      n.at[i] = step.keep(rows.key, element + k + i) * to.at[i];
    }
    if (!store) return;
    write_eight(rows.to + begin + k, to);
    write_eight(rows.dropped + begin + k, n);
  });
  entries = normalised;
}

template <class T>
__global__ void __launch_bounds__(kThreads) fused_backward_kernel(Launched launched) {
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
                   stage_gradient({args.mlp_key, made(args.da1, dim), made(args.h, dim), made(args.mean1, 1),
                                   made(args.rstd1, 1), made(args.dh, dim), args.norm1, launched.carry,
                                   step.at(args.dmlp_out, 0, dim)}),
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
                   stage_gradient({args.attn_key, made(args.da2, dim), made(args.r, dim), made(args.mean2, 1),
                                   made(args.rstd2, 1), launched.carry, args.norm2, step.at(args.dx, 0, dim),
                                   step.at(args.do_out, 0, dim)}),
                   [&](int row, int column, float value, float next) {
                     float* const to = static_cast<float*>(args.scratch) + std::int64_t{row} * dim + column;
                     to[0] = value;
                     to[1] = next;
                   });
    worker.meet();
    for (int item = worker.begin * heads + worker.rank() * kWarps + static_cast<int>(threadIdx.x) / 32;
         item < worker.end * heads; item += blocks * kWarps)
      gate_backward_of_head(step, item);
    worker.meet();
  }
}

// ---- host

std::atomic<bool> allowed{false};

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
  const int groups = static_cast<int>(std::min<std::int64_t>(resident / least, (args.batch + 15) / 16));
  if (groups == 0) return {};
  const int blocks = std::min(resident / groups, most_blocks);
  return {groups, blocks, static_cast<int>(bytes(blocks))};
}

template <class T>
bool run(const char* name, const UnitRecurrenceArgs& args, void (*kernel)(Launched),
         const Weight (&weights)[4]) {
  const Plan plan = plan_for<T>(args, kernel, weights);
  if (plan.groups == 0) return false;
  const Device device{DeviceType::cuda, device_index()};
  const Tensor counters = Tensor::empty({plan.groups * BlockGroup::kCounterStride}, Dtype::i32, device);
  const Tensor operand = Tensor::empty({args.batch, args.mlp}, DtypeOf<T>::value, device);
  const Tensor carry = Tensor::empty({args.batch, args.dim}, Dtype::f32, device);
  check(cudaMemsetAsync(counters.raw_data(), 0,
                        static_cast<std::size_t>(plan.groups * BlockGroup::kCounterStride) * sizeof(unsigned),
                        stream()),
        "cudaMemsetAsync");
  start_together(name, kernel, plan.groups * plan.blocks, kThreads, plan.shared_bytes,
                 Launched{args, static_cast<unsigned*>(counters.raw_data()), operand.raw_data(),
                          static_cast<float*>(carry.raw_data()), plan.groups, plan.blocks});
  check_launch(name);
  return true;
}

}  // namespace

void set_fused_unit_recurrence(bool on) {
  allowed.store(on);
}

bool fused_unit_recurrence_forward(const UnitRecurrenceArgs& args) {
  if (!allowed.load(std::memory_order_relaxed)) return false;
  const char* const name = "unit_recurrence_fused";
  const Weight weights[] = {
      {args.dim, args.dim}, {args.mlp, args.dim}, {args.dim, args.mlp}, {2 * args.dim, args.dim}};
  return args.products == Dtype::bf16 ? run<bf16>(name, args, fused_forward_kernel<bf16>, weights)
                                      : run<float>(name, args, fused_forward_kernel<float>, weights);
}

bool fused_unit_recurrence_backward(const UnitRecurrenceArgs& args) {
  if (!allowed.load(std::memory_order_relaxed)) return false;
  const char* const name = "unit_recurrence_fused_backward";
  const Weight weights[] = {
      {args.dim, 2 * args.dim}, {args.mlp, args.dim}, {args.dim, args.mlp}, {args.dim, args.dim}};
  return args.products == Dtype::bf16 ? run<bf16>(name, args, fused_backward_kernel<bf16>, weights)
                                      : run<float>(name, args, fused_backward_kernel<float>, weights);
}

}  // namespace eddy::cuda
