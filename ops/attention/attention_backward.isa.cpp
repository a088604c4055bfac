// CPU kernel of blocked attention, backward; attention_item.h describes work items and tiles. Work items
// write disjoint rows of the gradients of q, k and v. The gradients of the tables are summed in parts: one
// for each head of a work item, or for positions, which all heads share, one for each run of consecutive work
// items. The parts are added in a fixed order, so bits do not depend on the number of threads.
#include "ops/attention/attention.h"

#include <math.h>

#include "ops/attention/attention_narrow.h"
#include "ops/attention/attention_rounded.h"
#include "ops/attention/attention_row.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/vec_math.h"

namespace eddy::EDDY_ISA {
namespace {

// Where a work item accumulates the gradients of the tables; null if not wanted.
template <class T>
struct TableSums {
  T* head_scale;  // [group]
  T* bias;        // [group, bias_row]
  T* positions;   // [distances, row]
};

// The rows of a key tile: packed, with rows padded to whole vectors, or in place.
template <class F>
struct KeyRows {
  bool direct;  // neither keys nor values are packed for block_products
  const F* data;
  std::int64_t stride;
};

// Where a product of kRows rows goes: on tiles to the gradient itself, if it holds them all in whole vectors; else to
// scratch memory, from which it is copied.
template <class T>
struct Sums {
  T* to;
  std::int64_t stride;
  bool in_place;
};
template <class T, class P>
EDDY_INLINE Sums<T> sums_of(const Item<T, P>& item, const void* gradient, const AttentionStrides& strides,
                            std::int64_t time, std::int64_t head, bool all_rows, T* scratch) {
  if (P::kMovesAcross && gradient != nullptr && all_rows && item.args.head_size % kLanes<T> == 0)
    return {const_cast<T*>(item.at(gradient, strides, time, head)), strides.time, true};
  return {scratch, item.layout.row, false};
}
// The same for the gradients of kRows keys from `key` of a key tile on.
template <class T, class P>
EDDY_INLINE Sums<T> key_sums(const Item<T, P>& item, const void* gradient, const AttentionStrides& strides,
                             std::int64_t key_begin, std::int64_t key, std::int64_t scratch) {
  return sums_of(item, gradient, strides, key_begin + key, item.kv_head,
                 key_begin + key + P::kRows <= item.args.keys,
                 item.scratch + scratch + key * item.layout.row);
}

// Computes, with M = keep (1 if it is null):
//
//   P  = exp(scale score - log_sum)
//   ds = P (M dp - delta) factor
//   p  = P M
//
// On entry p holds the scores and ds holds dp. Elements up to whole vectors are overwritten with arbitrary
// values. `whole` says that these are all keys that the row sees. f64, the reference for all else, then
// avoids rounding errors that huge scores amplify: it divides P by its sum, since log_sum is accurate only to
// eps |score|, and computes delta from P. Where one probability is 1, M dp - delta is then exactly 0; with do
// . o, summed in another order, it would not be.
template <class T>
EDDY_INLINE void probability_gradients(T* __restrict p, T* __restrict ds, const T* __restrict keep,
                                       std::int64_t sees, T scale, T log_sum, T delta, T factor,
                                       [[maybe_unused]] bool whole) {
  if constexpr (sizeof(T) == 8) {
    if (whole) {
      T mass = T(0), mean = T(0);
      for (std::int64_t t = 0; t < sees; ++t) {
        p[t] = vec::exp(p[t] * scale - log_sum);
        mass += p[t];
      }
      for (std::int64_t t = 0; t < sees; ++t) {
        if (mass > T(0)) p[t] /= mass;  // a product with 1 / mass would miss 1
        if (keep != nullptr) ds[t] *= keep[t];
        mean += p[t] * ds[t];
      }
      for (std::int64_t t = 0; t < sees; ++t) {
        ds[t] = p[t] * (ds[t] - mean) * factor;
        if (keep != nullptr) p[t] *= keep[t];
      }
      return;
    }
  }
  if (keep == nullptr) {
    for (std::int64_t t = 0; t < sees; t += kLanes<T>)
      for (std::int64_t i = t; i < t + kLanes<T>; ++i) {
        const T e = vec::exp(p[i] * scale - log_sum);
        ds[i] = e * (ds[i] - delta) * factor;
        p[i] = e;
      }
  } else {
    for (std::int64_t t = 0; t < sees; t += kLanes<T>)
      for (std::int64_t i = t; i < t + kLanes<T>; ++i) {
        const T e = vec::exp(p[i] * scale - log_sum);
        ds[i] = e * (keep[i] * ds[i] - delta) * factor;
        p[i] = e * keep[i];
      }
  }
}

// Writes the rows of dscores shifted so that their columns are distances, with zeros elsewhere, as far as any
// product reads. If dscores is null, what the rows see is there already.
template <class T, class P>
EDDY_INLINE void skew_rows(const Item<T, P>& item, const TilePair& rows, const Skew& skew, const T* dscores,
                           T* skewed) {
  const AttentionScratch& at = item.layout;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    T* const to = skewed + r * at.skew_row;
    const std::int64_t shift = skew.base - r - skew.origin, width = up_to(P::kRows, skew.end - skew.origin);
    const std::int64_t begin = larger(0, smaller(width, shift + rows.see_begin[r]));
    const std::int64_t end = begin + (rows.see_end[r] - rows.see_begin[r]);
    zero_unseen(to, 0, begin, end, width);
    if (dscores == nullptr) continue;
    const T* const from = dscores + r * at.score_row;
    for (std::int64_t t = rows.see_begin[r]; t < rows.see_end[r]; ++t) to[shift + t] = from[t];
  }
}

// The backward of one query tile against one key tile. With P the probabilities, M the dropout factors,
// o = (P M) v, r = q . k + q . position + bias the raw score and s = scale head_scale its factor:
//
//   dv          = (P M)^T do
//   d(P M)      = do v^T
//   dP          = M d(P M)
//   dscore      = P (dP - rowsum(P dP))
//   dr          = s dscore
//   dq          = dr (k + position)
//   dk          = dr^T q
//   dbias       = dr, by distance
//   dposition   = dr^T q, by distance
//   dhead_scale = scale sum(dscore r)
//
// rowsum(P dP) = rowsum((P M) (do v^T)) = do . o, so no second pass over the keys is needed. has_sums says of which
// kRows keys the scratch has sums of gradients so far.
template <class T, class P>
void backward_tile(const Item<T, P>& item, const AttentionBackwardArgs& gradient, const TilePair& rows,
                   const KeyRows<typename P::Factor>& keys, const TableSums<T>& sums, bool* has_sums) {
  using F = typename P::Factor;
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  const std::int64_t key_begin = rows.key_begin;
  T* const scores = item.scratch + at.scores;
  T* const dscores = item.scratch + at.dscores;
  T* const skewed = item.scratch + at.skewed;
  const AttentionStrides strides = item.output_strides();
  // Factors: of products over head_size, of products over the rows, and gradients of scores for products
  // over keys and distances. Those that are not rounded are all the same. With kMovesAcross, factors across are not
  // where what they are made of is.
  constexpr bool kRounds = kInner<F> != 1, kMoves = kRounds && P::kMovesAcross;
  F *const q = item.factors_at(at.q), *const doutput = item.factors_at(at.doutput),
           *const q_across = item.factors_at(kRounds ? at.q_across : at.q),
           *const doutput_across = item.factors_at(kRounds ? at.doutput_across : at.doutput),
           *const p_across = item.factors_at(kMoves ? at.rounded : at.scores),
           *const ds_across = item.factors_at(kMoves ? at.scores : at.dscores),
           *const ds_along = item.factors_at(kRounds && !kMoves ? at.rounded : at.dscores),
           *const skewed_across = item.factors_at(kMoves ? at.rounded_skewed : at.skewed),
           *const skewed_along = item.factors_at(kRounds && !kMoves ? at.rounded_skewed : at.skewed);

  item.pack_query_side(args.q, args.q_strides, rows, q, q_across);
  item.pack_query_side(gradient.doutput, gradient.doutput_strides, rows, doutput, doutput_across);
  const Skew skew = item.call.has_tables() ? item.skew_of(rows) : Skew{};
  const std::int64_t group_head = rows.head[0] - item.kv_head * item.group;
  T* const dbias = sums.bias == nullptr ? nullptr : sums.bias + group_head * item.call.shared.bias_row;
  T* const dhead_scale = sums.head_scale == nullptr ? nullptr : sums.head_scale + group_head;
  RowIndex next{};  // of the row of the next tile that is being prefetched
  const auto prefetch = [&](std::int64_t r, std::int64_t tensor) __attribute__((always_inline)) {
    const std::int64_t row = rows.tile.first + r;
    const bool is_key = row < kAttentionKeyTile && key_begin + row < args.keys;
    switch (tensor) {
      case 0:
        next = item.query_index(row + P::kQueryTile);
        return item.prefetch(args.q, args.q_strides, next);
      case 1:
        return item.prefetch(args.output, strides, next);
      case 2:
        return item.prefetch(gradient.doutput, gradient.doutput_strides, next);
      case 3:
        return item.prefetch(gradient.dq, gradient.dq_strides, {item.batch, rows.query[r], rows.head[r]});
      case 4:
        return item.prefetch_next_keys(key_begin, row);
      case 5:
        if (is_key) item.prefetch(gradient.dk, gradient.dk_strides, item.key_index(key_begin + row));
        return;
      default:
        if (is_key) item.prefetch(gradient.dv, gradient.dv_strides, item.key_index(key_begin + row));
    }
  };
  if constexpr (kMoves) {
    RoundedGradients x;
    rounded_deltas(item, rows, gradient.doutput, gradient.doutput_strides, args.output, strides, x.delta);
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const T factor = item.call.factor(rows.head[r]);
      x.scale[r] = factor * kLog2E;
      x.log_sum[r] = *item.log_sum(rows.head[r], rows.query[r]) * kLog2E;
      x.factor[r] = item.call.sees_one(rows.query[r]) ? T(0) : factor;  // as below
    }
    x.q = q;
    x.doutput = doutput;
    x.keys_t = item.factors_at(at.keys_t);
    x.values_t = item.factors_at(at.values_t);
    x.p_across = p_across;
    x.dr_across = ds_across;
    x.dr_along = ds_along;
    x.bias = args.bias == nullptr ? nullptr : item.call.bias + rows.head[0] * item.call.shared.bias_row;
    x.dbias = dbias;
    x.relative = args.positions == nullptr ? nullptr : skewed;
    x.dhead_scale = dhead_scale;
    if (args.positions != nullptr) {
      item.relative_scores(rows, skew, q, skewed);
      skew_rows<T>(item, rows, skew, nullptr, skewed);
    }
    P::with_tiles([&]<class Tiles>(Tiles) { rounded_gradients<Tiles>(item, rows, skew, x, prefetch); });
  } else {
    // In a loop of its own, so that the reads of one row do not wait for the arithmetic of the row before.
    T deltas[P::kQueryTile];
    for (std::int64_t r = 0; r < rows.count; ++r)
      deltas[r] = dot(item.at(gradient.doutput, gradient.doutput_strides, rows.query[r], rows.head[r]),
                      item.at(args.output, strides, rows.query[r], rows.head[r]), args.head_size);
    item.raw_scores(rows, skew, q, keys.direct, scores);
    if (keys.direct)
      item.direct_products(rows, gradient.doutput, gradient.doutput_strides, args.v, args.v_strides, dscores);
    else
      item.block_products(rows.blocks, rows.block_begin, rows.block_end, doutput,
                          item.factors_at(at.values_t), dscores, at.score_row, 0);

    const bool whole = rows.tile.begin >= key_begin && rows.tile.end <= key_begin + kAttentionKeyTile;
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const std::int64_t sees = rows.see_end[r] - rows.see_begin[r];
      T* const p = scores + r * at.score_row + rows.see_begin[r];
      T* const ds = dscores + r * at.score_row + rows.see_begin[r];
      for (std::int64_t tensor = 0; tensor < kPrefetches; ++tensor) prefetch(r, tensor);
      if (sees > 0) {
        const T log_sum = *item.log_sum(rows.head[r], rows.query[r]);
        const T factor = item.call.factor(rows.head[r]);
        // Over one key the softmax is constant. Without this, rounding would leave a gradient.
        const bool one = item.call.sees_one(rows.query[r]);
        const T* const keep = args.drop_below == 0
                                  ? nullptr
                                  : keep_row(args.dropout_key, item.element(rows, r), sees, args.drop_below,
                                             static_cast<T>(args.keep_scale), item.scratch + at.keep);
        if (dhead_scale == nullptr) {
          probability_gradients(p, ds, keep, sees, factor, log_sum, deltas[r], one ? T(0) : factor, whole);
        } else {
          T* const raw_scores = item.scratch + at.raw_scores;
          for (std::int64_t t = 0; t < sees; ++t) raw_scores[t] = p[t];
          probability_gradients(p, ds, keep, sees, factor, log_sum, deltas[r], one ? T(0) : T(1), whole);
          *dhead_scale += dot(raw_scores, ds, sees);
          for (std::int64_t t = 0; t < sees; ++t) ds[t] *= factor;
        }
        if (dbias != nullptr) add_to(dbias + skew.base - r + rows.see_begin[r], ds, sees);
      }
      for (T* unseen : {scores, dscores})
        zero_unseen(unseen + r * at.score_row, rows.begin, rows.see_begin[r], rows.see_end[r], rows.end);
    }
    if (args.positions != nullptr) skew_rows(item, rows, skew, dscores, skewed);
    if constexpr (kRounds) {
      item.round_across(scores, at.score_row, rows, rows.begin, rows.end, p_across);
      item.round_along(dscores, at.score_row, rows, rows.begin, rows.end, ds_along);
      item.round_across(dscores, at.score_row, rows, rows.begin, rows.end, ds_across);
    }
  }
  if constexpr (kRounds)
    if (args.positions != nullptr) {
      const std::int64_t width = up_to(P::kRows, skew.end - skew.origin);
      if (kMoves) item.round_across(skewed, at.skew_row, rows, 0, width, skewed_across);
      item.round_along(skewed, at.skew_row, rows, 0, width, skewed_along);
      if (!kMoves) item.round_across(skewed, at.skew_row, rows, 0, width, skewed_across);
    }

  // kRows keys at a time, with the rows from the first to the last that sees one of them.
  for (std::int64_t key = rows.begin, from = 0, to = 0; key < rows.end; key += P::kRows) {
    while (rows.see_end[from] <= key) ++from;
    while (to < rows.count && rows.see_begin[to] < key + P::kRows) ++to;
    const std::int64_t first = inner_begin<P>(from), inner = inner_size<P>(to) - first,
                       row = down_to(P::kStep, from);
    const bool adds = has_sums[key / P::kRows];
    has_sums[key / P::kRows] = true;
    const Sums<T> dv = key_sums(item, gradient.dv, gradient.dv_strides, key_begin, key, at.dvalues),
                  dk = key_sums(item, gradient.dk, gradient.dk_strides, key_begin, key, at.dkeys);
    P::product_across(inner, args.head_size, P::across(p_across, row, key, at.score_row), at.score_row,
                      doutput_across + first * at.row, at.row, dv.to, dv.stride, adds);
    P::product_across(inner, args.head_size, P::across(ds_across, row, key, at.score_row), at.score_row,
                      q_across + first * at.row, at.row, dk.to, dk.stride, adds);
  }
  // The same for columns of the table, from the last one down: the rows that use them then come in order.
  if (sums.positions != nullptr)
    for (std::int64_t column = down_to(P::kRows, skew.end - skew.origin - 1), from = 0, to = 0; column >= 0;
         column -= P::kRows) {
      const std::int64_t key = column + skew.origin - skew.base;  // of row 0
      while (to < rows.count && rows.see_end[to] > key + to) ++to;
      while (from < to && rows.see_begin[from] >= key + from + P::kRows) ++from;
      const std::int64_t first = inner_begin<P>(from), row = down_to(P::kStep, from);
      if (from < to)
        P::product_across(inner_size<P>(to) - first, args.head_size,
                          P::across(skewed_across, row, column, at.skew_row), at.skew_row,
                          q_across + first * at.row, at.row, sums.positions + (skew.origin + column) * at.row,
                          at.row, true);
    }

  if (gradient.dq == nullptr) return;
  const bool first = rows.tile.begin >= key_begin;
  for (std::int64_t b = 0; b < rows.blocks; ++b) {
    const std::int64_t begin = inner_begin<P>(rows.block_begin[b]), row = b * P::kRows,
                       end = smaller(rows.count, row + P::kRows);
    const Sums<T> dq =
        sums_of(item, gradient.dq, gradient.dq_strides, rows.query[row], rows.head[row],
                row + P::kRows == end && rows.head[row] == rows.head[end - 1], item.scratch + at.output);
    P::product(inner_size<P>(rows.block_end[b]) - begin, args.head_size,
               ds_along + row * at.score_row + begin, at.score_row, keys.data + begin * keys.stride,
               keys.stride, dq.to, dq.stride, dq.in_place && !first);
    if (args.positions != nullptr) {
      const std::int64_t column = inner_begin<P>(skew.block_begin[b]);
      P::product(inner_size<P>(skew.block_end[b]) - column, args.head_size,
                 skewed_along + row * at.skew_row + (column - skew.origin / kInner<F>), at.skew_row,
                 item.call.positions + column * at.row, at.row, dq.to, dq.stride, true);
    }
    if (dq.in_place) continue;
    for (std::int64_t r = row; r < end; ++r) {
      T* to = const_cast<T*>(item.at(gradient.dq, gradient.dq_strides, rows.query[r], rows.head[r]));
      const T* from = dq.to + (r - row) * at.row;
      if (first)
        for (std::int64_t i = 0; i < args.head_size; ++i) to[i] = from[i];
      else
        for (std::int64_t i = 0; i < args.head_size; ++i) to[i] += from[i];
    }
  }
}

// Zeros the gradient of queries that see no key.
template <class T, class P>
void backward_nothing(const Item<T, P>& item, const AttentionBackwardArgs& gradient, const QueryTile& tile) {
  if (gradient.dq == nullptr) return;
  for (std::int64_t row = tile.first; row < tile.first + tile.count; ++row) {
    T* const dq =
        const_cast<T*>(item.at(gradient.dq, gradient.dq_strides, row % item.args.queries, item.head_of(row)));
    for (std::int64_t i = 0; i < item.args.head_size; ++i) dq[i] = T(0);
  }
}

// A work item of a single row: its keys' gradients have one contribution each and are written at once.
template <class T>
void backward_row(const Item<T, RegisterProducts<T, T>>& item, const AttentionBackwardArgs& gradient,
                  T* dpositions) {
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  const std::int64_t size = args.head_size, head = item.kv_head;
  const std::int64_t begin = smaller(item.call.see_begin(0), args.keys),
                     end = larger(begin, item.call.see_end(0));
  const T* const q = item.at(args.q, args.q_strides, 0, head);
  const T* const doutput = item.at(gradient.doutput, gradient.doutput_strides, 0, head);
  T *const p = item.scratch + at.scores, *const ds = item.scratch + at.dscores,
           *const dq = item.scratch + at.output;
  const T delta = dot(doutput, item.at(args.output, item.output_strides(), 0, head), size);
  const T log_sum = *item.log_sum(head, 0), scale = item.call.factor(head),
          factor = item.call.sees_one(0) ? T(0) : scale;  // as in backward_tile
  for (std::int64_t i = 0; i < size; ++i) dq[i] = T(0);

  // row t of a gradient = weights[t] times `row`; without weights, zeros.
  const auto write = [&](void* base, const AttentionStrides& to_strides, std::int64_t first,
                         std::int64_t count, const T* weights, const T* row) {
    if (base == nullptr) return;
    T* to = const_cast<T*>(item.at(base, to_strides, first, head));
    for (std::int64_t t = 0; t < count; ++t, to += to_strides.time)
      for (std::int64_t i = 0; i < size; ++i) to[i] = weights == nullptr ? T(0) : weights[t] * row[i];
  };
  for (const auto& [first, last] : {std::pair{std::int64_t{0}, begin}, std::pair{end, args.keys}}) {
    write(gradient.dk, gradient.dk_strides, first, last - first, nullptr, nullptr);
    write(gradient.dv, gradient.dv_strides, first, last - first, nullptr, nullptr);
  }
  for (std::int64_t key = begin; key < end; key += kAttentionKeyTile) {
    const std::int64_t count = smaller(end - key, kAttentionKeyTile);
    const RowRun<T> keys = keys_from(item, key);
    row_dots(q, keys, size, count, p);
    row_dots(doutput, values_from(item, key), size, count, ds);
    const T* const keep = args.drop_below == 0
                              ? nullptr
                              : keep_row(args.dropout_key, item.element(key), count, args.drop_below,
                                         static_cast<T>(args.keep_scale), item.scratch + at.keep);
    probability_gradients(p, ds, keep, count, scale, log_sum, delta, factor, count == end - begin);
    write(gradient.dk, gradient.dk_strides, key, count, ds, q);
    write(gradient.dv, gradient.dv_strides, key, count, p, doutput);
    if (gradient.dq != nullptr) row_mix(ds, keys, size, count, dq);
    if (dpositions == nullptr) continue;
    T* to = dpositions + (args.distances - 1 - (item.call.offset - key)) * at.row;
    for (std::int64_t t = 0; t < count; ++t, to += at.row)
      for (std::int64_t i = 0; i < size; ++i) to[i] += ds[t] * q[i];
  }
  if (gradient.dq == nullptr) return;
  T* const to = const_cast<T*>(item.at(gradient.dq, gradient.dq_strides, 0, head));
  for (std::int64_t i = 0; i < size; ++i) to[i] = dq[i];
}

template <class T, class P>
void backward_item(const Item<T, P>& item, const AttentionBackwardArgs& gradient, const TableSums<T>& sums) {
  using F = typename P::Factor;
  if constexpr (kInner<F> == 1)
    if (has_single_rows(item.call)) return backward_row(item, gradient, sums.positions);
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  const bool direct = kInner<F> == 1 && item.rows() < P::kRows;
  const bool keys_in_place = direct && args.head_size % kLanes<T> == 0;
  for (std::int64_t key_begin = 0; key_begin < args.keys; key_begin += kAttentionKeyTile) {
    const std::int64_t key_count = smaller(args.keys - key_begin, kAttentionKeyTile);
    const T* keys = item.at(args.k, args.k_strides, key_begin, item.kv_head);
    const T* values = item.at(args.v, args.v_strides, key_begin, item.kv_head);
    bool has_sums[kAttentionKeyTile / attention_tile::kRows + 1] = {};  // of kRows keys
    bool packed = false;
    for (QueryTile tile = item.tile_at(0, item.rows()); tile.count > 0;
         tile = item.tile_at(tile.first + tile.count, item.rows())) {
      if (tile.sees_nothing() && key_begin == 0) backward_nothing(item, gradient, tile);
      if (!tile.overlaps(key_begin, key_count)) continue;
      if (!packed) {
        if (!direct) {
          pack_transposed(keys, args.k_strides.time, key_count, args.head_size, inner_size<P>(args.head_size),
                          item.factors_at(at.keys_t));
          pack_transposed(values, args.v_strides.time, key_count, args.head_size,
                          inner_size<P>(args.head_size), item.factors_at(at.values_t));
        }
        if (!keys_in_place)
          pack_rows(keys, args.k_strides.time, key_count, args.head_size, inner_size<P>(key_count),
                    item.factors_at(at.keys), at.row);
        packed = true;
      }
      const KeyRows<F> key_rows =
          keys_in_place ? KeyRows<F>{direct, reinterpret_cast<const F*>(keys), args.k_strides.time}
                        : KeyRows<F>{direct, item.factors_at(at.keys), at.row};
      backward_tile(item, gradient, item.rows_of(tile, key_begin, key_count), key_rows, sums, has_sums);
    }
    const auto write = [&](void* base, const AttentionStrides& strides, std::int64_t part) {
      if (base == nullptr) return;
      for (std::int64_t key = 0; key < key_count; key += P::kRows) {
        const bool has = has_sums[key / P::kRows];
        if (has && key_sums(item, base, strides, key_begin, key, part).in_place) continue;
        for (std::int64_t t = key; t < smaller(key_count, key + P::kRows); ++t) {
          T* to = const_cast<T*>(item.at(base, strides, key_begin + t, item.kv_head));
          const T* from = item.scratch + part + t * at.row;
          if (has)
            for (std::int64_t i = 0; i < args.head_size; ++i) to[i] = from[i];
          else
            for (std::int64_t i = 0; i < args.head_size; ++i) to[i] = T(0);
        }
      }
    };
    write(gradient.dk, gradient.dk_strides, at.dkeys);
    write(gradient.dv, gradient.dv_strides, at.dvalues);
  }
}

// Adds up the parts of the tables' gradients.
template <class T, class P>
void write_tables(const Call<T, P>& call, const AttentionBackwardArgs& gradient) {
  const AttentionArgs& args = call.args;
  const AttentionShared& at = call.shared;
  const T* const parts = static_cast<const T*>(args.scratch);
  if (gradient.dhead_scale != nullptr)
    for (std::int64_t h = 0; h < args.heads; ++h) {
      T sum = T(0);
      for (std::int64_t b = 0; b < args.batch; ++b) sum += parts[at.dhead_scale + b * args.heads + h];
      T& to = static_cast<T*>(gradient.dhead_scale)[h];
      const T before =
          gradient.head_scale_beta == 0.0f ? T(0) : static_cast<T>(gradient.head_scale_beta) * to;
      to = before + sum * static_cast<T>(args.scale);
    }
  if (gradient.dbias != nullptr)
    for (std::int64_t h = 0; h < args.heads; ++h) {
      T* const to = static_cast<T*>(gradient.dbias) + h * gradient.dbias_stride;
      for (std::int64_t c = 0; c < args.distances; ++c) {
        T sum = T(0);
        for (std::int64_t b = 0; b < args.batch; ++b)
          sum += parts[at.dbias + (b * args.heads + h) * at.bias_row + c];
        to[args.distances - 1 - c] += sum;
      }
    }
  if (gradient.dpositions == nullptr) return;
  parallel_for(args.distances, larger(1, 65536 / call.layout.row / at.position_sums),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t c = begin; c < end; ++c) {
                   T* const to = static_cast<T*>(gradient.dpositions) +
                                 (args.distances - 1 - c) * gradient.dpositions_stride;
                   const T* const from = parts + at.dpositions + c * call.layout.row;
                   for (std::int64_t part = 0; part < at.position_sums; ++part)
                     add_to(to, from + part * at.dpositions_part, args.head_size);
                 }
               });
}

template <class T, class P>
void backward_in(const AttentionBackwardArgs& gradient) {
  const AttentionArgs& args = gradient.forward;
  const Call<T, P> call(args, &gradient);
  const AttentionShared& at = call.shared;
  T* const parts = static_cast<T*>(args.scratch);
  const std::int64_t items = args.batch * args.kv_heads;
  const std::int64_t runs = gradient.dpositions != nullptr ? at.position_sums : items;
  for_each_item(args.threads, runs, [&](int rank, std::int64_t run) {
    TableSums<T> sums{};
    if (gradient.dpositions != nullptr) {
      sums.positions = parts + at.dpositions + run * at.dpositions_part;
      for (std::int64_t i = 0; i < at.dpositions_part; ++i) sums.positions[i] = T(0);
    }
    const std::int64_t end = (run + 1) * items / runs;
    for (std::int64_t index = run * items / runs; index < end; ++index) {
      const std::int64_t head = index * call.group;  // batch * heads + the first head of the work item
      if (gradient.dhead_scale != nullptr) {
        sums.head_scale = parts + at.dhead_scale + head;
        for (std::int64_t i = 0; i < call.group; ++i) sums.head_scale[i] = T(0);
      }
      if (gradient.dbias != nullptr) {
        sums.bias = parts + at.dbias + head * at.bias_row;
        for (std::int64_t i = 0; i < call.group * at.bias_row; ++i) sums.bias[i] = T(0);
      }
      P::begin();
      backward_item(Item<T, P>(call, rank, index, index + 1 < end ? index + 1 : index + args.threads),
                    gradient, sums);
      P::end();
    }
  });
  write_tables(call, gradient);
}

template <class T>
void backward(const AttentionBackwardArgs& gradient) {
#if defined(__AVX512F__)
  if (has_narrow_heads(gradient.forward))
    return with_narrow_size(gradient.forward, [&](auto size) { narrow_backward_of<size()>(gradient); });
#endif
  with_products<T>(gradient.forward, [&]<class P>(P) { backward_in<T, P>(gradient); });
}

}  // namespace

EDDY_CPU_KERNEL(attention_backward, backward)

}  // namespace eddy::EDDY_ISA
