// The attention of one head in a step of block accumulate, and its gradient, each computed by a warp:
// over all keys that come before the block's rows, then over the block's own keys up to the query. A lane has
// the score of one key or one query; sums over keys go over them in order, with one lane for each number of
// the head.
//
// Only the logarithm of each query's sum of exponentials is saved (in the place of the unit recurrence's
// gate); scores are computed again. The warp that has a key sums its gradient over the queries in order.
#pragma once

#include "cuda/recurrence/group_product.cuh"
#include "cuda/recurrence/unit_recurrence.cuh"
#include "ops/recurrence/block_accumulate.h"

namespace eddy::cuda {

inline constexpr int kLongestBlock = 64, kWidestHead = 32;
inline constexpr int kLaneKeys = 2 * kLongestBlock / 32;

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
  int stride;
};

// One head of one sequence in a step. Its arrays start at the sequence's first row and the head's first number, so that
// 32 bits number what is in them. T: what o is stored as.
template <class T>
struct Window {
  const Step& step;
  const Past past;
  int dim, heads, size, rows;
  const float* qkv;
  float* dqkv;  // null in the forward pass
  T* o;
  const float* dout;  // in the scratch memory
  float* log_sums;
  float scale;
  RandomKey key_of_draws;
  std::int64_t first_draw;  // of the first query, in units of queries

  // dqkv_of_step: where the gradients of the step's rows start.
  __device__ Window(const Step& whole, int sequence, int head, const Past& before, float* dqkv_of_step)
      : step(whole),
        past(before),
        dim(static_cast<int>(whole.args.dim)),
        heads(static_cast<int>(whole.args.heads)),
        size(dim / heads),
        rows(rows_of(whole.args, whole.t)),
        scale(1.0f / sqrtf(static_cast<float>(size))) {
    const RecurrenceArgs& args = step.args;
    const int first = sequence * rows, column = head * size;
    qkv = step.at(args.qkv, first, 3 * dim) + column;
    dqkv = dqkv_of_step == nullptr ? nullptr : dqkv_of_step + std::int64_t{first} * (3 * dim) + column;
    o = step.at<T>(args.o, first, dim) + column;
    dout = step.working(static_cast<const float*>(args.scratch), first, dim) + column;
    log_sums = step.at(args.gate, first, heads) + head;
    if (!step.dropout.on) return;
    key_of_draws = resolved(step.block_key(0));
    const int unread = step.unread();
    first_draw = (std::int64_t{sequence} * heads + head) * (rows - unread) - unread;
  }

  // q, kx or vx of row j (part 0, 1 or 2), and its gradient.
  __device__ const float* own(int j, int part) const { return qkv + (3 * j + part) * dim; }
  __device__ float* own_gradient(int j, int part) const { return dqkv + (3 * j + part) * dim; }
  // Key (part 1) or value (2) t of the window.
  __device__ const float* entry(int t, int part) const {
    if (t >= past.rows) return own(t - past.rows, part);
    return (part == 1 ? past.key : past.value) + t * past.stride;
  }
  __device__ T* output(int j) const { return o + j * dim; }
  __device__ const float* doutput(int j) const { return dout + j * dim; }
  __device__ float* log_sum(int j) const { return log_sums + j * heads; }

  __device__ float keep(int j, int t) const {
    if (!step.dropout.on) return 1.0f;
    return step.keep(key_of_draws, (first_draw + j) * (past.rows + rows) + t);
  }
  template <class Other>
  __device__ float dot(const float* a, const Other* b) const {
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < size; ++i) sum += a[i] * static_cast<float>(b[i]);
    return sum;
  }
  // A pair of query j and key t in the gradient: the probability after dropout, and the gradient of the score
  // q k.
  struct Pair {
    float mixed, dscore;
  };
  __device__ Pair pair(int j, int t) const {
    const float p = expf(dot(own(j, 0), entry(t, 1)) * scale - *log_sum(j));
    const float kept = keep(j, t), *const dout_of_j = doutput(j);
    // The sum over keys of p times its gradient is do . o. Over one key the softmax is constant.
    const bool one = past.rows + j == 0;
    return {p * kept,
            one ? 0.0f : p * (kept * dot(dout_of_j, entry(t, 2)) - dot(dout_of_j, output(j))) * scale};
  }
};

// The loops below go over 32 keys or queries at a time, and are not unrolled: the dot products of a pair are long, and
// an instruction cache holds some 128 KB.

// Returns sum + sum_n weight_n row(n)[lane] over first <= n < end, at most 32 of them, for lanes below `size`; lane
// n - first has weight_n.
template <class Row>
__device__ float add_rows(float sum, float weight, int first, int end, int size, Row&& row) {
  const int lane = Team<32>::lane(), column = min(lane, size - 1);
  for (int n = first; n < min(end, first + 32); ++n)
    sum += __shfl_sync(0xffffffffu, weight, n - first) * row(n)[column];
  return sum;
}

// Computes o and the logarithm of the sum of exponentials of query j.
template <class T>
__device__ void attend(const Window<T>& window, int j) {
  using Warp = Team<32>;
  const int visible = window.past.rows + j + 1, lane = Warp::lane();
  const float* const q = window.own(j, 0);
  float weights[kLaneKeys], largest = -INFINITY, sum = 0;
#pragma unroll
  for (float& weight : weights) weight = -INFINITY;
#pragma unroll 1
  for (int first = 0; first < visible; first += 32) {
    const int t = first + lane;
    const float score = t < visible ? window.dot(q, window.entry(t, 1)) * window.scale : -INFINITY;
#pragma unroll
    for (int i = 0; i < kLaneKeys; ++i)  // not weights[first / 32], which would be a table in local memory
      if (first == 32 * i) weights[i] = score;
    largest = score > largest || score != score ? score : largest;
  }
  largest = Warp::reduce(largest, NanMax{});
#pragma unroll
  for (int i = 0; i < kLaneKeys; ++i) {
    weights[i] = expf(weights[i] - largest);
    sum += weights[i];
  }
  sum = Warp::reduce(sum, Plus{});
  float o = 0;
#pragma unroll 1
  for (int first = 0; first < visible; first += 32) {
    const int t = first + lane;
    float weight = 0;
#pragma unroll
    for (int i = 0; i < kLaneKeys; ++i)
      if (first == 32 * i) weight = weights[i];
    if (t < visible) weight = weight / sum * window.keep(j, t);
    o = add_rows(o, weight, first, visible, window.size, [&](int n) { return window.entry(n, 2); });
  }
  if (lane < window.size) window.output(j)[lane] = static_cast<T>(o);
  if (lane == 0) *window.log_sum(j) = largest + logf(sum);
}

// Computes dq of query j.
template <class T>
__device__ void query_gradient(const Window<T>& window, int j) {
  const int visible = window.past.rows + j + 1, lane = Team<32>::lane();
  float dq = 0;
#pragma unroll 1
  for (int first = 0; first < visible; first += 32) {
    const int t = first + lane;
    const float dscore = t < visible ? window.pair(j, t).dscore : 0.0f;
    dq = add_rows(dq, dscore, first, visible, window.size, [&](int n) { return window.entry(n, 1); });
  }
  if (lane < window.size) window.own_gradient(j, 0)[lane] = dq;
}

// Computes the gradients of key t: dkx and dvx of its own row or, for a key before the block, added to its
// gradients.
template <class T>
__device__ void key_gradient(const Window<T>& window, int t) {
  const Past& past = window.past;
  const int lane = Team<32>::lane(), rows = window.rows;
  float dk = 0, dv = 0;
#pragma unroll 1
  for (int first = t < past.rows ? 0 : t - past.rows; first < rows; first += 32) {
    const int j = first + lane;
    typename Window<T>::Pair pair{0, 0};
    if (j < rows) pair = window.pair(j, t);
    dk = add_rows(dk, pair.dscore, first, rows, window.size, [&](int n) { return window.own(n, 0); });
    dv = add_rows(dv, pair.mixed, first, rows, window.size, [&](int n) { return window.doutput(n); });
  }
  if (lane >= window.size) return;
  if (t >= past.rows) {
    window.own_gradient(t - past.rows, 1)[lane] = dk;
    window.own_gradient(t - past.rows, 2)[lane] = dv;
    return;
  }
  past.dkey[t * past.stride + lane] += dk;
  past.dvalue[t * past.stride + lane] += dv;
}

// The gradients of a step's queries, and of its keys and values and those of the block before, from do; by a warp for
// each head of a row. `window_of(sequence, head)` gives the window. The rows of the block before come second: the warp
// that has a key adds to what it wrote.
template <class T, class WindowOf>
__device__ void attention_gradients(Worker<T>& worker, const Step& step, bool has_past,
                                    WindowOf&& window_of) {
  const int heads = static_cast<int>(step.args.heads);
#pragma unroll 1
  for (int before = 0; before <= (has_past ? 1 : 0); ++before) {
    const int rows = before != 0 ? static_cast<int>(step.args.block) : rows_of(step.args, step.t);
    worker.start_step(rows);
    worker.for_each_item(worker.begin * heads, worker.end * heads, [&](int item) {
      const int row = item / heads, j = row % rows;
      const Window<T> window = window_of(row / rows, item % heads);
      if (before == 0) query_gradient(window, j);
      key_gradient(window, before != 0 ? j : window.past.rows + j);
    });
  }
}

// ---- host

// Returns whether the kernels of this file support such blocks.
inline bool supports_blocks(const RecurrenceSupportQuery& query) {
  return query.spreads_output && query.block <= kLongestBlock && query.heads > 0 &&
         query.dim % query.heads == 0 && query.dim / query.heads <= kWidestHead;
}

}  // namespace eddy::cuda
