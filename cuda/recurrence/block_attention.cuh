// The attention of one head in a step of the block recurrences, and its gradient, each computed by a warp:
// over all keys that come before the block's rows, then over the block's own keys up to the query. A lane has
// the score of one key or one query; sums over keys go over them in order, with one lane for each number of
// the head.
//
// Only the logarithm of each query's sum of exponentials is saved (in the place of the unit recurrence's
// gate); scores are computed again. The warp that has a key sums its gradient over the queries in order.
#pragma once

#include "cuda/recurrence/unit_recurrence.cuh"
#include "cuda/recurrence/unit_recurrence_fused.h"

namespace eddy::cuda {

inline constexpr int kLongestBlock = 64, kWidestHead = 32;
inline constexpr int kLaneKeys = 2 * kLongestBlock / 32, kLaneQueries = kLongestBlock / 32;

// Returns how many rows each sequence has in a step.
__device__ inline int rows_of(const RecurrenceArgs& args, std::int64_t t) {
  return static_cast<int>(t + 1 < args.time ? args.block : args.last);
}

// Keys and values before a step's own, of one head of one sequence, and their gradients. Row t of each starts
// `stride` numbers after row t - 1.
struct Past {
  int rows;
  const float *key, *value;
  float *dkey, *dvalue;
  std::int64_t stride;
};

// Those of the previous block, for the block recurrence with forget.
__device__ inline Past past_of_state(const BlockForgetArgs& args, const Step& step, int sequence, int head) {
  if (step.t == 0) return {};
  const std::int64_t place = ((step.t - 1) * args.batch + std::int64_t{sequence} * args.block) * args.dim +
                             head * (args.dim / args.heads);
  const auto at = [&](const void* base) {
    return base == nullptr ? nullptr : const_cast<float*>(static_cast<const float*>(base)) + place;
  };
  return {
      static_cast<int>(args.block), at(args.key), at(args.value), at(args.dkey), at(args.dvalue), args.dim};
}

// One head of one sequence in a step.
struct Window {
  const Step& step;
  const Past past;
  float* dqkv;  // of this head, from the sequence's first row on; null in the forward pass
  int sequence, head, size, rows, unread;
  float scale;
  RandomKey key_of_draws;

  // dqkv_of_step: where the gradients of the step's rows start.
  __device__ Window(const Step& whole, int of_sequence, int of_head, const Past& before, float* dqkv_of_step)
      : step(whole),
        past(before),
        dqkv(dqkv_of_step),
        sequence(of_sequence),
        head(of_head),
        size(static_cast<int>(whole.args.dim / whole.args.heads)),
        rows(rows_of(whole.args, whole.t)),
        unread(whole.unread()),
        scale(1.0f / sqrtf(static_cast<float>(size))) {
    if (step.dropout.on) key_of_draws = resolved(step.block_key(0));
    if (dqkv != nullptr) dqkv += row(0) * 3 * step.args.dim + head * size;
  }

  // The number of row j of this sequence among the rows of all sequences.
  __device__ std::int64_t row(int j) const { return std::int64_t{sequence} * rows + j; }
  // q, kx or vx of row j (part 0, 1 or 2), and its gradient.
  __device__ const float* own(int j, int part) const {
    return step.at(step.args.qkv, row(j), 3 * step.args.dim) + part * step.args.dim + head * size;
  }
  __device__ float* own_gradient(int j, int part) const {
    return dqkv + (std::int64_t{3} * j + part) * step.args.dim;
  }
  // Key (part 1) or value (2) t of the window.
  __device__ const float* entry(int t, int part) const {
    if (t >= past.rows) return own(t - past.rows, part);
    return (part == 1 ? past.key : past.value) + t * past.stride;
  }
  // o of this step, stored as T, and do, which is in the scratch memory.
  template <class T>
  __device__ T* output(int j) const {
    return step.at<T>(step.args.o, row(j), step.args.dim) + head * size;
  }
  __device__ const float* doutput(int j) const {
    return step.working(static_cast<const float*>(step.args.scratch), row(j), step.args.dim) + head * size;
  }
  __device__ float* log_sum(int j) const { return step.at(step.args.gate, row(j), step.args.heads) + head; }

  __device__ float keep(int j, int t) const {
    if (!step.dropout.on) return 1.0f;
    const std::int64_t query =
        (std::int64_t{sequence} * step.args.heads + head) * (rows - unread) + j - unread;
    return step.keep(key_of_draws, query * (past.rows + rows) + t);
  }
  template <class T>
  __device__ float dot(const float* a, const T* b) const {
    float sum = 0;
    for (int i = 0; i < size; ++i) sum += a[i] * static_cast<float>(b[i]);
    return sum;
  }
  // A pair of query j and key t in the gradient: the probability after dropout, and the gradient of the score
  // q k.
  struct Pair {
    float mixed, dscore;
  };
  template <class T>
  __device__ Pair pair(int j, int t) const {
    const float p = expf(dot(own(j, 0), entry(t, 1)) * scale - *log_sum(j));
    const float kept = keep(j, t), *const dout = doutput(j);
    // The sum over keys of p times its gradient is do . o. Over one key the softmax is constant.
    const bool one = past.rows + j == 0;
    return {p * kept, one ? 0.0f : p * (kept * dot(dout, entry(t, 2)) - dot(dout, output<T>(j))) * scale};
  }
};

// Returns sum_n weight_n row(n)[lane] over n < count, for lanes below `size`; lane n % 32 has weight_n in
// weights[n / 32].
template <int Count, class Row>
__device__ float mix_rows(const float (&weights)[Count], int count, int size, Row&& row) {
  const int lane = Team<32>::lane();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Count; ++i)
    for (int n = 32 * i; n < min(count, 32 * (i + 1)); ++n) {
      const float weight = __shfl_sync(0xffffffffu, weights[i], n - 32 * i);
      if (lane < size) sum += weight * row(n)[lane];
    }
  return sum;
}

// Computes o and the logarithm of the sum of exponentials of query j. T, here and below: what o is stored as.
template <class T>
__device__ void attend(const Window& window, int j) {
  using Warp = Team<32>;
  const int visible = window.past.rows + j + 1, lane = Warp::lane();
  const float* const q = window.own(j, 0);
  float weights[kLaneKeys], largest = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kLaneKeys; ++i) {
    const int t = lane + 32 * i;
    weights[i] = t < visible ? window.dot(q, window.entry(t, 1)) * window.scale : -INFINITY;
    largest = weights[i] > largest || weights[i] != weights[i] ? weights[i] : largest;
  }
  largest = Warp::reduce(largest, NanMax{});
#pragma unroll
  for (int i = 0; i < kLaneKeys; ++i) {
    weights[i] = expf(weights[i] - largest);
    sum += weights[i];
  }
  sum = Warp::reduce(sum, Plus{});
#pragma unroll
  for (int i = 0; i < kLaneKeys; ++i)
    if (lane + 32 * i < visible) weights[i] = weights[i] / sum * window.keep(j, lane + 32 * i);
  const float o = mix_rows(weights, visible, window.size, [&](int t) { return window.entry(t, 2); });
  if (lane < window.size) window.output<T>(j)[lane] = static_cast<T>(o);
  if (lane == 0) *window.log_sum(j) = largest + logf(sum);
}

// Computes dq of query j.
template <class T>
__device__ void query_gradient(const Window& window, int j) {
  const int visible = window.past.rows + j + 1, lane = Team<32>::lane();
  float dscores[kLaneKeys] = {};
#pragma unroll
  for (int i = 0; i < kLaneKeys; ++i)
    if (lane + 32 * i < visible) dscores[i] = window.pair<T>(j, lane + 32 * i).dscore;
  const float dq = mix_rows(dscores, visible, window.size, [&](int t) { return window.entry(t, 1); });
  if (lane < window.size) window.own_gradient(j, 0)[lane] = dq;
}

// Computes the gradients of key t: dkx and dvx of its own row or, for a key before the block, added to its
// gradients.
template <class T>
__device__ void key_gradient(const Window& window, int t) {
  const Past& past = window.past;
  const int lane = Team<32>::lane(), first = t < past.rows ? 0 : t - past.rows;
  float mixed[kLaneQueries] = {}, dscores[kLaneQueries] = {};
#pragma unroll
  for (int i = 0; i < kLaneQueries; ++i) {
    const int j = lane + 32 * i;
    if (j < first || j >= window.rows) continue;
    const Window::Pair pair = window.pair<T>(j, t);
    mixed[i] = pair.mixed;
    dscores[i] = pair.dscore;
  }
  const float dk = mix_rows(dscores, window.rows, window.size, [&](int j) { return window.own(j, 0); }),
              dv = mix_rows(mixed, window.rows, window.size, [&](int j) { return window.doutput(j); });
  if (lane >= window.size) return;
  if (t >= past.rows) {
    window.own_gradient(t - past.rows, 1)[lane] = dk;
    window.own_gradient(t - past.rows, 2)[lane] = dv;
    return;
  }
  past.dkey[t * past.stride + lane] += dk;
  past.dvalue[t * past.stride + lane] += dv;
}

// Returns one head of one sequence in a block, for the block recurrence with forget.
__device__ inline Window window_of_state(const BlockForgetArgs& args, const Step& step, int sequence,
                                         int head) {
  float* const dqkv = args.dqkv == nullptr ? nullptr : step.at(args.dqkv, 0, 3 * args.dim);
  return {step, sequence, head, past_of_state(args, step, sequence, head), dqkv};
}

// ---- host

// Returns whether the kernels of this file support such blocks.
inline bool supports_blocks(const RecurrenceSupportQuery& query) {
  return query.spreads_output && query.block <= kLongestBlock && query.heads > 0 &&
         query.dim % query.heads == 0 && query.dim / query.heads <= kWidestHead;
}

}  // namespace eddy::cuda
