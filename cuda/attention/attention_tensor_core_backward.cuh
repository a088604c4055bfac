// What the backward attention kernels on tensor cores share: their argument and how it is read.
#pragma once

#include "cuda/attention/attention_tensor_core.cuh"
#include "cuda/core/numbers.cuh"
#include "ops/attention/attention_partials.h"

namespace eddy::cuda {
namespace {

// Where the kernel for dq writes the gradient of the bias (cuda/attention/attention_tensor_core_bias.cuh).
struct BiasSlices {
  float* data;  // [blocks, entries]
  int entries;  // distances least .. most
  int place;    // offset of the warps' tables in shared memory, in numbers
};

struct TensorBackward {
  AttentionBackwardArgs args;
  AttentionPartials partials;
  bool q_aligned, k_aligned, v_aligned, doutput_aligned;
  BiasSlices bias;

  __device__ float* scratch(std::int64_t place) const {
    return static_cast<float*>(args.forward.scratch) + place;
  }
  template <class T>
  __device__ Rows<T> queries(const Head<T>& head) const {
    return {{head.queries(), args.forward.q_strides.time}, q_aligned};
  }
  template <class T>
  __device__ RowsOfKeys<T> keys(const Head<T>& head) const {
    return {head.keys(), k_aligned};
  }
  template <class T>
  __device__ RowsOfKeys<T> values(const Head<T>& head) const {
    return {head.values(), v_aligned};
  }
  template <class T>
  __device__ Rows<T> doutputs(const Head<T>& head) const {
    return {{head.doutputs(args), args.doutput_strides.time}, doutput_aligned};
  }
  // A query's log_sum in units of log 2; zero past the last query.
  template <class T>
  __device__ float log_sum(const Head<T>& head, std::int64_t query) const {
    if (query >= args.forward.queries) return 0;
    return static_cast<const float*>(args.forward.log_sum)[head.row_at(query)] * kLog2OfE;
  }
  // Reads the same and the query's delta, which the kernel for dq has left; zeros past the last query.
  template <class T>
  __device__ void statistics(const Head<T>& head, std::int64_t query, float& log_sums, float& deltas) const {
    log_sums = log_sum(head, query);
    deltas = delta(head, query);
  }
  template <class T>
  __device__ float delta(const Head<T>& head, std::int64_t query) const {
    return query < args.forward.queries ? scratch(partials.deltas)[head.row_at(query)] : 0;
  }
};

// Computes the deltas of a thread's two rows, do . o, and leaves them for the other kernels. Each of the
// four threads of a row has every fourth group of 16 bytes, if the rows of do are aligned, as those of o always are.
template <int H, class T>
__device__ void make_deltas(const TensorBackward& launched, const Head<T>& head, std::int64_t first,
                            float (&deltas)[2]) {
  const AttentionArgs& args = launched.args.forward;
  const int width = static_cast<int>(args.head_size), own = lane() % 4 * kGroup<T>;
  const Rows<T> doutputs = launched.doutputs(head);
  const auto product = [&](std::int64_t query, auto&& read) {
    const T* const output = static_cast<const T*>(args.output) + head.output_at(query);
    const T* const doutput = doutputs.at(query);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < H / (4 * kGroup<T>); ++k) {
      const int column = own + 4 * kGroup<T> * k;
      if (column >= width) continue;
      const Group<T> o = read_group(output + column), d = read(doutput + column);
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) sum = fmaf(o.at[j], d.at[j], sum);
    }
    return sum;
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t query = first + own_row() + 8 * half;
    const bool there = query < args.queries;
    float sum = 0;
    if (there && launched.doutput_aligned) {
      sum = product(query, [](const T* from) { return read_group(from); });
    } else if (there) {
      sum = product(query, [](const T* from) {
        Group<T> group;
        for (int j = 0; j < kGroup<T>; ++j) group.at[j] = static_cast<float>(from[j]);
        return group;
      });
    }
    sum = reduce_quad(sum, Plus{});
    deltas[half] = sees_one_key(args, query) ? kNoGradient : sum;
    if (there && own_column() == 0)
      launched.scratch(launched.partials.deltas)[head.row_at(query)] = deltas[half];
  }
}

// Turns the gradients of unit vectors, a thread's numbers of its two rows, into those of the vectors
// before: dx = r (dy - y sum(dy y)). `unit` has the unit vectors, in contiguous rows. All threads of the warp must
// call it.
template <int H, class From>
__device__ void through_unit_norm(const From& unit, const UnitScales& scales, std::int64_t first,
                                  std::int64_t end, int width, float (&sums)[H / 8][4]) {
  using T = std::remove_cvref_t<decltype(*unit.at(first))>;
  using Columns = ResultColumns<T>;
  struct Run {
    float at[Columns::kNeighbours];
  };
  if (scales.data == nullptr) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first + own_row() + 8 * half;
    const bool scaled = row >= scales.first && row < end;
    const T* const y = scaled ? unit.at(row) + Columns::first(0) : nullptr;
    const auto read = [y, width](int run) {
      if (y == nullptr || !Columns::exists(run, width)) return Run{};
      const T* const from = y + run * Columns::kStep;
      if constexpr (std::is_same_v<T, bf16>) {
        const __nv_bfloat162 two = *reinterpret_cast<const __nv_bfloat162*>(from);
        return Run{{__low2float(two), __high2float(two)}};
      } else {
        const Group<float> a = read_group(from), b = read_group(from + 4);
        return Run{{a.at[0], a.at[1], a.at[2], a.at[3], b.at[0], b.at[1], b.at[2], b.at[3]}};
      }
    };
    float product = 0;
#pragma unroll
    for (int run = 0; run < H / Columns::kStep; ++run) {
      const Run ys = read(run);
#pragma unroll
      for (int j = Columns::kNeighbours - 1; j >= 0; --j)
        product = fmaf(Columns::at(sums, half, run, j), ys.at[j], product);
    }
    product = reduce_quad(product, Plus{});
    if (!scaled) continue;
    const float scale = scales.at(row);
#pragma unroll
    for (int run = 0; run < H / Columns::kStep; ++run) {
      const Run ys = read(run);
#pragma unroll
      for (int j = 0; j < Columns::kNeighbours; ++j) {
        float& sum = Columns::at(sums, half, run, j);
        sum = scale * fmaf(-ys.at[j], product, sum);
      }
    }
  }
}

inline TensorBackward tensor_backward(const AttentionBackwardArgs& args, const AttentionPartials& partials) {
  const AttentionArgs& forward = args.forward;
  return {args,
          partials,
          rows_aligned(args.dtype, forward.q, forward.q_strides),
          keys_aligned(forward),
          values_aligned(forward),
          rows_aligned(args.dtype, args.doutput, args.doutput_strides),
          {}};
}

// Turns the gradients of a thread's weights, queries in rows, into `outer` times the gradients of the scores. All: all
// pairs are seen and kept.
template <int N, bool All, class T>
__device__ void pair_gradients(const Head<T>& head, float outer, std::uint32_t seen, std::uint32_t kept,
                               const float (&log_sums)[2], const float (&deltas)[2],
                               const float (&scores)[N / 8][4], float (&dweights)[N / 8][4]) {
  const float factor = head.factor * kLog2OfE, keep_scale = outer * static_cast<float>(head.args.keep_scale);
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int half = e / 2;
      // A selection, not a branch: nvcc would put a branch around each exponential.
      const float keep = All || has(kept, 4 * n + e) ? keep_scale : 0.0f;
      const float p = fast_exp2(fmaf(scores[n][e], factor, -log_sums[half]));
      const float ds = p * fmaf(keep, dweights[n][e], -(outer * deltas[half]));
      // A query that sees all N keys of a tile sees more than one.
      dweights[n][e] = All || (has(seen, 4 * n + e) && deltas[half] != kNoGradient) ? ds : 0.0f;
    }
}
// Turns the gradients of weights into those of the scores. `shares` accumulates what the pairs add to dhead_scale /
// scale, if it is wanted; else the factor of the scores is in both terms of a gradient from the start.
template <int N, class T>
__device__ void score_gradients(const Head<T>& head, bool wants_shares, std::uint32_t seen,
                                std::uint32_t kept, const float (&log_sums)[2], const float (&deltas)[2],
                                const float (&scores)[N / 8][4], float (&dweights)[N / 8][4],
                                float (&shares)[2]) {
  const float outer = wants_shares ? 1.0f : head.factor;
  if (all_pairs(seen, kept))
    pair_gradients<N, true>(head, outer, seen, kept, log_sums, deltas, scores, dweights);
  else
    pair_gradients<N, false>(head, outer, seen, kept, log_sums, deltas, scores, dweights);
  if (!wants_shares) return;
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float ds = dweights[n][e];
      if (ds != 0.0f) shares[e / 2] += ds * scores[n][e];  // a pair that is not visible may have any score
      dweights[n][e] = head.factor * ds;
    }
}

// A query's delta as weights_and_gradients wants it: times its `outer`.
__device__ inline float scaled_delta(float outer, float delta) {
  return delta == kNoGradient ? kNoGradient : outer * delta;
}

// The same with keys in rows, without the shares, and the statistics of the N queries in shared memory, the deltas
// scaled: `scores` becomes the weights, without the factor of those that dropout keeps, and `dweights` becomes `outer`
// times the gradients of the scores.
template <int N, bool All, class T>
__device__ void pair_weights_and_gradients(const Head<T>& head, float outer, std::uint32_t seen,
                                           std::uint32_t kept, const float* log_sums, const float* deltas,
                                           float (&scores)[N / 8][4], float (&dweights)[N / 8][4]) {
  const float factor = head.factor * kLog2OfE, keep_scale = outer * static_cast<float>(head.args.keep_scale);
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = pair_column(4 * n + e);
      // A selection, not a branch: nvcc would put a branch around the loads, and each exponential would wait
      // for the one before.
      const bool is_seen = All || has(seen, 4 * n + e), is_kept = All || has(kept, 4 * n + e);
      const float log_sum = log_sums[column], delta = deltas[column];
      const float p = fast_exp2(fmaf(scores[n][e], factor, -log_sum));
      const float weight = is_seen && is_kept ? p : 0.0f;
      const float dscore = is_seen && (All || delta != kNoGradient)
                               ? p * fmaf(is_kept ? keep_scale : 0.0f, dweights[n][e], -delta)
                               : 0.0f;
      scores[n][e] = weight;
      dweights[n][e] = dscore;
    }
}
template <int N, class T>
__device__ void weights_and_gradients(const Head<T>& head, float outer, std::uint32_t seen,
                                      std::uint32_t kept, const float* log_sums, const float* deltas,
                                      float (&scores)[N / 8][4], float (&dweights)[N / 8][4]) {
  if (all_pairs(seen, kept))
    pair_weights_and_gradients<N, true>(head, outer, seen, kept, log_sums, deltas, scores, dweights);
  else
    pair_weights_and_gradients<N, false>(head, outer, seen, kept, log_sums, deltas, scores, dweights);
}

// Writes dq of a warp's queries from `first` on, and their shares of dhead_scale, where they are wanted.
// Changes dq.
template <int H, class T>
__device__ void store_query_gradients(const TensorBackward& launched, const Head<T>& head, std::int64_t first,
                                      float (&dq)[H / 8][4], const float (&shares)[2]) {
  const AttentionArgs& args = launched.args.forward;
  if (launched.args.dhead_scale != nullptr) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t query = first + own_row() + 8 * half;
      const float share = static_cast<float>(args.scale) * reduce_quad(shares[half], Plus{});
      if (own_column() == 0 && query < args.queries)
        launched.scratch(launched.partials.head_scales)[head.row_at(query)] = share;
    }
  }
  if (launched.args.dq == nullptr) return;
  through_unit_norm<H>(launched.queries(head), query_scales(launched.args, head.batch, head.head), first,
                       args.queries, static_cast<int>(args.head_size), dq);
  const AttentionStrides& to = launched.args.dq_strides;
  T* const start = static_cast<T*>(launched.args.dq) + head.batch * to.batch + head.head * to.head;
  store_tensor_rows<H>(dq, first, args.queries, static_cast<int>(args.head_size),
                       [start, &to](std::int64_t row) { return start + row * to.time; });
}

// Writes dk and dv of a warp's keys from `first` on, where they are wanted. Changes both.
template <class T, int H>
__device__ void store_key_gradients(const TensorBackward& launched, std::int64_t batch, std::int64_t kv_head,
                                    std::int64_t first, float (&dk)[H / 8][4], float (&dv)[H / 8][4]) {
  const AttentionArgs& args = launched.args.forward;
  const float keep_scale = static_cast<float>(args.keep_scale), kept[2] = {keep_scale, keep_scale};
  scale_rows(dv, kept);  // the weights were without it
  if (launched.args.dk != nullptr)
    through_unit_norm<H>(launched.keys(Head<T>(args, batch, kv_head * (args.heads / args.kv_heads))),
                         key_scales(launched.args, batch, kv_head), first, args.keys,
                         static_cast<int>(args.head_size), dk);
  const auto store = [&](const float(&sums)[H / 8][4], const KeyGradients<T>& to) {
    store_tensor_rows<H>(sums, first, args.keys, static_cast<int>(args.head_size),
                         [&to](std::int64_t row) { return to.at(row); });
  };
  store(dk, key_gradients<T>(launched.args, batch, kv_head));
  store(dv, value_gradients<T>(launched.args, batch, kv_head));
}

}  // namespace
}  // namespace eddy::cuda
