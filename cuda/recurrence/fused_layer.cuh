// The layer of the fused recurrences, computed by one block of a group: the phases of a step that go row by
// row, forward and backward, and how such kernels are launched. fused_recurrence.cuh makes a chain of the
// phases. No phase contains a grid barrier: there must be one between two phases.
//
// Products are those of group_product.cuh. A norm needs whole rows, which the products leave distributed over
// the group. Each block normalises all rows for itself: that costs a read of them from the second-level cache
// and saves a grid barrier. One block of the group stores them for the backward pass.
#pragma once

#include <algorithm>

#include "cuda/recurrence/group_product.cuh"
#include "cuda/recurrence/unit_recurrence.cuh"
#include "cuda/recurrence/unit_recurrence_fused.h"
#include "cuda/runtime/context.h"
#include "ops/backends.h"
#include "ops/pointwise/pointwise_functors.h"
#include "tensor/tensor.h"

namespace eddy::cuda {

// Args: those of a recurrence.
template <class Args>
struct Launched {
  Args args;
  unsigned* counters;
  // Forward [halves, batch, mlp] of T: act(u) as the next product reads it. Backward [halves, batch, dim] in
  // f32: the gradient of h on its way to that of r.
  void* act_or_carry;
  int groups, blocks;
};

// Returns the worker of this block, with the group's share of the sequences.
template <class T, class Args>
__device__ Worker<T> worker_of(const Launched<Args>& launched, T* staged) {
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

// The dropout mask of a result [rows, dim] of a step: element (first_row + row) dim + column of the random
// numbers of `key`. Where some rows of each sequence have no mask, only the others count.
struct DropoutMask {
  RandomKey key;
  std::int64_t first_row;
  int each, unread;  // rows of a sequence

  // Uses key number `which` of the step or, if steps have no keys, `whole` for all steps.
  __device__ DropoutMask(const Step& step, int which, const RandomKey& whole)
      : key(step.args.keys == nullptr ? whole : step.block_key(which)),
        first_row(step.args.keys == nullptr ? step.t * step.args.batch : 0),
        each(static_cast<int>(step.t + 1 < step.args.time ? step.args.block : step.args.last)),
        unread(step.unread()) {}

  __device__ std::int64_t first_element(int row, int dim) const {
    const int unmasked = unread == 0 ? 0 : unread * (row / each + 1);
    return (first_row + row - unmasked) * dim;
  }
};

// ---- forward

// A norm's parameters and results, for all steps.
struct Norm {
  const void *weight, *bias;
  void *normalised, *mean, *rstd;
};

// Computes the norm of a row of this step, read(k) being its entries from k on, into `entries`. T: what the
// norm is stored as.
template <class T, class Read>
__device__ void norm_row(const Step& step, int row, const Norm& norm, bool store, OfLane& entries,
                         Read&& read) {
  using Warp = Team<32>;
  const int dim = static_cast<int>(step.args.dim);
  float sum = 0, squares = 0;
  for_each_eight(dim, entries, [&](Eight<float>& eight, int k) {
    eight = read(k);
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
      eight.at[i] = (eight.at[i] - mean) * rstd * weight_at(norm.weight, k + i) + bias_at(norm.bias, k + i);
    if (store) write_eight(step.at<T>(norm.normalised, row, dim) + k, converted<T>(eight));
  });
  if (store && Warp::lane() == 0) {
    *step.at(norm.mean, row, 1) = mean;
    *step.at(norm.rstd, row, 1) = rstd;
  }
}

// Two neighbours of a row of `to`, in this step: residual + drop(product + bias).
__device__ inline void add_residual(const Step& step, const DropoutMask& mask, const void* residual,
                                    const void* bias, void* to, int row, int column, float value,
                                    float next) {
  const int dim = static_cast<int>(step.args.dim);
  const std::int64_t drawn = mask.first_element(row, dim) + column;
  const float *const from = step.at(residual, row, dim) + column, values[2] = {value, next};
  float* const sum = step.at(to, row, dim) + column;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    sum[i] = from[i] + step.keep(mask.key, drawn + i) * (values[i] + bias_at(bias, column + i));
}

// r = residual + drop(o Wo^T).
template <class T>
__device__ void add_attention(Worker<T>& worker, const Step& step, const Tiles<T>& wo, const void* residual) {
  const RecurrenceArgs& args = step.args;
  const DropoutMask mask(step, 1, args.attn_key);
  worker.product(
      wo,
      [&](int first, int rows, int, int width) {
        worker.stage_rows(first, rows, width, [&](int row) { return step.at<T>(args.o, row, args.dim); });
      },
      [&](int row, int column, float value, float next) {
        add_residual(step, mask, residual, args.wo_bias, args.r, row, column, value, next);
      });
}

__device__ inline float activation(const RecurrenceArgs& args, float u) {
  return args.gelu ? pointwise::Gelu::forward(u) : pointwise::Relu::forward(u);
}

// u = norm2(r) Wup^T, and act(u) to act [rows of the step, mlp].
template <class T>
__device__ void mlp_up(Worker<T>& worker, const Step& step, const Tiles<T>& up, T* act) {
  const RecurrenceArgs& args = step.args;
  const Norm norm{args.norm2, args.norm2_bias, args.a2, args.mean2, args.rstd2};
  worker.product(
      up,
      [&](int first, int rows, int, int) {
        worker.stage_by_warp(first, rows, [&](int row, bool store, OfLane& entries) {
          norm_row<T>(step, row, norm, store, entries,
                      [&](int k) { return read_eight(step.at(args.r, row, args.dim) + k); });
        });
      },
      [&](int row, int column, float value, float next) {
        const float u[2] = {value + bias_at(args.up_bias, column), next + bias_at(args.up_bias, column + 1)};
        write_two(step.at<T>(args.u, row, args.mlp) + column, u[0], u[1]);
        write_two(act + row * args.mlp + column, activation(args, u[0]), activation(args, u[1]));
      });
}

// h = r + drop(act Wdown^T).
template <class T>
__device__ void mlp_down(Worker<T>& worker, const Step& step, const Tiles<T>& down, const T* act) {
  const RecurrenceArgs& args = step.args;
  const DropoutMask mask(step, 2, args.mlp_key);
  worker.product(
      down,
      [&](int first, int rows, int k, int width) {
        worker.stage_rows(first, rows, width, [&](int row) { return act + row * args.mlp + k; });
      },
      [&](int row, int column, float value, float next) {
        add_residual(step, mask, args.r, args.down_bias, args.h, row, column, value, next);
      });
}

// ---- backward

// All pointers are to row 0 of a step; rows have dim entries, those of the statistics 1.
template <class T>
struct NormGradient {
  DropoutMask mask;
  const float *dy, *x, *mean, *rstd, *from;
  const void* weight;
  float* to;
  T* dropped;
};

// A row of from + the norm's gradient of dy, written to `to`, and its dropout, written to `dropped` unless
// that is null and to `entries`. `to` must not be `from` where other blocks read that at the same time.
template <class T>
__device__ void norm_gradient_row(const Step& step, int row, const NormGradient<T>& rows, bool store,
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
  const std::int64_t drawn = rows.mask.first_element(row, dim);
  for_each_eight(dim, normalised, [&](Eight<float>& n, int k) {
    const Eight<float> dy = read_eight(rows.dy + begin + k);
    Eight<float> to = read_eight(rows.from + begin + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to.at[i] += rstd * (dy.at[i] * weight_at(rows.weight, k + i) - mean_g - n.at[i] * mean_gn);
      n.at[i] = step.keep(rows.mask.key, drawn + k + i) * to.at[i];
    }
    if (!store) return;
    write_eight(rows.to + begin + k, to);
    if (rows.dropped != nullptr) write_eight(rows.dropped + begin + k, converted<T>(n));
  });
  entries = normalised;
}

// Stages the rows of a product: the results of norm_gradient_row.
template <class T>
__device__ auto stage_norm_gradient(Worker<T>& worker, const Step& step, const NormGradient<T>& rows) {
  return [&worker, &step, rows](int first, int count, int, int) {
    worker.stage_by_warp(first, count, [&](int row, bool store, OfLane& entries) {
      norm_gradient_row(step, row, rows, store, entries);
    });
  };
}

// du = dmlp Wdown act'(u), and act(u); `stage` provides dmlp.
template <class T, class Stage>
__device__ void mlp_down_backward(Worker<T>& worker, const Step& step, const Tiles<T>& down, Stage&& stage) {
  const RecurrenceArgs& args = step.args;
  worker.product(down, stage, [&](int row, int column, float value, float next) {
    const T* const kept = step.at<T>(args.u, row, args.mlp) + column;
    const float u[2] = {static_cast<float>(kept[0]), static_cast<float>(kept[1])};
    const auto du = [&](float dact, float x) {
      return args.gelu ? pointwise::Gelu::vjp(dact, x) : pointwise::Relu::vjp(dact, x);
    };
    write_two(step.at<T>(args.act, row, args.mlp) + column, activation(args, u[0]), activation(args, u[1]));
    write_two(step.at<T>(args.du, row, args.mlp) + column, du(value, u[0]), du(next, u[1]));
  });
}

// da2 = du Wup.
template <class T>
__device__ void mlp_up_backward(Worker<T>& worker, const Step& step, const Tiles<T>& up) {
  const RecurrenceArgs& args = step.args;
  worker.product(
      up,
      [&](int first, int rows, int k, int width) {
        worker.stage_rows(first, rows, width,
                          [&](int row) { return step.at<T>(args.du, row, args.mlp) + k; });
      },
      [&](int row, int column, float value, float next) {
        float* const to = step.at(args.da2, row, args.dim) + column;
        to[0] = value;
        to[1] = next;
      });
}

// dr = dh + norm2'(da2), with dh in carry and dr in dx; its dropout goes to do_out; do = do_out Wo goes to
// the scratch memory.
template <class T>
__device__ void add_attention_backward(Worker<T>& worker, const Step& step, const Tiles<T>& wo,
                                       const float* carry) {
  const RecurrenceArgs& args = step.args;
  const auto made = [&](const void* base, std::int64_t width) { return step.at(base, 0, width); };
  worker.product(wo,
                 stage_norm_gradient<T>(
                     worker, step,
                     {DropoutMask(step, 1, args.attn_key), made(args.da2, args.dim), made(args.r, args.dim),
                      made(args.mean2, 1), made(args.rstd2, 1), carry, args.norm2,
                      step.at(args.dx, 0, args.dim), step.at<T>(args.do_out, 0, args.dim)}),
                 [&](int row, int column, float value, float next) {
                   float* const to = step.working(static_cast<float*>(args.scratch), row, args.dim) + column;
                   to[0] = value;
                   to[1] = next;
                 });
}

// ---- host

struct Weight {
  std::int64_t width, depth;
};

struct Plan {
  int groups = 0, blocks = 0, shared_bytes = 0;  // 0 groups: the kernel does not support the call
};

// Returns the plan of a launch: as few blocks to a group as hold the weights; as many groups as the GPU then
// holds and 16 rows each keep busy; and the rest of the GPU divided among the groups.
template <class T, class Args>
Plan plan_for(const Args& args, void (*kernel)(Launched<Args>), const Weight (&weights)[4]) {
  if (args.dim % 32 != 0 || args.mlp % 32 != 0 || args.dim > kLongestRow ||
      args.batch * std::max(args.mlp, args.heads) > 0x7fffffff)
    return {};
  const auto bytes = [&](int blocks) {
    std::int64_t elements = kRows * args.dim;
    for (const Weight& weight : weights)
      elements += most_tiles(static_cast<int>(weight.width), blocks) * 8 * weight.depth;
    return elements * static_cast<std::int64_t>(sizeof(T));
  };
  // With more blocks than this some would have no columns of the narrower weights.
  const int most_blocks = static_cast<int>(args.dim / 8), most_bytes = most_shared_bytes();
  int least = 1;
  while (least <= most_blocks && bytes(least) > most_bytes) ++least;
  if (least > most_blocks) return {};
  const int resident = most_resident_blocks(kernel, kThreads, static_cast<int>(bytes(least)));
  const std::int64_t most_groups =
      std::min({std::int64_t{resident / least}, args.sequences, (args.batch + 15) / 16});
  if (most_groups == 0) return {};
  // No more groups than keep the number of sequences of the largest group as it is.
  const std::int64_t sequences = (args.sequences + most_groups - 1) / most_groups;
  const int groups = static_cast<int>((args.sequences + sequences - 1) / sequences);
  const int blocks = std::min(resident / groups, most_blocks);
  return {groups, blocks, static_cast<int>(bytes(blocks))};
}

// A direction of a chain: its kernels, for rows stored as products read them (RecurrenceArgs::kept), and
// the sizes of the weights.
template <class Args>
struct Direction {
  const char* name;
  void (*in_f32)(Launched<Args>);
  void (*in_bf16)(Launched<Args>);
  Weight weights[4];
  bool backward;
  int halves = 1;  // halves of a window, with rows of their own
};

template <class Args>
Plan plan_of(const Args& args, const Direction<Args>& direction) {
  return args.products == Dtype::bf16 ? plan_for<bf16>(args, direction.in_bf16, direction.weights)
                                      : plan_for<float>(args, direction.in_f32, direction.weights);
}

// Answers a capability query by the plans of both directions; `fits` says whether the kernels take such blocks, and
// `launches` are those of a step of the composed chain, both directions together.
template <class Args>
void answer(const char* op, const RecurrenceSupportQuery& query, bool fits, int launches,
            Direction<Args> (*forward)(const Args&), Direction<Args> (*backward)(const Args&)) {
  *query.fits = false;
  const Kernel asked = kernel_choice(KernelOp::recurrence);
  const bool automatic = asked == Kernel::automatic;
  if (asked == Kernel::plain) return;
  Args args{};
  args.dim = query.dim;
  args.mlp = query.mlp;
  args.heads = query.heads;
  args.sequences = query.sequences;
  args.batch = query.sequences * query.block;
  args.products = query.products;
  const Direction<Args> there = forward(args);
  const int groups = fits ? std::min(plan_of(args, there).groups, plan_of(args, backward(args)).groups) : 0;
  *query.fits = groups > 0;
  if (automatic && *query.fits) {
    const std::int64_t rows = (query.sequences + groups - 1) / groups * query.block * there.halves,
                       steps = query.elements / (args.batch * args.dim);
    *query.fits = fused_wins(rows, std::max(steps, std::int64_t{1}), launches);
  }
  if (!automatic && !*query.fits) warn_not_fused(op, query);
  if (automatic && *query.fits) note_fused(op);
}

// Launches the kernel. Returns false, and does nothing, if the kernel does not support the call.
template <class Args>
bool run(const Args& args, const Direction<Args>& direction) {
  const Plan plan = plan_of(args, direction);
  if (plan.groups == 0) return false;
  const Device device{DeviceType::cuda, device_index()};
  const std::int64_t rows = direction.halves * args.batch;
  const Tensor counters = Tensor::empty(Shape{plan.groups * BlockGroup::kCounterStride}, Dtype::i32, device);
  const Tensor act_or_carry = direction.backward
                                  ? Tensor::empty(Shape{rows, args.dim}, Dtype::f32, device)
                                  : Tensor::empty(Shape{rows, args.mlp}, args.products, device);
  check(cudaMemsetAsync(counters.raw_data(), 0,
                        static_cast<std::size_t>(plan.groups * BlockGroup::kCounterStride) * sizeof(unsigned),
                        stream()),
        "cudaMemsetAsync");
  start_resident(direction.name, args.products == Dtype::bf16 ? direction.in_bf16 : direction.in_f32,
                 plan.groups * plan.blocks, kThreads, plan.shared_bytes,
                 Launched<Args>{args, static_cast<unsigned*>(counters.raw_data()), act_or_carry.raw_data(),
                                plan.groups, plan.blocks});
  check_launch(direction.name);
  return true;
}

}  // namespace eddy::cuda
