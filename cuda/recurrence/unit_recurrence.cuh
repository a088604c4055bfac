// What the plain and the fused kernels of the unit recurrence share: a step of the chain, and the gate of one
// head of one row, which a warp computes.
#pragma once

#include "cuda/core/team.cuh"
#include "ops/cpu/vec_math.h"
#include "ops/recurrence/unit_recurrence.h"

namespace eddy::cuda {

// Step t of the chain. Accumulate (block_accumulate.cuh) has two for each block: for the rows of a newer half
// and, with `older` 1, for those of an older half, which are stored after all newer ones.
struct Step {
  const RecurrenceArgs& args;  // a reference: a copy would be stored in local memory
  std::int64_t t;
  int older = 0;

  // Returns row `row` of this step of an array [time, batch, width]; of T if it is stored as args.kept.
  template <class T = float>
  __device__ const T* at(const void* base, std::int64_t row, std::int64_t width) const {
    return static_cast<const T*>(base) + (first_row() + row) * width;
  }
  template <class T = float>
  __device__ T* at(void* base, std::int64_t row, std::int64_t width) const {
    return static_cast<T*>(base) + (first_row() + row) * width;
  }
  __device__ std::int64_t first_row() const {
    const std::int64_t all = (args.time - 1) * args.batch + args.last * args.sequences;
    return older * all + t * args.batch;
  }
  // The same for an array that has the rows of one step, of both halves.
  template <class T>
  __device__ T* working(T* base, std::int64_t row, std::int64_t width) const {
    return base + (older * args.batch + row) * width;
  }
  // Returns the key of one of a block's three dropouts: 0 of probabilities, 1 of the attention's result, 2 of
  // the MLP's.
  __device__ const RandomKey& block_key(int which) const {
    return args.keys[3 * (older * args.time + t) + which];
  }
  // Returns how many rows of each sequence have no masks.
  __device__ int unread() const {
    const std::int64_t from_last = args.time - 1 - t;
    return older == 0 || from_last > 1 ? 0 : static_cast<int>(args.unread[1 - from_last]);
  }
  // Returns the key or value of the state before this step; null at the first step of a sequence.
  __device__ const float* previous(const void* array, const void* carried, std::int64_t row) const {
    if (t > 0) return static_cast<const float*>(array) + ((t - 1) * args.batch + row) * args.dim;
    return carried == nullptr ? nullptr : static_cast<const float*>(carried) + row * args.dim;
  }
  // Returns the dropout factor of an element: 1 / (1 - rate) or 0.
  __device__ float keep(const RandomKey& key, std::int64_t element) const {
    if (args.dropout == 0) return 1.0f;
    const std::uint32_t word = key.word(static_cast<std::uint64_t>(element));
    return static_cast<double>(uniform01(word)) >= args.dropout ? static_cast<float>(1 / (1 - args.dropout))
                                                                : 0.0f;
  }
};

// What a warp needs for one head of one row. A lane has entries j, j + 32, ... of the head's d.
struct HeadOfRow {
  std::int64_t row, head, d;
  const float *q, *kx, *vx;  // of this step
  const float *kh, *vh;      // of the state before; null without one
  float scale, keep_h, keep_x;

  __device__ HeadOfRow(const UnitRecurrenceArgs& args, const Step& step, std::int64_t item) {
    row = item / args.heads;
    head = item % args.heads;
    d = args.dim / args.heads;
    q = step.at(args.qkv, row, 3 * args.dim) + head * d;
    kx = q + args.dim;
    vx = kx + args.dim;
    kh = step.previous(args.key, args.key0, row);
    vh = step.previous(args.value, args.value0, row);
    if (kh != nullptr) {
      kh += head * d;
      vh += head * d;
    }
    scale = static_cast<float>(1 / sqrt(static_cast<double>(d)));
    const std::int64_t element = ((step.t * args.batch + row) * args.heads + head) * 2;
    keep_h = step.keep(args.gate_key, element);
    keep_x = step.keep(args.gate_key, element + 1);
  }
};

// The gate of head item % heads of row item / heads, by a warp. T: what o is stored as.
//
//   (ph, px) = softmax over the two scores, each with its own dropout
//   o        = px vx + ph vh
template <class T>
__device__ void gate_of_head(const UnitRecurrenceArgs& args, const Step& step, std::int64_t item) {
  using Warp = Team<32>;
  const HeadOfRow own(args, step, item);
  float g = 0;
  if (own.kh != nullptr) {
    float to_state = 0, to_token = 0;
    for (std::int64_t i = Warp::lane(); i < own.d; i += 32) {
      to_state += own.q[i] * own.kh[i];
      to_token += own.q[i] * own.kx[i];
    }
    g = vec::sigmoid((Warp::reduce(to_state, Plus{}) - Warp::reduce(to_token, Plus{})) * own.scale);
  }
  if (Warp::lane() == 0) step.at(args.gate, own.row, args.heads)[own.head] = g;
  const float ph = g * own.keep_h, px = (1.0f - g) * own.keep_x;
  T* const o = step.at<T>(args.o, own.row, args.dim) + own.head * own.d;
  for (std::int64_t i = Warp::lane(); i < own.d; i += 32)
    o[i] = static_cast<T>(px * own.vx[i] + (own.kh != nullptr ? ph * own.vh[i] : 0.0f));
}

// Its gradient. From do, in the scratch memory: dq, dkx, dvx of this step; the shares of kh and vh are added
// to the step before.
__device__ inline void gate_backward_of_head(const UnitRecurrenceArgs& args, const Step& step,
                                             std::int64_t item) {
  using Warp = Team<32>;
  const HeadOfRow own(args, step, item);
  const float* const dout = static_cast<const float*>(args.scratch) + own.row * args.dim + own.head * own.d;
  const float g = step.at(args.gate, own.row, args.heads)[own.head];
  const float ph = g * own.keep_h, px = (1.0f - g) * own.keep_x;
  float* const dq = step.at(args.dqkv, own.row, 3 * args.dim) + own.head * own.d;
  float *const dkx = dq + args.dim, *const dvx = dkx + args.dim;
  float ds = 0;
  if (own.kh != nullptr) {
    float of_state = 0, of_token = 0;
    for (std::int64_t i = Warp::lane(); i < own.d; i += 32) {
      of_state += dout[i] * own.vh[i];
      of_token += dout[i] * own.vx[i];
    }
    const float dg =
        own.keep_h * Warp::reduce(of_state, Plus{}) - own.keep_x * Warp::reduce(of_token, Plus{});
    ds = g * (1.0f - g) * dg * own.scale;
  }
  const std::int64_t before = (own.row - args.batch) * args.dim + own.head * own.d;  // from this step's start
  float* const dkh = step.t > 0 ? step.at(args.dkey, 0, args.dim) + before : nullptr;
  float* const dvh = step.t > 0 ? step.at(args.dvalue, 0, args.dim) + before : nullptr;
  for (std::int64_t i = Warp::lane(); i < own.d; i += 32) {
    dvx[i] = px * dout[i];
    dq[i] = own.kh != nullptr ? ds * (own.kh[i] - own.kx[i]) : 0.0f;
    dkx[i] = own.kh != nullptr ? -ds * own.q[i] : 0.0f;
    if (dkh == nullptr) continue;
    dkh[i] += ds * own.q[i];
    dvh[i] += ph * dout[i];
  }
}

}  // namespace eddy::cuda
