// The gate of one head of one row of the unit recurrence and its gradient, each by a team of lanes of a warp.
#pragma once

#include "cuda/core/team.cuh"
#include "cuda/recurrence/fours.cuh"
#include "cuda/recurrence/unit_recurrence.cuh"

namespace eddy::cuda {

// A lane's numbers of a head: the first four are read at once, ahead of their use, the others when they are asked for.
// Null reads as 0.
template <bool Whole>
struct HeadEntries {
  const float* from;
  int size;
  Fours first;

  __device__ HeadEntries(const float* entries, const HeadTeam& team)
      : from(entries), size(team.size), first(read(4 * team.lane)) {}
  __device__ Fours at(bool ahead, int i) const { return ahead ? first : read(i); }

 private:
  __device__ Fours read(int i) const {
    return from != nullptr && i < size ? read_fours<Whole>(from + i, size - i) : Fours{};
  }
};

// What a team needs for one head of one row.
template <bool Whole>
struct HeadOfRow {
  HeadTeam team;
  std::int64_t row;
  int head;
  std::int64_t place;            // of the head in an array [batch, dim]
  bool has_state;                // whether there is a state before
  HeadEntries<Whole> q, kx, vx;  // of this step
  HeadEntries<Whole> kh, vh;     // of the state before
  float scale, keep[2];          // of the state's probability and the token's

  // d: the size of a head. `kv`: the key of the state before, with the value `apart` numbers on; null where both are
  // in their arrays.
  __device__ HeadOfRow(const UnitRecurrenceArgs& args, const Step& step, const HeadTeam& of_head,
                       std::int64_t of_row, int which, int d, const float* kv = nullptr,
                       std::int64_t apart = 0)
      : team(of_head),
        row(of_row),
        head(which),
        place(row * args.dim + head * d),
        has_state(step.t > 0 || args.key0 != nullptr),
        q(qkv(args, step, 0, d), team),
        kx(qkv(args, step, 1, d), team),
        vx(qkv(args, step, 2, d), team),
        kh(kv != nullptr ? kv : state(step, args.key, args.key0, d), team),
        vh(kv != nullptr ? kv + apart : state(step, args.value, args.value0, d), team),
        scale(1.0f / sqrtf(static_cast<float>(d))) {
    step.dropout.get(keep, args.gate_key, ((step.t * args.batch + row) * args.heads + head) * 2);
  }

 private:
  __device__ const float* qkv(const UnitRecurrenceArgs& args, const Step& step, int part, int d) const {
    return step.at(args.qkv, row, 3 * args.dim) + part * args.dim + head * d;
  }
  __device__ const float* state(const Step& step, const void* array, const void* carried, int d) const {
    const float* const of_row = step.previous(array, carried, row);
    return of_row == nullptr ? nullptr : of_row + head * d;
  }
};

// The gate of a head. T: what o is stored as.
//
//   (ph, px) = softmax over the two scores, each with its own dropout
//   o        = px vx + ph vh
//
// With `kv` it also stores key and value of the state before. All loads come first: those behind a store, to what may
// be the same place, would wait for what is stored. All threads of the warp must call it.
template <class T, bool Whole>
__device__ void gate_of_head(const UnitRecurrenceArgs& args, const Step& step, const HeadOfRow<Whole>& own,
                             bool has_kv) {
  const HeadTeam& team = own.team;
  float to_state = 0, to_token = 0, g = 0;
  if (own.has_state) {
    team.for_each([&](bool ahead, int i) {
      const Fours q = own.q.at(ahead, i), kh = own.kh.at(ahead, i), kx = own.kx.at(ahead, i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        to_state = fmaf(q.at[e], kh.at[e], to_state);
        to_token = fmaf(q.at[e], kx.at[e], to_token);
      }
    });
    team.add_up(to_state, to_token);
    g = vec::sigmoid((to_state - to_token) * own.scale);
  }
  if (team.lane == 0 && team.size > 0) step.at(args.gate, own.row, args.heads)[own.head] = g;
  const float ph = g * own.keep[0], px = (1.0f - g) * own.keep[1];
  T* const o = step.at<T>(args.o, 0, args.dim) + own.place;
  team.for_each([&](bool ahead, int i) {
    const Fours vx = own.vx.at(ahead, i), vh = own.vh.at(ahead, i);
    Fours mixed;
#pragma unroll
    for (int e = 0; e < 4; ++e) mixed.at[e] = fmaf(px, vx.at[e], __fmul_rn(ph, vh.at[e]));
    write_fours<Whole>(o + i, mixed, team.size - i);
  });
  if (!has_kv) return;
  float* const key = step.at(args.key, -args.batch, args.dim) + own.place;
  float* const value = step.at(args.value, -args.batch, args.dim) + own.place;
  team.for_each([&](bool ahead, int i) {
    write_fours<Whole>(key + i, own.kh.at(ahead, i), team.size - i);
    write_fours<Whole>(value + i, own.vh.at(ahead, i), team.size - i);
  });
}

// Its gradient. From do of this head: dq, dkx, dvx of this step; and, to dkh and dvh, the gradients of this
// head's key and value of the step before, if there is one: those in dkey and dvalue and this step's share. All threads
// of the warp must call it.
template <class T, bool Whole>
__device__ void gate_backward_of_head(const UnitRecurrenceArgs& args, const Step& step,
                                      const HeadOfRow<Whole>& own, const float* of_o, T* dkh, T* dvh) {
  const HeadTeam& team = own.team;
  const bool gives = step.t > 0;
  const std::int64_t before = (step.t - 1) * args.batch * args.dim + own.place;
  const HeadEntries<Whole> dout(of_o, team),
      dkh_before(gives ? static_cast<const float*>(args.dkey) + before : nullptr, team),
      dvh_before(gives ? static_cast<const float*>(args.dvalue) + before : nullptr, team);
  const float g = step.at(args.gate, own.row, args.heads)[own.head];
  const float ph = g * own.keep[0], px = (1.0f - g) * own.keep[1];
  float* const dq = step.at(args.dqkv, own.row, 3 * args.dim) + (own.place - own.row * args.dim);
  float *const dkx = dq + args.dim, *const dvx = dkx + args.dim;
  float ds = 0;
  if (own.has_state) {
    float of_state = 0, of_token = 0;
    team.for_each([&](bool ahead, int i) {
      const Fours d = dout.at(ahead, i), vh = own.vh.at(ahead, i), vx = own.vx.at(ahead, i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        of_state = fmaf(d.at[e], vh.at[e], of_state);
        of_token = fmaf(d.at[e], vx.at[e], of_token);
      }
    });
    team.add_up(of_state, of_token);
    const float dg = fmaf(own.keep[0], of_state, -__fmul_rn(own.keep[1], of_token));
    ds = g * (1.0f - g) * dg * own.scale;
  }
  team.for_each([&](bool ahead, int i) {
    const Fours d = dout.at(ahead, i), q = own.q.at(ahead, i), kh = own.kh.at(ahead, i),
                kx = own.kx.at(ahead, i), key = dkh_before.at(ahead, i), value = dvh_before.at(ahead, i);
    const auto write = [&](auto* to, auto&& entry) {
      Fours four;
#pragma unroll
      for (int e = 0; e < 4; ++e) four.at[e] = entry(e);
      write_fours<Whole>(to + i, four, team.size - i);
    };
    write(dvx, [&](int e) { return px * d.at[e]; });
    write(dq, [&](int e) { return ds * (kh.at[e] - kx.at[e]); });
    write(dkx, [&](int e) { return -ds * q.at[e]; });
    if (!gives) return;
    write(dkh, [&](int e) { return fmaf(ds, q.at[e], key.at[e]); });
    write(dvh, [&](int e) { return fmaf(ph, d.at[e], value.at[e]); });
  });
}

}  // namespace eddy::cuda
