// What the backward attention kernels on tensor cores share: their argument and how it is read.
#pragma once

#include "cuda/attention/attention_tensor_core.cuh"
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
  __device__ Rows queries(const Head<bf16>& head) const {
    return {{head.queries(), args.forward.q_strides.time}, q_aligned};
  }
  __device__ RowsOfKeys keys(const Head<bf16>& head) const { return {head.keys(), k_aligned}; }
  __device__ RowsOfKeys values(const Head<bf16>& head) const { return {head.values(), v_aligned}; }
  __device__ Rows doutputs(const Head<bf16>& head) const {
    return {{head.doutputs(args), args.doutput_strides.time}, doutput_aligned};
  }
  // Reads a query's log_sum, in units of log 2, and delta; zeros past the last query.
  __device__ void statistics(const Head<bf16>& head, std::int64_t query, float& log_sum, float& delta) const {
    log_sum = delta = 0;
    if (query >= args.forward.queries) return;
    const std::int64_t at = head.row_at(query);
    log_sum = static_cast<const float*>(args.forward.log_sum)[at] * kLog2OfE;
    delta = scratch(partials.deltas)[at];
  }
};

inline TensorBackward tensor_backward(const AttentionBackwardArgs& args, const AttentionPartials& partials) {
  const AttentionArgs& forward = args.forward;
  return {args,
          partials,
          rows_aligned(forward.q, forward.q_strides),
          keys_aligned(forward),
          values_aligned(forward),
          rows_aligned(args.doutput, args.doutput_strides),
          {}};
}

// Turns the scores of a thread's pairs, queries in rows, into the gradients of these scores. `shares`
// accumulates what the pairs add to dhead_scale / scale.
template <int N>
__device__ void score_gradients(const Head<bf16>& head, std::uint32_t seen, std::uint32_t kept,
                                const float (&log_sums)[2], const float (&deltas)[2],
                                const float (&dweights)[N / 8][4], float (&scores)[N / 8][4],
                                float (&shares)[2]) {
  const float factor = head.factor * kLog2OfE, keep_scale = static_cast<float>(head.args.keep_scale);
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int half = e / 2;
      const float score = scores[n][e];
      float ds = 0;
      if (has(seen, 4 * n + e)) {
        const float p = fast_exp2(score * factor - log_sums[half]);
        ds = p * ((has(kept, 4 * n + e) ? keep_scale * dweights[n][e] : 0.0f) - deltas[half]);
        shares[half] += ds * score;
      }
      scores[n][e] = head.factor * ds;
    }
}

// The same with keys in rows and the statistics of the N queries in shared memory: `scores` becomes the
// weights, with dropout, and `dweights` the gradients of the scores.
template <int N>
__device__ void weights_and_gradients(const Head<bf16>& head, std::uint32_t seen, std::uint32_t kept,
                                      const float* log_sums, const float* deltas, float (&scores)[N / 8][4],
                                      float (&dweights)[N / 8][4]) {
  const float factor = head.factor * kLog2OfE, keep_scale = static_cast<float>(head.args.keep_scale);
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = pair_column(4 * n + e);
      // A selection, not a branch: nvcc would put a branch around the loads, and each exponential would wait
      // for the one before.
      const bool is_seen = has(seen, 4 * n + e);
      const float log_sum = log_sums[column], delta = deltas[column];
      const float p = fast_exp2(scores[n][e] * factor - log_sum);
      const float keep = has(kept, 4 * n + e) ? keep_scale : 0.0f;
      const float weight = is_seen ? p * keep : 0.0f;
      const float dscore = is_seen ? head.factor * p * (keep * dweights[n][e] - delta) : 0.0f;
      scores[n][e] = weight;
      dweights[n][e] = dscore;
    }
}

// Writes dq of a warp's queries from `first` on, and their shares of dhead_scale, where they are wanted.
template <int H>
__device__ void store_query_gradients(const TensorBackward& launched, const Head<bf16>& head,
                                      std::int64_t first, const float (&dq)[H / 8][4],
                                      const float (&shares)[2]) {
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
  const AttentionStrides& to = launched.args.dq_strides;
  bf16* const start = static_cast<bf16*>(launched.args.dq) + head.batch * to.batch + head.head * to.head;
  store_tensor_rows<H>(dq, first, args.queries, static_cast<int>(args.head_size),
                       [start, &to](std::int64_t row) { return start + row * to.time; });
}

// Writes dk and dv of a warp's keys from `first` on, where they are wanted.
template <int H>
__device__ void store_key_gradients(const TensorBackward& launched, std::int64_t batch, std::int64_t kv_head,
                                    std::int64_t first, const float (&dk)[H / 8][4],
                                    const float (&dv)[H / 8][4]) {
  const AttentionArgs& args = launched.args.forward;
  const auto store = [&](const float(&sums)[H / 8][4], const KeyGradients<bf16>& to) {
    store_tensor_rows<H>(sums, first, args.keys, static_cast<int>(args.head_size),
                         [&to](std::int64_t row) { return to.at(row); });
  };
  store(dk, key_gradients<bf16>(launched.args, batch, kv_head));
  store(dv, value_gradients<bf16>(launched.args, batch, kv_head));
}

}  // namespace
}  // namespace eddy::cuda
