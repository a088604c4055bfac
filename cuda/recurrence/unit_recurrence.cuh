// What the kernels of the unit recurrence and those of block accumulate share: dropout, and a step of the chain. Also
// the gate of one head of one row of the unit recurrence, which a warp computes.
#pragma once

#include "cuda/core/team.cuh"
#include "ops/cpu/vec_math.h"
#include "ops/recurrence/unit_recurrence.h"

namespace eddy::cuda {

// Dropout by the words of a key. Kernels that have no dropout set `on` to a constant, so that they contain no
// random numbers.
struct Dropout {
  bool on = false;
  std::uint32_t drop_below = 0;  // an element is dropped if the upper 24 bits of its word are below this
  float scale = 1;               // of what is kept

  // Sets the factors of `Count` neighbours from an element on whose number is a multiple of Count (of 4 if
  // Count is larger): 1 / (1 - rate) or 0.
  template <int Count>
  __device__ void get(float (&factors)[Count], const RandomKey& key, std::int64_t element) const {
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
      Philox4 words = on ? key.words(static_cast<std::uint64_t>(element + i) / 4) : Philox4{};
      // The words of the element first: an index into them would make a table in local memory.
      if (Count < 4 && (element & 2) != 0) {
        words.word[0] = words.word[2];
        words.word[1] = words.word[3];
      }
      if (Count < 2 && (element & 1) != 0) words.word[0] = words.word[1];
#pragma unroll
      for (int j = 0; j < Count - i && j < 4; ++j)
        factors[i + j] = !on ? 1.0f : (words.word[j] >> 8) >= drop_below ? scale : 0.0f;
    }
  }
};
__device__ inline Dropout dropout_of(bool on, double rate) {
  return {on, static_cast<std::uint32_t>(ceil(rate * 0x1p24)), static_cast<float>(1 / (1 - rate))};
}

// The same key without a base in memory, which would be read for every word.
__device__ inline RandomKey resolved(RandomKey key) {
  key.step = key.current_step();
  key.step_base = nullptr;
  return key;
}

// Step t of the chain. Accumulate (block_accumulate.cuh) has two for each block: for the rows of a newer half
// and, with `older` 1, for those of an older half, which are stored after all newer ones.
struct Step {
  const RecurrenceArgs& args;  // a reference: a copy would be stored in local memory
  std::int64_t t;
  int older = 0;
  Dropout dropout = {};
  std::int64_t shift = 0;  // of this group's rows in arrays with the rows of one step (Worker::shift)

  // Returns row `row` of this step of an array [time, batch, width]; of T if it is stored as args.kept.
  template <class T = float>
  __device__ const T* at(const void* base, std::int64_t row, std::int64_t width) const {
    return static_cast<const T*>(base) + entries(first_row() + row, width);
  }
  template <class T = float>
  __device__ T* at(void* base, std::int64_t row, std::int64_t width) const {
    return static_cast<T*>(base) + entries(first_row() + row, width);
  }
  __device__ std::int64_t first_row() const {
    const std::int64_t all = (args.time - 1) * args.batch + args.last * args.sequences;
    return older * all + entries(t, args.batch);
  }
  // The same for an array that has the rows of one step, of both halves.
  template <class T>
  __device__ T* working(T* base, std::int64_t row, std::int64_t width) const {
    return base + entries(older * args.batch + shift + row, width);
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
  // Returns the dropout factor of an element.
  __device__ float keep(const RandomKey& key, std::int64_t element) const {
    float factor[1];
    dropout.get(factor, key, element);
    return factor[0];
  }
  // Returns the key or value of the state before this step; null at the first step of a sequence.
  __device__ const float* previous(const void* array, const void* carried, std::int64_t row) const {
    if (t > 0) return static_cast<const float*>(array) + entries(entries(t - 1, args.batch) + row, args.dim);
    return carried == nullptr ? nullptr : static_cast<const float*>(carried) + entries(row, args.dim);
  }

 private:
  // The entries of so many rows. A width fits 32 bits, and a product by 32 bits takes half the instructions.
  __device__ static std::int64_t entries(std::int64_t rows, std::int64_t width) {
    return rows * static_cast<std::uint32_t>(width);
  }
};

// A lane's entries of a head, i = lane, lane + 32, ...: the first are read at once, ahead of their use, the
// others when they are asked for. Null reads as 0.
constexpr int kAhead = 2;
struct HeadEntries {
  const float* from;
  float first[kAhead];

  __device__ HeadEntries(const float* entries, int size) : from(entries) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = Team<32>::lane() + 32 * j;
      first[j] = from != nullptr && i < size ? from[i] : 0.0f;
    }
  }
  __device__ float at(int j, int i) const {
    return j < kAhead ? first[j < kAhead ? j : 0] : from != nullptr ? from[i] : 0.0f;
  }
};

// What a warp needs for one head of one row.
struct HeadOfRow {
  std::int64_t row;
  int head, d;
  std::int64_t place;     // of the head in an array [batch, dim]
  bool has_state;         // whether there is a state before
  HeadEntries q, kx, vx;  // of this step
  HeadEntries kh, vh;     // of the state before
  float scale, keep[2];   // of the state's probability and the token's

  // `kv`: the key of the state before, with the value args.dim numbers on; null where both are in their arrays.
  __device__ HeadOfRow(const UnitRecurrenceArgs& args, const Step& step, std::int64_t of_row, int of_head,
                       const float* kv = nullptr)
      : row(of_row),
        head(of_head),
        d(static_cast<int>(args.dim) / static_cast<int>(args.heads)),
        place(row * args.dim + head * d),
        has_state(step.t > 0 || args.key0 != nullptr),
        q(qkv(args, step, 0), d),
        kx(qkv(args, step, 1), d),
        vx(qkv(args, step, 2), d),
        kh(kv != nullptr ? kv : state(step, args.key, args.key0), d),
        vh(kv != nullptr ? kv + args.dim : state(step, args.value, args.value0), d),
        scale(1.0f / sqrtf(static_cast<float>(d))) {
    step.dropout.get(keep, args.gate_key, ((step.t * args.batch + row) * args.heads + head) * 2);
  }
  // Calls body(j, i) for the lane's entries of the head.
  template <class Body>
  __device__ void for_each(Body&& body) const {
    const int lane = Team<32>::lane();
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (lane + 32 * j < d) body(j, lane + 32 * j);
    for (int i = lane + 32 * kAhead; i < d; i += 32) body(kAhead, i);
  }

 private:
  __device__ const float* qkv(const UnitRecurrenceArgs& args, const Step& step, int part) const {
    return step.at(args.qkv, row, 3 * args.dim) + part * args.dim + head * d;
  }
  __device__ const float* state(const Step& step, const void* array, const void* carried) const {
    const float* const of_row = step.previous(array, carried, row);
    return of_row == nullptr ? nullptr : of_row + head * d;
  }
};

// The gate of one head of a row, by a warp. T: what o is stored as.
//
//   (ph, px) = softmax over the two scores, each with its own dropout
//   o        = px vx + ph vh
//
// With `kv` it also stores key and value of the state before. All loads come first: those behind a store, to what may
// be the same place, would wait for what is stored.
template <class T>
__device__ void gate_of_head(const UnitRecurrenceArgs& args, const Step& step, std::int64_t row, int head,
                             const float* kv = nullptr) {
  using Warp = Team<32>;
  const HeadOfRow own(args, step, row, head, kv);
  float g = 0;
  if (own.has_state) {
    float to_state = 0, to_token = 0;
    own.for_each([&](int j, int i) {
      to_state += own.q.at(j, i) * own.kh.at(j, i);
      to_token += own.q.at(j, i) * own.kx.at(j, i);
    });
    g = vec::sigmoid((Warp::reduce(to_state, Plus{}) - Warp::reduce(to_token, Plus{})) * own.scale);
  }
  if (Warp::lane() == 0) step.at(args.gate, row, args.heads)[head] = g;
  const float ph = g * own.keep[0], px = (1.0f - g) * own.keep[1];
  T* const o = step.at<T>(args.o, 0, args.dim) + own.place;
  own.for_each([&](int j, int i) { o[i] = static_cast<T>(px * own.vx.at(j, i) + ph * own.vh.at(j, i)); });
  if (kv == nullptr) return;
  float* const key = step.at(args.key, -args.batch, args.dim) + own.place;
  float* const value = step.at(args.value, -args.batch, args.dim) + own.place;
  own.for_each([&](int j, int i) {
    key[i] = own.kh.at(j, i);
    value[i] = own.vh.at(j, i);
  });
}

// Its gradient. From do, in the scratch memory: dq, dkx, dvx of this step; and, to dkh and dvh, the gradients of this
// head's key and value of the step before, if there is one: those in dkey and dvalue and this step's share.
template <class T>
__device__ void gate_backward_of_head(const UnitRecurrenceArgs& args, const Step& step, std::int64_t row,
                                      int head, T* dkh, T* dvh) {
  using Warp = Team<32>;
  const HeadOfRow own(args, step, row, head);
  const bool gives = step.t > 0;
  const std::int64_t before = (step.t - 1) * args.batch * args.dim + own.place;
  const HeadEntries dout(static_cast<const float*>(args.scratch) + own.place, own.d),
      dkh_before(gives ? static_cast<const float*>(args.dkey) + before : nullptr, own.d),
      dvh_before(gives ? static_cast<const float*>(args.dvalue) + before : nullptr, own.d);
  const float g = step.at(args.gate, row, args.heads)[head];
  const float ph = g * own.keep[0], px = (1.0f - g) * own.keep[1];
  float* const dq = step.at(args.dqkv, row, 3 * args.dim) + head * own.d;
  float *const dkx = dq + args.dim, *const dvx = dkx + args.dim;
  float ds = 0;
  if (own.has_state) {
    float of_state = 0, of_token = 0;
    own.for_each([&](int j, int i) {
      of_state += dout.at(j, i) * own.vh.at(j, i);
      of_token += dout.at(j, i) * own.vx.at(j, i);
    });
    const float dg =
        own.keep[0] * Warp::reduce(of_state, Plus{}) - own.keep[1] * Warp::reduce(of_token, Plus{});
    ds = g * (1.0f - g) * dg * own.scale;
  }
  own.for_each([&](int j, int i) {
    dvx[i] = px * dout.at(j, i);
    dq[i] = ds * (own.kh.at(j, i) - own.kx.at(j, i));
    dkx[i] = -ds * own.q.at(j, i);
    if (!gives) return;
    dkh[i] = static_cast<T>(dkh_before.at(j, i) + ds * own.q.at(j, i));
    dvh[i] = static_cast<T>(dvh_before.at(j, i) + ph * dout.at(j, i));
  });
}

}  // namespace eddy::cuda
