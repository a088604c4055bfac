// The attention of one head in a step of block accumulate, and its gradient, each computed by a warp:
// over all keys that come before the block's rows, then over the block's own keys up to the query. A lane has
// the score of one key or one query.
//
// Rows of a head are read by teams of lanes (HeadTeam), 16 bytes to a lane: heads of 16 by 4 lanes, 8 rows at once. A
// lane that read the row of its own key or query would be thousands of bytes from the next one, and every load of a
// warp 32 accesses to the cache for 4 bytes each, where that of the teams is 8 for 64 bytes each. A dot product: a lane
// adds its four products in order, then the lanes of a team are added by a butterfly. A sum over rows: a team has every
// 8th row (for heads of 16) in order, then the teams are added by a butterfly. So the bits depend on the sizes alone.
//
// Only the logarithm of each query's sum of exponentials is saved (in the place of the unit recurrence's
// gate); scores are computed again. The warp that has a key sums its gradient over the queries in order.
#pragma once

#include "cuda/recurrence/fours.cuh"
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

// Keys and values before a step's own, of one head of one sequence, and their gradients, in rows that are as far apart
// as the step's own.
struct Past {
  int rows;
  const float *key, *value;
  float *dkey, *dvalue;
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
    // A selection and not a branch, since a warp reads several rows at once: where row 0 is, or would be.
    const float* const first = part == 1 ? past.key : past.value;
    return (t >= past.rows ? qkv + (part - 3 * past.rows) * dim : first) + 3 * t * dim;
  }
  __device__ T* output(int j) const { return o + j * dim; }
  __device__ const float* doutput(int j) const { return dout + j * dim; }
  __device__ float* log_sum(int j) const { return log_sums + j * heads; }

  __device__ float keep(int j, int t) const {
    if (!step.dropout.on) return 1.0f;
    return step.keep(key_of_draws, (first_draw + j) * (past.rows + rows) + t);
  }
  // Returns the probability of query j and key t before dropout, of the product q k.
  __device__ float probability(int j, float product) const { return expf(product * scale - *log_sum(j)); }
  // Returns the gradient of the score q k from the probability, its gradient after dropout, and do . o, which is the
  // sum over keys of the probability times its gradient. Over one key the softmax is constant.
  __device__ float dscore(int j, float p, float dmixed, float dout_o) const {
    return past.rows + j == 0 ? 0.0f : p * (dmixed - dout_o) * scale;
  }
};

// How a warp reads rows of a head.
struct RowsOfHead {
  HeadTeam team;
  int at_once, own;  // rows that are read together, and which of them this lane reads
  int column;        // the first of its numbers there
  bool there;        // it has numbers of the head

  __device__ explicit RowsOfHead(int size) {
    const int lane = Team<32>::lane();
    team.lanes = HeadTeam::lanes_for(size);
    team.lane = lane % team.lanes;
    team.size = size;
    at_once = 32 / team.lanes;
    own = lane / team.lanes;
    there = 4 * team.lane < size;
    column = there ? 4 * team.lane : 0;
  }
  template <class Number>
  __device__ Fours read(const Number* row) const {
    const Neighbours<Number, 4> stored = *reinterpret_cast<const Neighbours<Number, 4>*>(row + column);
    Fours four;
#pragma unroll
    for (int e = 0; e < 4; ++e) four.at[e] = static_cast<float>(stored.at[e]);
    return four;
  }

  // Returns a(n) . b(n) to lane n, for the first 32 of the rows n < count, at least one. All lanes must call it.
  template <class A, class B>
  __device__ float products(int count, A&& a, B&& b) const {
    float of_team = 0;  // of the team's row of which the lane has the number
#pragma unroll 1
    for (int first = 0; first < team.lanes; first += kAtOnce) {
      Fours x[kAtOnce], y[kAtOnce];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {  // a row that is not there is read as the last one
        const int n = min((first + s) * at_once + own, count - 1);
        x[s] = read(a(n));
        y[s] = read(b(n));
      }
      float sums[kAtOnce];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        sums[s] = 0;
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[s] = fmaf(x[s].at[e], y[s].at[e], sums[s]);
        if (!there) sums[s] = 0;
      }
#pragma unroll 1
      for (int distance = team.lanes / 2; distance > 0; distance /= 2)
#pragma unroll
        for (float& sum : sums) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s)
        if (team.lane == first + s) of_team = sums[s];
    }
    const int lane = Team<32>::lane();
    return __shfl_sync(0xffffffffu, of_team, lane % at_once * team.lanes + lane / at_once);
  }
  // Adds weight_n row(n) to `sums` for the team's share of the first 32 of the rows n < count; lane n has weight_n.
  // add_teams then makes the sum over all. All lanes must call both.
  template <class Row>
  __device__ void add_rows(Fours& sums, float weight, int count, Row&& row) const {
#pragma unroll 1
    for (int first = 0; first < team.lanes; first += kAtOnce) {
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        const int n = (first + s) * at_once + own;  // 32 and more where fewer reads have all rows
        const Fours numbers = read(row(min(n, count - 1)));
        const float of_row = __shfl_sync(0xffffffffu, weight, n);
        if (n < min(count, 32))
#pragma unroll
          for (int e = 0; e < 4; ++e) sums.at[e] = fmaf(of_row, numbers.at[e], sums.at[e]);
      }
    }
  }
  __device__ void add_teams(Fours& sums) const {
#pragma unroll 1
    for (int distance = team.lanes; distance < 32; distance *= 2)
#pragma unroll
      for (float& sum : sums.at) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  // Whether this lane stores a sum: its four numbers, from `column` on.
  __device__ bool stores() const {
    return own == 0 && there;
  }

 private:
  static constexpr int kAtOnce = 4;  // reads in flight: all rows of 32, for heads of up to 16
};

// The loops below go over 32 keys or queries at a time, and are not unrolled: the dot products of a pair are long, and
// an instruction cache holds some 128 KB.

// Computes o and the logarithm of the sum of exponentials of query j.
template <class T>
__device__ void attend(const Window<T>& window, int j) {
  using Warp = Team<32>;
  const int visible = window.past.rows + j + 1, lane = Warp::lane();
  const RowsOfHead by(window.size);
  const float* const q = window.own(j, 0);
  float weights[kLaneKeys], largest = -INFINITY, sum = 0;
#pragma unroll
  for (float& weight : weights) weight = -INFINITY;
#pragma unroll 1
  for (int first = 0; first < visible; first += 32) {
    const float product = by.products(
        visible - first, [&](int) { return q; }, [&](int n) { return window.entry(first + n, 1); });
    const float score = first + lane < visible ? product * window.scale : -INFINITY;
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
  Fours o{};
#pragma unroll 1
  for (int first = 0; first < visible; first += 32) {
    const int t = first + lane;
    float weight = 0;
#pragma unroll
    for (int i = 0; i < kLaneKeys; ++i)
      if (first == 32 * i) weight = weights[i];
    if (t < visible) weight = weight / sum * window.keep(j, t);
    by.add_rows(o, weight, visible - first, [&](int n) { return window.entry(first + n, 2); });
  }
  by.add_teams(o);
  if (by.stores()) write_fours<true>(window.output(j) + by.column, o, 4);
  if (lane == 0) *window.log_sum(j) = largest + logf(sum);
}

// Computes dq of query j.
template <class T>
__device__ void query_gradient(const Window<T>& window, int j) {
  using Warp = Team<32>;
  const int visible = window.past.rows + j + 1, lane = Warp::lane();
  const RowsOfHead by(window.size);
  const float *const q = window.own(j, 0), *const dout = window.doutput(j);
  const T* const output = window.output(j);
  const float dout_o =
      Warp::reduce(lane < window.size ? dout[lane] * static_cast<float>(output[lane]) : 0.0f, Plus{});
  Fours dq{};
#pragma unroll 1
  for (int first = 0; first < visible; first += 32) {
    const int t = first + lane, count = visible - first;
    const float product = by.products(
        count, [&](int) { return q; }, [&](int n) { return window.entry(first + n, 1); });
    const float dmixed = by.products(
        count, [&](int) { return dout; }, [&](int n) { return window.entry(first + n, 2); });
    const float dscore =
        t < visible ? window.dscore(j, window.probability(j, product), window.keep(j, t) * dmixed, dout_o)
                    : 0.0f;
    by.add_rows(dq, dscore, count, [&](int n) { return window.entry(first + n, 1); });
  }
  by.add_teams(dq);
  if (by.stores()) write_fours<true>(window.own_gradient(j, 0) + by.column, dq, 4);
}

// Computes the gradients of key t: dkx and dvx of its own row or, for a key before the block, added to its
// gradients.
template <class T>
__device__ void key_gradient(const Window<T>& window, int t) {
  const Past& past = window.past;
  const int lane = Team<32>::lane(), rows = window.rows;
  const RowsOfHead by(window.size);
  const float *const key = window.entry(t, 1), *const value = window.entry(t, 2);
  Fours dk{}, dv{};
#pragma unroll 1
  for (int first = t < past.rows ? 0 : t - past.rows; first < rows; first += 32) {
    const int j = first + lane, count = rows - first;
    const auto query = [&](int n) { return window.own(first + n, 0); };
    const auto dout = [&](int n) { return window.doutput(first + n); };
    const float product = by.products(
        count, [&](int) { return key; }, query);
    const float dmixed = by.products(
        count, [&](int) { return value; }, dout);
    const float dout_o = by.products(
        count, [&](int n) { return window.output(first + n); }, dout);
    float mixed = 0, dscore = 0;
    if (j < rows) {
      const float p = window.probability(j, product), kept = window.keep(j, t);
      mixed = p * kept;
      dscore = window.dscore(j, p, kept * dmixed, dout_o);
    }
    by.add_rows(dk, dscore, count, query);
    by.add_rows(dv, mixed, count, dout);
  }
  by.add_teams(dk);
  by.add_teams(dv);
  if (!by.stores()) return;
  const auto add = [&](float* to, Fours sums) {
    const Fours before = read_fours<true>(to + by.column, 4);
#pragma unroll
    for (int e = 0; e < 4; ++e) sums.at[e] += before.at[e];
    write_fours<true>(to + by.column, sums, 4);
  };
  if (t >= past.rows) {
    write_fours<true>(window.own_gradient(t - past.rows, 1) + by.column, dk, 4);
    write_fours<true>(window.own_gradient(t - past.rows, 2) + by.column, dv, 4);
    return;
  }
  add(past.dkey + 3 * t * window.dim, dk);
  add(past.dvalue + 3 * t * window.dim, dv);
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
         query.dim % query.heads == 0 && query.dim / query.heads <= kWidestHead &&
         query.dim / query.heads % 4 == 0;
}

}  // namespace eddy::cuda
