// The gate of the unit recurrence inside of its fused kernels. It has no phase of its own: each block computes the
// gates of all rows that it stages, so that a step has a grid barrier less. A head's scores are sums over its columns,
// which the product before leaves in parts, `gate_sums`: for each row and each 8 columns two numbers.
//
//   forward    the product with Wkv, which makes k of the state, leaves  q (k - kx)  of the next step
//              the product with Wo then stages  o = px vx + ph vh
//   backward   the product with Wo, which makes do, leaves  do vh  and  do vx
//              the product with Wkv of the step before then stages  dk + ds q  and  dv + ph do
//
// unit_recurrence.cuh has the formulas. A lane has the gate of one head, so there are at most 32, of a multiple of 8
// columns each.
#pragma once

#include "cuda/recurrence/fused_layer.cuh"
#include "ops/cpu/vec_math.h"

namespace eddy::cuda {

// Where the sums of a row are: from column k on, a multiple of 8.
__device__ inline float* gate_sums_at(const Launched<UnitRecurrenceArgs>& launched, std::int64_t row, int k) {
  return launched.gate_sums + (row * launched.args.dim + k) / 4;
}

// Adds the two numbers of a thread over the four lanes that have 8 columns of a product, and leaves the sums. All
// lanes of a warp must call it; `there` says which of them have a row.
__device__ inline void leave_gate_sums(const Launched<UnitRecurrenceArgs>& launched, int row, int column,
                                       bool there, float (&sums)[2]) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2)
#pragma unroll
    for (float& sum : sums) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (there && lane_of_warp() % 4 == 0) write_two(gate_sums_at(launched, row, column), {sums[0], sums[1]});
}

__device__ inline float dot(const Two<float>& a, const Two<float>& b) {
  return a.at[0] * b.at[0] + a.at[1] * b.at[1];
}
__device__ inline Two<float> difference_of(const Two<float>& a, const Two<float>& b) {
  return {{a.at[0] - b.at[0], a.at[1] - b.at[1]}};
}

// Two neighbouring columns of q, kx or vx (part 0, 1 or 2) of a row of a step.
__device__ inline Two<float> two_of_qkv(const Step& step, int part, int row, int column) {
  const std::int64_t dim = step.args.dim;
  return read_two(step.at(step.args.qkv, row, 3 * dim) + part * dim + column);
}

// The gate of one head of a row: the probability of the state, and the dropout factors of the state's and the token's.
struct Gate {
  float g, keep[2];

  __device__ Gate(const UnitRecurrenceArgs& args, const Step& step, std::int64_t row, int head,
                  float of_state)
      : g(of_state) {
    step.dropout.get(keep, args.gate_key, ((step.t * args.batch + row) * args.heads + head) * 2);
  }
  __device__ float to_state() const { return g * keep[0]; }
  __device__ float to_token() const { return (1.0f - g) * keep[1]; }
};

// Adds up what is left of one head of a row.
__device__ inline Two<float> sums_of_head(const Launched<UnitRecurrenceArgs>& launched, std::int64_t row,
                                          int head, int size) {
  const float* const from = gate_sums_at(launched, row, head * size);
  Two<float> sums{};
#pragma unroll 8
  for (int i = 0; i < size / 8; ++i) sums = sum_of(sums, read_two(from + 2 * i));
  return sums;
}

// Calls of_head(j, row, head) in lane `head` for each of a warp's rows that are there, its j-th, and each head.
template <class OfHead>
__device__ void for_each_head(const WarpRows& rows, int heads, OfHead&& of_head) {
  const int head = lane_of_warp();
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j)
    if (rows.there[j] && head < heads) of_head(j, rows.at[j], head);
}
// entries = factors entries + added_factors added. The lane of a head has the factors of its columns.
__device__ inline void mix_heads(int dim, int size, const float (&factors)[kRowsOfWarp], OfLane& entries,
                                 const float (&added_factors)[kRowsOfWarp], const OfLane& added) {
#pragma unroll
  for (int i = 0; i < kRowEights; ++i) {
    const int head = min(8 * lane_of_warp() + 256 * i, dim - 1) / size;
#pragma unroll
    for (int j = 0; j < kRowsOfWarp; ++j) {
      const float factor = __shfl_sync(0xffffffffu, factors[j], head),
                  added_factor = __shfl_sync(0xffffffffu, added_factors[j], head);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float& entry = entries.at[j][i].at[e];
        entry = factor * entry + added_factor * added.at[j][i].at[e];
      }
    }
  }
}

// ---- forward

// Leaves the sums for the first step, from the carried state.
template <class T>
__device__ void leave_first_gate_sums(const Worker<T>& worker, const Launched<UnitRecurrenceArgs>& launched,
                                      const Step& step) {
  const UnitRecurrenceArgs& args = launched.args;
  const int dim = static_cast<int>(args.dim);
  worker.for_each_item(worker.begin, worker.end, [&](int row) {
    const float* const key = step.previous(args.key, args.key0, row);
    for (int tile = 8 * lane_of_warp(); tile < dim; tile += 256) {
      float sum = 0;
#pragma unroll
      for (int k = tile; k < tile + 8; k += 2)
        sum +=
            dot(two_of_qkv(step, 0, row, k), difference_of(read_two(key + k), two_of_qkv(step, 1, row, k)));
      write_two(gate_sums_at(launched, row, tile), {sum, 0.0f});
    }
  });
}

// Stages o of a step, and one block of the group stores it and the gates.
template <class T>
__device__ void stage_gate(Worker<T>& worker, const Launched<UnitRecurrenceArgs>& launched, const Step& step,
                           int first, int count) {
  const UnitRecurrenceArgs& args = launched.args;
  const int dim = static_cast<int>(args.dim), heads = static_cast<int>(args.heads), size = dim / heads;
  const float scale = 1.0f / sqrtf(static_cast<float>(size));
  const float* const state = step.previous(args.value, args.value0, 0);
  const WarpRows rows = worker.rows_of_warp(first, count);
  // The gates first: with the rows as well, registers would not hold what is in flight.
  float to_state[kRowsOfWarp] = {}, to_token[kRowsOfWarp] = {};
  for_each_head(rows, heads, [&](int j, int row, int head) {
    float g = 0;
    if (state != nullptr) g = vec::sigmoid(sums_of_head(launched, row, head, size).at[0] * scale);
    const Gate gate(args, step, row, head, g);
    to_state[j] = gate.to_state();
    to_token[j] = gate.to_token();
    if (rows.stored[j]) step.at(args.gate, row, heads)[head] = g;
  });
  OfLane o = load_rows(rows, dim, rows_from(step.at(args.qkv, 0, 3 * dim) + 2 * dim, 3 * dim));
  const OfLane vh = load_rows(rows, dim, [=](int row) {
    return OptionalRow{state == nullptr ? nullptr : state + std::int64_t{row} * dim};
  });
  mix_heads(dim, size, to_token, o, to_state, vh);
  for_each_stored(rows, dim, o, [&](int row, int k, const Eight<float>& eight) {
    write_eight(step.at<T>(args.o, row, dim) + k, eight);
  });
  worker.stage(o, dim);
}

// k, v = a1 Wkv^T, the state after the step; and, if the recurrence has a gate, the sums for that of the next step.
// `stage` provides a1.
template <class T, class Args, class Stage>
__device__ void make_state(Worker<T>& worker, const Launched<Args>& launched, const Step& step,
                           const Tiles& wkv, Stage&& stage) {
  struct Fetched {
    Two<float> bias, q, kx;
  };
  constexpr bool kGates = std::is_same_v<Args, UnitRecurrenceArgs>;
  const Args& args = launched.args;
  const int dim = static_cast<int>(args.dim);
  const Step next{args, step.t + 1};
  const bool leaves = kGates && next.t < args.time;
  worker.product(
      wkv, stage,
      [&](int row, int column) {
        Fetched fetched{two_of(args.wkv_bias, column), {}, {}};
        if (leaves && column < dim) {
          fetched.q = two_of_qkv(next, 0, row, column);
          fetched.kx = two_of_qkv(next, 1, row, column);
        }
        return fetched;
      },
      [&](int row, int column, const Two<float>& product, const Fetched& fetched, bool there) {
        const bool is_key = column < dim;
        const Two<float> made = sum_of(product, fetched.bias);
        if (there)
          write_two(
              is_key ? step.at(args.key, row, dim) + column : step.at(args.value, row, dim) + column - dim,
              made);
        if constexpr (kGates) {
          if (!leaves || !is_key) return;  // the same for all lanes
          float sums[2] = {there ? dot(fetched.q, difference_of(made, fetched.kx)) : 0.0f, 0.0f};
          leave_gate_sums(launched, row, column, there, sums);
        }
      });
}

// ---- backward

// do = do_out Wo, which goes to the scratch memory; and the sums for the gate. do_out is staged as for the other
// recurrences.
template <class T>
__device__ void gate_output_gradient(Worker<T>& worker, const Launched<UnitRecurrenceArgs>& launched,
                                     const Step& step, const Tiles& wo, const float* carry) {
  struct Values {
    Two<float> vh, vx;
  };
  const UnitRecurrenceArgs& args = launched.args;
  const int dim = static_cast<int>(args.dim);
  const float* const state = step.previous(args.value, args.value0, 0);
  float* const to = static_cast<float*>(args.scratch);
  worker.product(
      wo,
      [&](int first, int count, int, int) { stage_attention_gradient(worker, step, carry, first, count); },
      [&](int row, int column) {
        return Values{state == nullptr ? Two<float>{} : read_two(state + std::int64_t{row} * dim + column),
                      two_of_qkv(step, 2, row, column)};
      },
      [&](int row, int column, const Two<float>& product, const Values& values, bool there) {
        float sums[2] = {};
        if (there) {
          write_two(to + std::int64_t{row} * dim + column, product);
          sums[0] = dot(product, values.vh);
          sums[1] = dot(product, values.vx);
        }
        leave_gate_sums(launched, row, column, there, sums);
      });
}

// Stages the gradient of k (from column 0 of dkv on) or v (from column dim on) of the state after a step, and one
// block of the group stores it: that from outside, and what the gate of the next step adds.
template <class T>
__device__ void stage_state_gradient(Worker<T>& worker, const Launched<UnitRecurrenceArgs>& launched,
                                     const Step& step, int first, int count, int column) {
  const UnitRecurrenceArgs& args = launched.args;
  const int dim = static_cast<int>(args.dim), heads = static_cast<int>(args.heads), size = dim / heads;
  const float scale = 1.0f / sqrtf(static_cast<float>(size));
  const bool of_key = column == 0;
  const Step next{args, step.t + 1, 0, step.dropout};
  const WarpRows rows = worker.rows_of_warp(first, count);
  const bool adds = next.t < args.time;
  float own[kRowsOfWarp], added[kRowsOfWarp] = {};
#pragma unroll
  for (float& factor : own) factor = 1;
  // What dk adds takes longer than the gate alone, which dv needs: only the first is computed before the rows are read.
  if (adds)
    for_each_head(rows, heads, [&](int j, int row, int head) {
      added[j] = next.at(args.gate, row, heads)[head];
      if (!of_key) return;
      const Gate gate(args, next, row, head, added[j]);
      const Two<float> sums = sums_of_head(launched, row, head, size);
      const float dg = gate.keep[0] * sums.at[0] - gate.keep[1] * sums.at[1];
      added[j] = gate.g * (1.0f - gate.g) * dg * scale;
    });
  OfLane sum = load_rows(rows, dim, rows_from(step.at(of_key ? args.dkey : args.dvalue, 0, dim), dim));
  if (adds) {
    const OfLane q_or_do = load_rows(rows, dim,
                                     of_key ? rows_from(next.at(args.qkv, 0, 3 * dim), 3 * dim)
                                            : rows_from(static_cast<const float*>(args.scratch), dim));
    if (!of_key)
      for_each_head(rows, heads, [&](int j, int row, int head) {
        added[j] = Gate(args, next, row, head, added[j]).to_state();
      });
    mix_heads(dim, size, own, sum, added, q_or_do);
  }
  worker.stage(sum, dim);
  for_each_stored(rows, dim, sum, [&](int row, int k, const Eight<float>& eight) {
    write_eight(step.at<T>(args.dkv, row, 2 * dim) + column + k, eight);
  });
}

// dq, dkx and dvx of a step, from do in the scratch memory.
template <class T>
__device__ void gate_input_gradients(const Worker<T>& worker, const UnitRecurrenceArgs& args,
                                     const Step& step) {
  const int heads = static_cast<int>(args.heads);
  worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
    gate_backward_of_head<float>(args, step, item / heads, item % heads, nullptr, nullptr);
  });
}

}  // namespace eddy::cuda
