// CPU kernels of blocked attention. A work item is one key head of one batch entry; the query rows of all
// heads that share it form one list of `group * queries` rows, cut into tiles of kAttentionQueryTile. Keys
// are taken in tiles of kAttentionKeyTile, the outer loop: a key tile is packed once and stays in L2 while
// all query tiles meet it. Work items write disjoint rows, so the bits depend on no thread count. Causal
// masks are applied to six rows at a time: what none of the six sees is not computed.
// Rows of one head lie a whole projection apart, usually on different pages, where the processor foresees
// nothing: while one tile is worked on, the rows that it will write and that the next one reads are
// prefetched (16 sequences, 6 heads, 256 steps, head_size 64, causal, forward and backward on one Emerald
// Rapids core: 84 GFLOP/s without, 104 with).
#include "ops/attention.h"

#include <math.h>

#include "ops/cpu/attention_tile.h"
#include "ops/cpu/vec_math.h"
#include "tensor/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

using namespace attention_tile;

EDDY_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
EDDY_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

// Up to kAttentionQueryTile rows of a work item, against one key tile.
struct Rows {
  std::int64_t first = 0;    // place in the work item's list
  std::int64_t count = 0;    // rows in use
  std::int64_t blocks = 0;   // of kRows rows; the last one may be padded
  std::int64_t limit = 0;    // keys that some row sees, from key 0
  std::int64_t visible = 0;  // keys of this tile that some row sees
  std::int64_t head[kAttentionQueryTile];
  std::int64_t query[kAttentionQueryTile];
  std::int64_t sees[kAttentionQueryTile];                // keys of this tile that a row sees
  std::int64_t block_sees[kAttentionQueryTile / kRows];  // the most of a block's rows
};

// Where a row of a [batch, time, head, head_size] tensor is.
struct Place {
  std::int64_t batch, time, head;
};

// A work item's place, and the scratch of the thread that runs it.
template <class T>
struct Item {
  const AttentionArgs& args;
  AttentionScratch layout;
  T* scratch;
  std::int64_t batch, kv_head, group;
  std::int64_t next_batch, next_kv_head;  // of the work item that this thread is likely to run next

  Item(const AttentionArgs& a, int rank, std::int64_t index, std::int64_t next)
      : args(a),
        layout(attention_scratch(a.head_size)),
        scratch(static_cast<T*>(a.scratch) + rank * layout.elements),
        batch(index / a.kv_heads),
        kv_head(index % a.kv_heads),
        group(a.heads / a.kv_heads),
        next_batch(next / a.kv_heads),
        next_kv_head(next % a.kv_heads) {}

  std::int64_t rows() const { return group * args.queries; }
  // Rows of [batch, time, head, head_size] tensors.
  const T* at(const void* base, const AttentionStrides& s, std::int64_t time, std::int64_t head) const {
    return static_cast<const T*>(base) + batch * s.batch + time * s.time + head * s.head;
  }
  AttentionStrides output_strides() const {
    return {args.queries * args.heads * args.head_size, args.heads * args.head_size, args.head_size};
  }
  T* log_sum(const Rows& rows, std::int64_t r) const {
    return static_cast<T*>(args.log_sum) + (batch * args.heads + rows.head[r]) * args.queries + rows.query[r];
  }
  // The number of a probability in the stream of dropout draws.
  std::uint64_t element(const Rows& rows, std::int64_t r, std::int64_t key) const {
    return static_cast<std::uint64_t>(
        ((batch * args.heads + rows.head[r]) * args.queries + rows.query[r]) * args.keys + key);
  }

  Rows rows_of(std::int64_t first, std::int64_t end, std::int64_t key_begin, std::int64_t key_count) const {
    Rows rows;
    rows.first = first;
    rows.count = smaller(end - first, kAttentionQueryTile);
    rows.blocks = (rows.count + kRows - 1) / kRows;
    for (std::int64_t b = 0; b < rows.blocks; ++b) rows.block_sees[b] = 0;
    std::int64_t head = kv_head * group + first / args.queries, query = first % args.queries;
    for (std::int64_t r = 0; r < rows.count; ++r) {
      rows.head[r] = head;
      rows.query[r] = query;
      if (++query == args.queries) {
        query = 0;
        ++head;
      }
      const std::int64_t limit =
          args.causal ? larger(0, smaller(args.keys, rows.query[r] + 1 + args.keys - args.queries))
                      : args.keys;
      rows.limit = larger(rows.limit, limit);
      rows.sees[r] = larger(0, smaller(key_count, limit - key_begin));
      rows.block_sees[r / kRows] = larger(rows.block_sees[r / kRows], rows.sees[r]);
      rows.visible = larger(rows.visible, rows.sees[r]);
    }
    return rows;
  }

  // The places of row `row` of the list and of key `key`; those past the end are of the next work item.
  Place query_place(std::int64_t row) const {
    const bool beyond = row >= rows();
    if (beyond) row -= rows();
    if (row >= rows()) return {args.batch, 0, 0};
    return {beyond ? next_batch : batch, row % args.queries,
            (beyond ? next_kv_head : kv_head) * group + row / args.queries};
  }
  Place key_place(std::int64_t key) const {
    const bool beyond = key >= args.keys;
    if (beyond) key -= args.keys;
    if (key >= args.keys) return {args.batch, 0, 0};
    return {beyond ? next_batch : batch, key, beyond ? next_kv_head : kv_head};
  }
  // Always inline, both: GCC takes a function that only prefetches for one without effect and drops its
  // calls.
  __attribute__((always_inline)) void prefetch(const void* base, const AttentionStrides& s,
                                               const Place& place) const {
    if (base != nullptr && place.batch < args.batch)
      prefetch_row(
          static_cast<const T*>(base) + place.batch * s.batch + place.time * s.time + place.head * s.head,
          args.head_size);
  }
  // The keys that follow the key tile at `key_begin`, one for each row of the list that meets the tile.
  __attribute__((always_inline)) void prefetch_next_keys(std::int64_t key_begin, std::int64_t row) const {
    if (row >= kAttentionKeyTile) return;
    const Place next = key_place(smaller(args.keys, key_begin + kAttentionKeyTile) + row);
    prefetch(args.k, args.k_strides, next);
    prefetch(args.v, args.v_strides, next);
  }

  // Copies the rows of a query-side tensor into `packed`; padding rows are zeros.
  void pack_query_side(const void* base, const AttentionStrides& strides, const Rows& rows, T* packed) const {
    for (std::int64_t r = 0; r < rows.count; ++r)
      pack_rows(at(base, strides, rows.query[r], rows.head[r]), 0, 1, args.head_size, packed + r * layout.row,
                layout.row);
    for (std::int64_t i = rows.count * layout.row; i < rows.blocks * kRows * layout.row; ++i)
      packed[i] = T(0);
  }

  // scores = left right^T for the keys that each block of rows sees; right_t is packed by pack_transposed.
  void score_tile(const Rows& rows, const T* left, const T* right_t, T* scores) const {
    for (std::int64_t panel = 0; panel < rows.visible; panel += kPanel<T>)
      for (std::int64_t b = 0; b < rows.blocks; ++b) {
        const std::int64_t columns = smaller(rows.block_sees[b] - panel, kPanel<T>);
        if (columns > 0)
          product<false>(args.head_size, columns, left + b * kRows * layout.row, layout.row,
                         right_t + panel * args.head_size, kPanel<T>,
                         scores + b * kRows * layout.score_row + panel, layout.score_row, false);
      }
  }
};

// Zeros what a row of a score tile holds past the keys it sees, as far as any product of this tile reads.
template <class T>
EDDY_INLINE void zero_unseen(T* row, std::int64_t sees, std::int64_t visible) {
  const std::int64_t end = visible + kRows;
  for (std::int64_t t = sees; t < end; ++t) row[t] = T(0);
}

// The largest scaled score of a row that sees at least one key. Fills the row up to whole vectors with a
// score of its own.
template <class T>
EDDY_INLINE T scaled_maximum(T* row, std::int64_t sees, T scale) {
  using Loose = typename Vector<T>::loose;
  typename Vector<T>::type best = typename Vector<T>::type{} + row[0] * scale;
  for (std::int64_t t = sees; t % kLanes<T> != 0; ++t) row[t] = row[0];
  for (std::int64_t t = 0; t < sees; t += kLanes<T>) {
    const typename Vector<T>::type here = *reinterpret_cast<const Loose*>(row + t) * scale;
    best = here > best ? here : best;
  }
  return fold<T>(best, [](auto x, auto y) { return x > y ? x : y; });
}

// Turns a row of scores into exponentials relative to `maximum`, with zeros up to whole vectors. Returns
// their sum.
template <class T>
EDDY_INLINE T exponentials(T* row, std::int64_t sees, T scale, T maximum) {
  using Loose = typename Vector<T>::loose;
  const std::int64_t end = (sees + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  for (std::int64_t t = 0; t < end; t += kLanes<T>)
    for (int lane = 0; lane < kLanes<T>; ++lane) row[t + lane] = vec::exp(row[t + lane] * scale - maximum);
  for (std::int64_t t = sees; t < end; ++t) row[t] = T(0);
  typename Vector<T>::type sum{};
  for (std::int64_t t = 0; t < end; t += kLanes<T>) sum += *reinterpret_cast<const Loose*>(row + t);
  return fold<T>(sum, [](auto x, auto y) { return x + y; });
}

// One query tile against one key tile. Between key tiles a row's sum so far lies in the output, unnormalised,
// its maximum in log_sum and its sum of exponentials in `sums`.
template <class T>
void forward_tile(const Item<T>& item, const Rows& rows, std::int64_t key_begin, std::int64_t key_count,
                  const T* values, std::int64_t value_stride, bool direct, T* sums) {
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  const T scale = static_cast<T>(args.scale);
  T* const q = item.scratch + at.q;
  T* const scores = item.scratch + at.scores;
  T* const output = item.scratch + at.output;
  const bool first = key_begin == 0, last = rows.limit <= key_begin + key_count;
  const AttentionStrides strides = item.output_strides();

  item.pack_query_side(args.q, args.q_strides, rows, q);
  if (direct) {
    const T* keys = item.at(args.k, args.k_strides, key_begin, item.kv_head);
    for (std::int64_t t = 0; t < rows.visible; ++t)
      for (std::int64_t r = 0; r < rows.count; ++r)
        scores[r * at.score_row + t] = dot(q + r * at.row, keys + t * args.k_strides.time, args.head_size);
    for (std::int64_t r = rows.count; r < rows.blocks * kRows; ++r)
      zero_unseen(scores + r * at.score_row, 0, rows.visible);
  } else {
    item.score_tile(rows, q, item.scratch + at.keys_t, scores);
  }

  T correction[kAttentionQueryTile];
  for (std::int64_t r = 0; r < rows.count; ++r) {
    item.prefetch(args.output, strides, item.query_place(rows.first + r));
    if (!direct) {
      item.prefetch(args.q, args.q_strides, item.query_place(rows.first + r + kAttentionQueryTile));
      item.prefetch_next_keys(key_begin, rows.first + r);
    }
    T* const row = scores + r * at.score_row;
    T* const maximum = item.log_sum(rows, r);
    if (first) {
      *maximum = -static_cast<T>(INFINITY);
      sums[r] = T(0);
    }
    correction[r] = T(1);
    if (rows.sees[r] > 0) {
      const T here = scaled_maximum(row, rows.sees[r], scale);
      if (first) {
        *maximum = here;
      } else if (here > *maximum) {
        correction[r] = vec::exp(*maximum - here);
        *maximum = here;
      }
      sums[r] = sums[r] * correction[r] + exponentials(row, rows.sees[r], scale, *maximum);
      if (args.drop_below > 0) {
        const T* keep = keep_row(args.dropout_key, item.element(rows, r, key_begin), rows.sees[r],
                                 args.drop_below, static_cast<T>(args.keep_scale), item.scratch + at.keep);
        for (std::int64_t t = 0; t < rows.sees[r]; ++t) row[t] *= keep[t];
      }
    }
    zero_unseen(row, rows.sees[r], rows.visible);
  }

  if (!first)
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const T* so_far = item.at(args.output, strides, rows.query[r], rows.head[r]);
      for (std::int64_t i = 0; i < args.head_size; ++i) output[r * at.row + i] = so_far[i] * correction[r];
    }
  for (std::int64_t b = 0; b < rows.blocks; ++b)
    product<false>(rows.block_sees[b], args.head_size, scores + b * kRows * at.score_row, at.score_row,
                   values, value_stride, output + b * kRows * at.row, at.row, !first);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    T* y = const_cast<T*>(item.at(args.output, strides, rows.query[r], rows.head[r]));
    const T factor = !last ? T(1) : sums[r] == T(0) ? T(0) : T(1) / sums[r];
    for (std::int64_t i = 0; i < args.head_size; ++i) y[i] = output[r * at.row + i] * factor;
    if (last && sums[r] != T(0)) *item.log_sum(rows, r) += vec::log(sums[r]);
  }
}

template <class T>
void forward_item(const Item<T>& item, std::int64_t first_row, std::int64_t end_row) {
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  T* const sums = item.scratch + at.sums;
  // With fewer rows than a register tile, packing would cost more than the products: read the keys where they
  // are.
  const bool direct = end_row - first_row < kRows;
  const bool values_in_place = direct && args.head_size % kLanes<T> == 0;
  for (std::int64_t key_begin = 0; key_begin < args.keys; key_begin += kAttentionKeyTile) {
    const std::int64_t key_count = smaller(args.keys - key_begin, kAttentionKeyTile);
    const T* values = item.at(args.v, args.v_strides, key_begin, item.kv_head);
    bool packed = false;
    for (std::int64_t row = first_row; row < end_row; row += kAttentionQueryTile) {
      const Rows rows = item.rows_of(row, end_row, key_begin, key_count);
      if (key_begin > 0 && rows.visible == 0) continue;
      if (!packed) {
        if (!direct)
          pack_transposed(item.at(args.k, args.k_strides, key_begin, item.kv_head), args.k_strides.time,
                          key_count, args.head_size, item.scratch + at.keys_t);
        if (!values_in_place)
          pack_rows(values, args.v_strides.time, key_count, args.head_size, item.scratch + at.values, at.row);
        packed = true;
      }
      forward_tile(item, rows, key_begin, key_count, values_in_place ? values : item.scratch + at.values,
                   values_in_place ? args.v_strides.time : at.row, direct, sums + (row - first_row));
    }
  }
}

// The backward of one query tile against one key tile. With P the probabilities, M the dropout factors and o
// = (P M) v:
//   dv = (P M)^T do,  d(P M) = do v^T,  dP = M d(P M),
//   ds = P (dP - rowsum(P dP)) and rowsum(P dP) = rowsum((P M) (do v^T)) = do . o, so no second pass over the
//   keys is due; dq = scale ds k,  dk = scale ds^T q.
template <class T>
void backward_tile(const Item<T>& item, const AttentionBackwardArgs& gradient, const Rows& rows,
                   std::int64_t key_begin) {
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  const T scale = static_cast<T>(args.scale);
  T* const q = item.scratch + at.q;
  T* const doutput = item.scratch + at.doutput;
  T* const scores = item.scratch + at.scores;
  T* const dscores = item.scratch + at.dscores;
  const AttentionStrides strides = item.output_strides();

  item.pack_query_side(args.q, args.q_strides, rows, q);
  item.pack_query_side(gradient.doutput, strides, rows, doutput);
  // In a loop of its own, so that the reads of one row do not wait for the arithmetic of the row before.
  T deltas[kAttentionQueryTile];
  for (std::int64_t r = 0; r < rows.count; ++r)
    deltas[r] =
        dot(doutput + r * at.row, item.at(args.output, strides, rows.query[r], rows.head[r]), args.head_size);
  item.score_tile(rows, q, item.scratch + at.keys_t, scores);
  item.score_tile(rows, doutput, item.scratch + at.values_t, dscores);

  for (std::int64_t r = 0; r < rows.count; ++r) {
    T* const p = scores + r * at.score_row;
    T* const ds = dscores + r * at.score_row;
    const std::int64_t sees = rows.sees[r], row = rows.first + r;
    const Place next = item.query_place(row + kAttentionQueryTile);
    item.prefetch(args.q, args.q_strides, next);
    item.prefetch(args.output, strides, next);
    item.prefetch(gradient.doutput, strides, next);
    item.prefetch(gradient.dq, gradient.dq_strides, item.query_place(row));
    item.prefetch_next_keys(key_begin, row);
    if (row < kAttentionKeyTile && key_begin + row < args.keys) {
      item.prefetch(gradient.dk, gradient.dk_strides, item.key_place(key_begin + row));
      item.prefetch(gradient.dv, gradient.dv_strides, item.key_place(key_begin + row));
    }
    if (sees > 0) {
      const T log_sum = *item.log_sum(rows, r), delta = deltas[r];
      if (args.drop_below > 0) {
        const T* keep = keep_row(args.dropout_key, item.element(rows, r, key_begin), sees, args.drop_below,
                                 static_cast<T>(args.keep_scale), item.scratch + at.keep);
        for (std::int64_t t = 0; t < sees; ++t) {
          const T e = vec::exp(p[t] * scale - log_sum);
          ds[t] = e * (keep[t] * ds[t] - delta) * scale;
          p[t] = e * keep[t];
        }
      } else {
        for (std::int64_t t = 0; t < sees; ++t) {
          const T e = vec::exp(p[t] * scale - log_sum);
          ds[t] = e * (ds[t] - delta) * scale;
          p[t] = e;
        }
      }
    }
    zero_unseen(p, sees, rows.visible);
    zero_unseen(ds, sees, rows.visible);
  }

  // Keys kRows at a time, from the first row that sees one of them on.
  std::int64_t from = 0;
  for (std::int64_t key = 0; key < rows.visible; key += kRows) {
    while (rows.sees[from] <= key) ++from;
    const std::int64_t inner = rows.count - from;
    product<true>(inner, args.head_size, scores + from * at.score_row + key, at.score_row,
                  doutput + from * at.row, at.row, item.scratch + at.dvalues + key * at.row, at.row, true);
    product<true>(inner, args.head_size, dscores + from * at.score_row + key, at.score_row, q + from * at.row,
                  at.row, item.scratch + at.dkeys + key * at.row, at.row, true);
  }

  if (gradient.dq == nullptr) return;
  T* const dq = item.scratch + at.output;
  for (std::int64_t b = 0; b < rows.blocks; ++b)
    product<false>(rows.block_sees[b], args.head_size, dscores + b * kRows * at.score_row, at.score_row,
                   item.scratch + at.keys, at.row, dq + b * kRows * at.row, at.row, false);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    T* to = const_cast<T*>(item.at(gradient.dq, gradient.dq_strides, rows.query[r], rows.head[r]));
    const T* from_row = dq + r * at.row;
    if (key_begin == 0)
      for (std::int64_t i = 0; i < args.head_size; ++i) to[i] = from_row[i];
    else
      for (std::int64_t i = 0; i < args.head_size; ++i) to[i] += from_row[i];
  }
}

template <class T>
void backward_item(const Item<T>& item, const AttentionBackwardArgs& gradient) {
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  for (std::int64_t key_begin = 0; key_begin < args.keys; key_begin += kAttentionKeyTile) {
    const std::int64_t key_count = smaller(args.keys - key_begin, kAttentionKeyTile);
    const T* keys = item.at(args.k, args.k_strides, key_begin, item.kv_head);
    const T* values = item.at(args.v, args.v_strides, key_begin, item.kv_head);
    pack_transposed(keys, args.k_strides.time, key_count, args.head_size, item.scratch + at.keys_t);
    pack_transposed(values, args.v_strides.time, key_count, args.head_size, item.scratch + at.values_t);
    pack_rows(keys, args.k_strides.time, key_count, args.head_size, item.scratch + at.keys, at.row);
    for (std::int64_t i = 0; i < (key_count + kRows) * at.row; ++i) item.scratch[at.dkeys + i] = T(0);
    for (std::int64_t i = 0; i < (key_count + kRows) * at.row; ++i) item.scratch[at.dvalues + i] = T(0);
    for (std::int64_t row = 0; row < item.rows(); row += kAttentionQueryTile) {
      const Rows rows = item.rows_of(row, item.rows(), key_begin, key_count);
      if (key_begin == 0 || rows.visible > 0) backward_tile(item, gradient, rows, key_begin);
    }
    const auto write = [&](void* base, const AttentionStrides& strides, const T* from) {
      if (base == nullptr) return;
      T* to = const_cast<T*>(item.at(base, strides, key_begin, item.kv_head));
      for (std::int64_t t = 0; t < key_count; ++t)
        for (std::int64_t i = 0; i < args.head_size; ++i) to[t * strides.time + i] = from[t * at.row + i];
    };
    write(gradient.dk, gradient.dk_strides, item.scratch + at.dkeys);
    write(gradient.dv, gradient.dv_strides, item.scratch + at.dvalues);
  }
}

// Runs body(rank, index) for every index below count, on up to `threads` threads, each with a rank of its
// own.
template <class Body>
EDDY_INLINE void for_each_item(int threads, std::int64_t count, Body&& body) {
  std::int64_t next = 0;
  parallel_team(threads, [&](int rank, int, TeamBarrier&) {
    for (;;) {
      const std::int64_t index = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
      if (index >= count) return;
      body(rank, index);
    }
  });
}

template <class T>
void forward(const AttentionArgs& args) {
  const std::int64_t rows = args.heads / args.kv_heads * args.queries;
  const std::int64_t chunks = (rows + kAttentionForwardRows - 1) / kAttentionForwardRows;
  for_each_item(args.threads, args.batch * args.kv_heads * chunks, [&](int rank, std::int64_t index) {
    const std::int64_t first = index % chunks * kAttentionForwardRows;
    forward_item(Item<T>(args, rank, index / chunks, (index + args.threads) / chunks), first,
                 smaller(rows, first + kAttentionForwardRows));
  });
}

template <class T>
void backward(const AttentionBackwardArgs& gradient) {
  const AttentionArgs& args = gradient.forward;
  for_each_item(args.threads, args.batch * args.kv_heads, [&](int rank, std::int64_t index) {
    backward_item(Item<T>(args, rank, index, index + args.threads), gradient);
  });
}

}  // namespace

void install_attention();
void install_attention() {
  attention_forward_slot.function[0] = [](const AttentionArgs& args) {
    args.dtype == Dtype::f32 ? forward<float>(args) : forward<double>(args);
  };
  attention_backward_slot.function[0] = [](const AttentionBackwardArgs& args) {
    args.forward.dtype == Dtype::f32 ? backward<float>(args) : backward<double>(args);
  };
}

}  // namespace eddy::EDDY_ISA
