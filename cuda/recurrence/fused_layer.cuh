// The layer of the fused recurrence, computed by one block of a group: the phases of a step that go row by
// row, forward and backward, and how such kernels are launched. block_accumulate.cuh makes a chain of the
// phases. No phase contains a grid barrier: there must be one between two phases.
//
// Products are those of group_product.cuh. A norm needs whole rows, which the products leave distributed over
// the group. Each block normalises all rows for itself: that costs a read of them from the second-level cache
// and saves a grid barrier. One block of the group stores them for the backward pass.
#pragma once

#include <algorithm>

#include "cuda/recurrence/fused_choice.h"
#include "cuda/recurrence/group_product.cuh"
#include "cuda/recurrence/unit_recurrence.cuh"
#include "cuda/runtime/context.h"
#include "ops/backends.h"
#include "ops/pointwise/pointwise_functors.h"
#include "tensor/tensor.h"

namespace eddy::cuda {

struct Launched {
  BlockAccumulateArgs args;
  unsigned* counters;
  // Forward [halves, batch, mlp] of T: act(u) as the next product reads it. Backward [halves, batch, dim] in
  // f32: the gradient of h on its way to that of r.
  void* act_or_carry;
  int groups, blocks;
};

// Returns the worker of this block, with the group's share of the sequences.
template <class T>
__device__ Worker<T> worker_of(const Launched& launched) {
  const BlockGroup group(launched.counters, launched.blocks);
  const std::int64_t sequences = launched.args.sequences;
  return {group, launched.blocks, static_cast<int>(launched.args.dim),
          static_cast<int>(sequences * group.index / launched.groups),
          static_cast<int>(sequences * (group.index + 1) / launched.groups)};
}

// A norm's weight or a bias from column k on; `otherwise` where there is none.
__device__ inline Eight<float> eight_of(const void* parameters, int k, float otherwise) {
  return parameters == nullptr ? repeat_eight(otherwise)
                               : read_eight(static_cast<const float*>(parameters) + k);
}
// Reads eights of a row.
struct RowEntries {
  const float* from;

  __device__ Eight<float> operator()(int k) const { return read_eight(from + k); }
};
// The same; null reads as 0.
struct OptionalRow {
  const float* from;

  __device__ Eight<float> operator()(int k) const {
    return from == nullptr ? repeat_eight(0) : read_eight(from + k);
  }
};
// Returns a function that gives rows that are `stride` entries apart.
__device__ inline auto rows_from(const float* base, int stride) {
  return [=](int row) { return RowEntries{base + std::int64_t{row} * stride}; };
}
__device__ inline Two<float> two_of(const void* bias, int k) {
  return bias == nullptr ? Two<float>{} : read_two(static_cast<const float*>(bias) + k);
}

// The dropout mask of a result [rows, dim] of a step: element row dim + column of the random numbers of `key`. Where
// some rows of each sequence have no mask, only the others count.
struct DropoutMask {
  RandomKey key;
  int each, unread;  // rows of a sequence

  // Uses key number `which` of the step.
  __device__ DropoutMask(const Step& step, int which)
      : key(step.dropout.on ? resolved(step.block_key(which)) : RandomKey{}),
        each(static_cast<int>(step.t + 1 < step.args.time ? step.args.block : step.args.last)),
        unread(step.unread()) {}

  __device__ std::int64_t first_element(int row, int dim) const {
    const int unmasked = unread == 0 ? 0 : unread * (row / each + 1);
    return std::int64_t{row - unmasked} * dim;
  }
};

// Multiplies the entries of a warp's rows by the factors of a mask. Random numbers take much code, so one loop makes
// those of all entries of a row, and a bit for each that is kept.
__device__ inline void drop(const Step& step, const DropoutMask& mask, const WarpRows& rows,
                            OfLane& entries) {
  if (!step.dropout.on) return;
  const int dim = static_cast<int>(step.args.dim);
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j) {
    const std::int64_t element = mask.first_element(rows.at[j], dim);
    std::uint32_t kept = 0;
#pragma unroll 1
    for (int four = 0; four < 2 * kRowEights; ++four) {
      float factors[4];
      step.dropout.get(factors, mask.key, element + 8 * lane_of_warp() + 256 * (four / 2) + 4 * (four % 2));
#pragma unroll
      for (int e = 0; e < 4; ++e) kept = kept >> 1 | (factors[e] != 0 ? 1u << 31 : 0);
    }
#pragma unroll
    for (int i = 0; i < kRowEights; ++i)
#pragma unroll
      for (int e = 0; e < 8; ++e)
        entries.at[j][i].at[e] *= kept >> (32 - 8 * kRowEights + 8 * i + e) & 1 ? step.dropout.scale : 0.0f;
  }
}

// ---- forward

// A norm's parameters and results, for all steps.
struct Norm {
  const void *weight, *bias;
  void *normalised, *mean, *rstd;
};

// Computes the norms of a warp's rows of this step, in place. T: what they are stored as.
template <class T>
__device__ void norm_rows(const Step& step, const WarpRows& rows, const Norm& norm, OfLane& entries) {
  const int dim = static_cast<int>(step.args.dim);
  const float count = static_cast<float>(dim);
  Eight<float> weight[kRowEights], bias[kRowEights];
  for_each_eight(dim, [&](int i, int k) {
    weight[i] = eight_of(norm.weight, k, 1);
    bias[i] = eight_of(norm.bias, k, 0);
  });
  float mean[kRowsOfWarp] = {}, squares[kRowsOfWarp] = {};
  for_each_eight(dim, [&](int i, int) {
#pragma unroll
    for (int j = 0; j < kRowsOfWarp; ++j)
#pragma unroll
      for (const float entry : entries.at[j][i].at) mean[j] += entry;
  });
  add_lanes(mean);
#pragma unroll
  for (float& of_row : mean) of_row /= count;
  for_each_eight(dim, [&](int i, int) {
#pragma unroll
    for (int j = 0; j < kRowsOfWarp; ++j)
#pragma unroll
      for (const float entry : entries.at[j][i].at) squares[j] += (entry - mean[j]) * (entry - mean[j]);
  });
  add_lanes(squares);
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j) {
    const float rstd = 1.0f / sqrtf(squares[j] / count + static_cast<float>(step.args.eps));
    for_each_eight(dim, [&](int i, int) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float& entry = entries.at[j][i].at[e];
        entry = (entry - mean[j]) * rstd * weight[i].at[e] + bias[i].at[e];
      }
    });
    if (!rows.stored[j] || lane_of_warp() != 0) continue;
    *step.at(norm.mean, rows.at[j], 1) = mean[j];
    *step.at(norm.rstd, rows.at[j], 1) = rstd;
  }
  for_each_stored(rows, dim, entries, [&](int row, int k, const Eight<float>& eight) {
    write_eight(step.at<T>(norm.normalised, row, dim) + k, eight);
  });
}

// Stages the rows of a product: the norms of the rows whose entries are read(row)(k). One block of the group
// also stores the rows themselves to `inputs`, unless that is null.
//
// No function here returns a lambda that captures a local variable by reference and a pointer to global memory:
// nvcc 13.0 then took the second for one to local memory.
template <class T, class Read>
__device__ void stage_norm(Worker<T>& worker, const Step& step, const Norm& norm, void* inputs, int first,
                           int count, Read&& read) {
  const int dim = static_cast<int>(step.args.dim);
  const WarpRows rows = worker.rows_of_warp(first, count);
  OfLane entries = load_rows(rows, dim, read);
  if (inputs != nullptr)
    for_each_stored(rows, dim, entries, [&](int row, int k, const Eight<float>& eight) {
      write_eight(step.at(inputs, row, dim) + k, eight);
    });
  norm_rows<T>(step, rows, norm, entries);
  worker.stage(entries, dim);
}
__device__ inline Two<float> sum_of(const Two<float>& a, const Two<float>& b) {
  return {{a.at[0] + b.at[0], a.at[1] + b.at[1]}};
}

// What residual + drop(product + bias) adds to a product, for two neighbours.
struct Addends {
  Two<float> residual, bias;
};

// to = residual + drop(x w^T + bias), for rows of this step; `stage` provides x.
template <class T, class Stage>
__device__ void add_residual(Worker<T>& worker, const Step& step, const Tiles& weight,
                             const DropoutMask& mask, const void* residual, const void* bias, void* to,
                             Stage&& stage) {
  const int dim = static_cast<int>(step.args.dim);
  worker.product(
      weight, stage,
      [&](int row, int column) {
        return Addends{read_two(step.at(residual, row, dim) + column), two_of(bias, column)};
      },
      [&](int row, int column, const Two<float>& product, const Addends& add) {
        float keep[2];
        step.dropout.get(keep, mask.key, mask.first_element(row, dim) + column);
        Two<float> sum;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          sum.at[i] = add.residual.at[i] + keep[i] * (product.at[i] + add.bias.at[i]);
        write_two(step.at(to, row, dim) + column, sum);
      });
}

// r = residual + drop(o Wo^T).
template <class T>
__device__ void add_attention(Worker<T>& worker, const Step& step, const Tiles& wo, const void* residual) {
  const RecurrenceArgs& args = step.args;
  add_residual(worker, step, wo, DropoutMask(step, 1), residual, args.wo_bias, args.r,
               [&](int first, int rows, int, int width) {
                 worker.stage_rows(first, rows, width,
                                   [&](int row) { return step.at<T>(args.o, row, args.dim); });
               });
}

__device__ inline float activation(const RecurrenceArgs& args, float u) {
  return args.gelu ? pointwise::Gelu::forward(u) : pointwise::Relu::forward(u);
}

// u = norm2(r) Wup^T, and act(u) to act [rows of the step, mlp].
template <class T>
__device__ void mlp_up(Worker<T>& worker, const Step& step, const Tiles& up, T* act) {
  const RecurrenceArgs& args = step.args;
  worker.product(
      up,
      [&](int first, int count, int, int dim) {
        stage_norm(worker, step, {args.norm2, args.norm2_bias, args.a2, args.mean2, args.rstd2}, nullptr,
                   first, count, rows_from(step.at(args.r, 0, dim), dim));
      },
      [&](int, int column) { return two_of(args.up_bias, column); },
      [&](int row, int column, const Two<float>& product, const Two<float>& bias) {
        const Two<float> u = sum_of(product, bias);
        write_two(step.at<T>(args.u, row, args.mlp) + column, u);
        write_two(act + row * args.mlp + column, {activation(args, u.at[0]), activation(args, u.at[1])});
      });
}

// h = r + drop(act Wdown^T).
template <class T>
__device__ void mlp_down(Worker<T>& worker, const Step& step, const Tiles& down, const T* act) {
  const RecurrenceArgs& args = step.args;
  add_residual(worker, step, down, DropoutMask(step, 2), args.r, args.down_bias, args.h,
               [&](int first, int rows, int k, int width) {
                 worker.stage_rows(first, rows, width, [&](int row) { return act + row * args.mlp + k; });
               });
}

// ---- backward

// to = x w for rows [.., width]; `to` is row 0 of a step and `stage` provides x.
template <class T, class Stage>
__device__ void product_into(Worker<T>& worker, const Tiles& weight, float* to, std::int64_t width,
                             Stage&& stage) {
  worker.product(
      weight, stage, [](int, int) { return 0; },
      [&](int row, int column, const Two<float>& product, int) {
        write_two(to + row * width + column, product);
      });
}

// All pointers are to row 0 of a step; rows have dim entries, those of the statistics 1.
template <class T>
struct NormGradient {
  DropoutMask mask;
  const float *dy, *x, *mean, *rstd, *from;
  const void* weight;
  float* to;
  T* dropped;
};

// Returns, for a warp's rows, the dropout of from + the norm's gradient of dy, which is written to `to`; the
// dropout is written to `dropped` unless that is null. `to` must not be `from` where other blocks read that
// at the same time.
template <class T>
__device__ OfLane norm_gradient_rows(const Step& step, const WarpRows& rows,
                                     const NormGradient<T>& gradient) {
  const int dim = static_cast<int>(step.args.dim);
  OfLane g = load_rows(rows, dim, rows_from(gradient.dy, dim)),
         n = load_rows(rows, dim, rows_from(gradient.x, dim)), to;
  Eight<float> weight[kRowEights];
  for_each_eight(dim, [&](int i, int k) { weight[i] = eight_of(gradient.weight, k, 1); });
  load_row(rows, 0, dim, to, rows_from(gradient.from, dim));
  float mean[kRowsOfWarp] = {}, rstd[kRowsOfWarp] = {}, sums[2 * kRowsOfWarp] = {};
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j) {
    if (!rows.there[j]) continue;
    mean[j] = gradient.mean[rows.at[j]];
    rstd[j] = gradient.rstd[rows.at[j]];
  }
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j) {
    for_each_eight(dim, [&](int i, int) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float &of_g = g.at[j][i].at[e], &of_n = n.at[j][i].at[e];
        of_g *= weight[i].at[e];
        of_n = (of_n - mean[j]) * rstd[j];
        to.at[j][i].at[e] += rstd[j] * of_g;
        sums[2 * j] += of_g;
        sums[2 * j + 1] += of_g * of_n;
      }
    });
    // Only now, since g is read no more: registers do not hold all arrays of all rows at once.
    if (j + 1 < kRowsOfWarp) load_row(rows, j + 1, dim, to, rows_from(gradient.from, dim));
  }
  add_lanes(sums);
#pragma unroll
  for (float& sum : sums) sum /= static_cast<float>(dim);
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j)
    for_each_eight(dim, [&](int i, int) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float &sum = to.at[j][i].at[e], &dropped = n.at[j][i].at[e];
        sum -= rstd[j] * (sums[2 * j] + dropped * sums[2 * j + 1]);
        dropped = sum;
      }
    });
  drop(step, gradient.mask, rows, n);
  for_each_stored(rows, dim, to, [&](int row, int k, const Eight<float>& eight) {
    write_eight(gradient.to + std::int64_t{row} * dim + k, eight);
  });
  if (gradient.dropped != nullptr)
    for_each_stored(rows, dim, n, [&](int row, int k, const Eight<float>& eight) {
      write_eight(gradient.dropped + std::int64_t{row} * dim + k, eight);
    });
  return n;
}

// Stages rows of f32 as T, and one block of the group also stores them: from(row) and keep(row) are where the
// entries of a row start.
template <class T, class From, class Keep>
__device__ void stage_converted(Worker<T>& worker, int first, int count, int width, From&& from,
                                Keep&& keep) {
  const WarpRows rows = worker.rows_of_warp(first, count);
  const OfLane entries = load_rows(rows, width, [&](int row) { return RowEntries{from(row)}; });
  worker.stage(entries, width);
  for_each_stored(rows, width, entries,
                  [&](int row, int k, const Eight<float>& eight) { write_eight(keep(row) + k, eight); });
}

// du = dmlp Wdown act'(u), and act(u); `stage` provides dmlp.
template <class T, class Stage>
__device__ void mlp_down_backward(Worker<T>& worker, const Step& step, const Tiles& down, Stage&& stage) {
  const RecurrenceArgs& args = step.args;
  worker.product(
      down, stage, [&](int row, int column) { return read_two(step.at<T>(args.u, row, args.mlp) + column); },
      [&](int row, int column, const Two<float>& product, const Two<T>& kept) {
        const float u[2] = {static_cast<float>(kept.at[0]), static_cast<float>(kept.at[1])};
        const auto du = [&](float dact, float x) {
          return args.gelu ? pointwise::Gelu::vjp(dact, x) : pointwise::Relu::vjp(dact, x);
        };
        write_two(step.at<T>(args.act, row, args.mlp) + column,
                  {activation(args, u[0]), activation(args, u[1])});
        write_two(step.at<T>(args.du, row, args.mlp) + column,
                  {du(product.at[0], u[0]), du(product.at[1], u[1])});
      });
}

// da2 = du Wup.
template <class T>
__device__ void mlp_up_backward(Worker<T>& worker, const Step& step, const Tiles& up) {
  const RecurrenceArgs& args = step.args;
  product_into(worker, up, step.at(args.da2, 0, args.dim), args.dim,
               [&](int first, int rows, int k, int width) {
                 worker.stage_rows(first, rows, width,
                                   [&](int row) { return step.at<T>(args.du, row, args.mlp) + k; });
               });
}

// dr = dh + norm2'(da2), with dh in carry and dr in dx; its dropout goes to do_out, and is staged.
template <class T>
__device__ void stage_attention_gradient(Worker<T>& worker, const Step& step, const float* carry, int first,
                                         int count) {
  const RecurrenceArgs& args = step.args;
  const int dim = static_cast<int>(args.dim);
  const auto made = [&](const void* base, std::int64_t width) { return step.at(base, 0, width); };
  const NormGradient<T> gradient{
      DropoutMask(step, 1), made(args.da2, dim),      made(args.r, dim),
      made(args.mean2, 1),  made(args.rstd2, 1),      carry,
      args.norm2,           step.at(args.dx, 0, dim), step.at<T>(args.do_out, 0, dim)};
  worker.stage(norm_gradient_rows(step, worker.rows_of_warp(first, count), gradient), dim);
}
// do = do_out Wo, which goes to the scratch memory, after the above.
template <class T>
__device__ void add_attention_backward(Worker<T>& worker, const Step& step, const Tiles& wo,
                                       const float* carry) {
  const RecurrenceArgs& args = step.args;
  product_into(
      worker, wo, step.working(static_cast<float*>(args.scratch), 0, args.dim), args.dim,
      [&](int first, int count, int, int) { stage_attention_gradient(worker, step, carry, first, count); });
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
template <class T>
Plan plan_for(const BlockAccumulateArgs& args, void (*kernel)(Launched), const Weight (&weights)[4]) {
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
  const int resident = most_resident_blocks(kernel, kFusedThreads, static_cast<int>(bytes(least)));
  const std::int64_t most_groups =
      std::min({std::int64_t{resident / least}, args.sequences, (args.batch + 15) / 16});
  if (most_groups == 0) return {};
  // No more groups than keep the number of sequences of the largest group as it is.
  const std::int64_t sequences = (args.sequences + most_groups - 1) / most_groups;
  const int groups = static_cast<int>((args.sequences + sequences - 1) / sequences);
  const int blocks = std::min(resident / groups, most_blocks);
  return {groups, blocks, static_cast<int>(bytes(blocks))};
}

// A direction of a chain: its kernels, without and with dropout, for rows stored as products read them
// (RecurrenceArgs::kept), and the sizes of the weights.
struct Direction {
  const char* name;
  void (*in_f32[2])(Launched);
  void (*in_bf16[2])(Launched);
  Weight weights[4];
  bool backward;
  int halves = 1;  // halves of a window, with rows of their own

  auto kernel(const BlockAccumulateArgs& args) const {
    return (args.products == Dtype::bf16 ? in_bf16 : in_f32)[args.dropout > 0 ? 1 : 0];
  }
};

inline Plan plan_of(const BlockAccumulateArgs& args, const Direction& direction) {
  return args.products == Dtype::bf16 ? plan_for<bf16>(args, direction.kernel(args), direction.weights)
                                      : plan_for<float>(args, direction.kernel(args), direction.weights);
}

// Answers a capability query by the plans of both directions; `fits` says whether the kernels take such blocks. They
// run where they are chosen: on an H200 the composed chain takes less time (README.md).
inline void answer(const char* op, const RecurrenceSupportQuery& query, bool fits,
                   Direction (*forward)(const BlockAccumulateArgs&),
                   Direction (*backward)(const BlockAccumulateArgs&)) {
  *query.fits = false;
  const KernelChoice choice = kernel_choice(KernelOp::recurrence);
  if (choice.kernel != Kernel::fused) return;
  BlockAccumulateArgs args{};
  args.dim = query.dim;
  args.mlp = query.mlp;
  args.heads = query.heads;
  args.sequences = query.sequences;
  args.batch = query.sequences * query.block;
  args.products = query.products;
  *query.fits = fits && plan_of(args, forward(args)).groups > 0 && plan_of(args, backward(args)).groups > 0;
  if (!*query.fits && choice.asked) warn_not_fused(op, query);
}

// Returns the counters of the barriers of so many groups, all 0.
inline Tensor barrier_counters(int groups) {
  const Tensor counters = Tensor::empty(Shape{groups * BlockGroup::kCounterStride}, Dtype::i32,
                                        Device{DeviceType::cuda, device_index()});
  check(cudaMemsetAsync(counters.raw_data(), 0, static_cast<std::size_t>(counters.bytes()), stream()),
        "cudaMemsetAsync");
  return counters;
}

// Launches the kernel. Returns false, and does nothing, if the kernel does not support the call.
inline bool run(const BlockAccumulateArgs& args, const Direction& direction) {
  const Plan plan = plan_of(args, direction);
  if (plan.groups == 0) return false;
  const Device device{DeviceType::cuda, device_index()};
  const std::int64_t rows = direction.halves * args.batch;
  const Tensor counters = barrier_counters(plan.groups);
  const Tensor act_or_carry = direction.backward
                                  ? Tensor::empty(Shape{rows, args.dim}, Dtype::f32, device)
                                  : Tensor::empty(Shape{rows, args.mlp}, args.products, device);
  start_resident(direction.name, direction.kernel(args), plan.groups * plan.blocks, kFusedThreads,
                 plan.shared_bytes,
                 Launched{args, static_cast<unsigned*>(counters.raw_data()), act_or_carry.raw_data(),
                          plan.groups, plan.blocks});
  check_launch(direction.name);
  return true;
}

}  // namespace eddy::cuda
