// CPU kernel of blocked attention, forward; attention_item.h describes work items and tiles. Work items write
// disjoint rows, so bits do not depend on the number of threads. Rows of one head lie a whole projection
// apart, usually on different pages, where the hardware prefetcher does not help: while one tile is computed,
// the rows that it will write and that the next one reads are prefetched (16 sequences, 6 heads, 256 steps,
// head_size 64, causal, forward and backward on one Emerald Rapids core: 84 GFLOP/s without, 104 with).
#include "ops/attention/attention.h"

#include <math.h>

#include "ops/attention/attention_narrow.h"
#include "ops/attention/attention_rounded.h"
#include "ops/attention/attention_row.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/vec_math.h"

namespace eddy::EDDY_ISA {
namespace {

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
    each_lane<T>([&](std::int64_t lane) { row[t + lane] = vec::exp(row[t + lane] * scale - maximum); });
  for (std::int64_t t = sees; t < end; ++t) row[t] = T(0);
  typename Vector<T>::type sum{};
  for (std::int64_t t = 0; t < end; t += kLanes<T>) sum += *reinterpret_cast<const Loose*>(row + t);
  return fold<T>(sum, [](auto x, auto y) { return x + y; });
}

// Calls body(t, whether all rows of the block see the vector of keys at t) for the vectors of a span.
template <class T, class Body>
EDDY_INLINE void each_vector(const Span& span, Body&& body) {
  std::int64_t t = span.begin;
  for (; t < span.full_begin; t += kLanes<T>) body(t, std::false_type{});
  for (; t < span.full_end; t += kLanes<T>) body(t, std::true_type{});
  for (; t < span.end; t += kLanes<T>) body(t, std::false_type{});
}

// Turns the scores of a block of rows into exponentials relative to the maximum of each row so far, with zeros for keys
// that a row does not see.
template <class T, class P>
EDDY_INLINE void block_exponentials(const Item<T, P>& item, const TilePair& rows, std::int64_t block,
                                    bool first, bool direct, T* sums, T* correction) {
  using Loose = typename Vector<T>::loose;
  using Vec = typename Vector<T>::type;
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  const Span& span = rows.span[block];
  const std::int64_t begin = block * P::kRows, end = smaller(rows.count, begin + P::kRows);
  T* const scores = item.scratch + at.scores;
  const T nothing = -static_cast<T>(INFINITY);
  for (std::int64_t r = begin; r < end; ++r) {
    T* const row = scores + r * at.score_row;
    T* const maximum = item.log_sum(rows.head[r], rows.query[r]);
    const T scale = item.call.factor(rows.head[r]);
    const std::int64_t see_begin = rows.see_begin[r], see_end = rows.see_end[r];
    Vec best = Vec{} + nothing;
    each_vector<T>(span, [&](std::int64_t t, auto full) {
      Vec here = *reinterpret_cast<const Loose*>(row + t) * scale;
      if (!full) here = seen<T>(here, t, see_begin, see_end, nothing);
      *reinterpret_cast<Loose*>(row + t) = here;
      best = here > best ? here : best;
    });
    const T here = fold<T>(best, [](auto x, auto y) { return x > y ? x : y; });
    if (first) {
      *maximum = nothing;
      sums[r] = T(0);
    }
    correction[r] = T(1);
    if (!(here > *maximum)) continue;
    if (!first) correction[r] = vec::exp(*maximum - here);
    *maximum = here;
  }
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t list_row = rows.tile.first + r;
    item.prefetch(args.output, item.output_strides(), item.query_index(list_row));
    if (!direct) {
      item.prefetch(args.q, args.q_strides, item.query_index(list_row + P::kQueryTile));
      item.prefetch_next_keys(rows.key_begin, list_row);
    }
    T* const row = scores + r * at.score_row;
    const T maximum = *item.log_sum(rows.head[r], rows.query[r]);
    const T shift = maximum == nothing ? T(0) : maximum;  // a row that sees nothing: exp(-infinity) is 0
    Vec sum{};
    for (std::int64_t t = span.begin; t < span.end; t += kLanes<T>) {
      each_lane<T>([&](std::int64_t lane) { row[t + lane] = vec::exp(row[t + lane] - shift); });
      sum += *reinterpret_cast<const Loose*>(row + t);
    }
    sums[r] = sums[r] * correction[r] + fold<T>(sum, [](auto x, auto y) { return x + y; });
    const std::int64_t sees = rows.see_end[r] - rows.see_begin[r];
    if (args.drop_below > 0 && sees > 0) {
      const T* keep = keep_row(args.dropout_key, item.element(rows, r), sees, args.drop_below,
                               static_cast<T>(args.keep_scale), item.scratch + at.keep);
      for (std::int64_t t = 0; t < sees; ++t) row[rows.see_begin[r] + t] *= keep[t];
    }
  }
}

// One query tile against one key tile. Between key tiles a row's sum so far lies in the output, unnormalised,
// its maximum in log_sum and its sum of exponentials in `sums`.
template <class T, class P>
void forward_tile(const Item<T, P>& item, const TilePair& rows, std::int64_t key_count,
                  const typename P::Factor* values, std::int64_t value_stride, bool direct, T* sums) {
  using F = typename P::Factor;
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  F* const q = item.factors_at(at.q);
  T* const scores = item.scratch + at.scores;
  T* const output = item.scratch + at.output;
  const bool first = rows.tile.begin >= rows.key_begin, last = rows.tile.end <= rows.key_begin + key_count;
  const AttentionStrides strides = item.output_strides();

  item.pack_query_side(args.q, args.q_strides, rows, q, nullptr);
  const Skew skew = item.call.has_tables() ? item.skew_of(rows) : Skew{};
  item.raw_scores(rows, skew, q, direct, scores);

  T correction[P::kQueryTile];
  for (std::int64_t b = 0; b < rows.blocks; ++b)
    if constexpr (kInner<F> == 1)
      block_exponentials(item, rows, b, first, direct, sums, correction);
    else
      rounded_exponentials(item, rows, b, first, sums, correction);

  if (!first)
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const T* so_far = item.at(args.output, strides, rows.query[r], rows.head[r]);
      for (std::int64_t i = 0; i < args.head_size; ++i) output[r * at.row + i] = so_far[i] * correction[r];
    }
  for (std::int64_t b = 0; b < rows.blocks; ++b) {
    const std::int64_t begin = inner_begin<P>(rows.block_begin[b]);
    P::product(inner_size<P>(rows.block_end[b]) - begin, args.head_size,
               item.factors_at(at.scores) + b * P::kRows * at.score_row + begin, at.score_row,
               values + begin * value_stride, value_stride, output + b * P::kRows * at.row, at.row, !first);
  }
  for (std::int64_t r = 0; r < rows.count; ++r) {
    T* y = const_cast<T*>(item.at(args.output, strides, rows.query[r], rows.head[r]));
    const T kept = kInner<F> == 1 ? T(1) : static_cast<T>(args.keep_scale);
    const T factor = !last ? T(1) : sums[r] == T(0) ? T(0) : kept / sums[r];
    for (std::int64_t i = 0; i < args.head_size; ++i) y[i] = output[r * at.row + i] * factor;
    if (!last) continue;
    T& log_sum = *item.log_sum(rows.head[r], rows.query[r]);
    if constexpr (kInner<F> != 1) log_sum *= kLn2;
    if (sums[r] != T(0)) log_sum += vec::log(sums[r]);
  }
}

// The results of rows that see no key.
template <class T, class P>
void forward_nothing(const Item<T, P>& item, const QueryTile& tile) {
  for (std::int64_t row = tile.first; row < tile.first + tile.count; ++row) {
    const std::int64_t head = item.head_of(row), query = row % item.args.queries;
    T* const y = const_cast<T*>(item.at(item.args.output, item.output_strides(), query, head));
    for (std::int64_t i = 0; i < item.args.head_size; ++i) y[i] = T(0);
    *item.log_sum(head, query) = -static_cast<T>(INFINITY);
  }
}

// A work item of a single row.
template <class T>
void forward_row(const Item<T, RegisterProducts<T, T>>& item) {
  const AttentionArgs& args = item.args;
  const std::int64_t size = args.head_size, begin = item.call.see_begin(0), end = item.call.see_end(0);
  T* const y = const_cast<T*>(item.at(args.output, item.output_strides(), 0, item.kv_head));
  const T* const q = item.at(args.q, args.q_strides, 0, item.kv_head);
  T* const p = item.scratch + item.layout.scores;
  for (std::int64_t i = 0; i < size; ++i) y[i] = T(0);
  const T scale = item.call.factor(item.kv_head);
  T maximum = -static_cast<T>(INFINITY), sum = T(0);
  for (std::int64_t key = begin; key < end; key += kAttentionKeyTile) {
    const std::int64_t count = smaller(end - key, kAttentionKeyTile);
    row_dots(q, keys_from(item, key), size, count, p);
    const T here = scaled_maximum(p, count, scale);
    if (key == begin) {
      maximum = here;
    } else if (here > maximum) {
      const T correction = vec::exp(maximum - here);
      for (std::int64_t i = 0; i < size; ++i) y[i] *= correction;
      sum *= correction;
      maximum = here;
    }
    sum += exponentials(p, count, scale, maximum);
    if (args.drop_below > 0) {
      const T* keep = keep_row(args.dropout_key, item.element(key), count, args.drop_below,
                               static_cast<T>(args.keep_scale), item.scratch + item.layout.keep);
      for (std::int64_t t = 0; t < count; ++t) p[t] *= keep[t];
    }
    row_mix(p, values_from(item, key), size, count, y);
  }
  const T factor = sum == T(0) ? T(0) : T(1) / sum;
  for (std::int64_t i = 0; i < size; ++i) y[i] *= factor;
  *item.log_sum(item.kv_head, 0) = sum == T(0) ? maximum : maximum + vec::log(sum);
}

template <class T, class P>
void forward_item(const Item<T, P>& item, std::int64_t first_row, std::int64_t end_row) {
  using F = typename P::Factor;
  if constexpr (kInner<F> == 1)
    if (has_single_rows(item.call)) return forward_row(item);
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  T* const sums = item.scratch + at.sums;
  // With fewer rows than a register tile, packing would cost more than the products: the keys are read in
  // place.
  const bool direct = kInner<F> == 1 && end_row - first_row < P::kRows;
  const bool values_in_place = direct && args.head_size % kLanes<T> == 0;
  for (std::int64_t key_begin = 0; key_begin < args.keys; key_begin += kAttentionKeyTile) {
    const std::int64_t key_count = smaller(args.keys - key_begin, kAttentionKeyTile);
    const T* values = item.at(args.v, args.v_strides, key_begin, item.kv_head);
    F* const packed_values = item.factors_at(at.values);
    bool packed = false;
    for (QueryTile tile = item.tile_at(first_row, end_row); tile.count > 0;
         tile = item.tile_at(tile.first + tile.count, end_row)) {
      if (tile.sees_nothing() && key_begin == 0) forward_nothing(item, tile);
      if (!tile.overlaps(key_begin, key_count)) continue;
      if (!packed) {
        if (!direct)
          pack_transposed(item.at(args.k, args.k_strides, key_begin, item.kv_head), args.k_strides.time,
                          key_count, args.head_size, inner_size<P>(args.head_size),
                          item.factors_at(at.keys_t));
        if (!values_in_place)
          pack_rows(values, args.v_strides.time, key_count, args.head_size, inner_size<P>(key_count),
                    packed_values, at.row);
        packed = true;
      }
      forward_tile(item, item.rows_of(tile, key_begin, key_count), key_count,
                   values_in_place ? reinterpret_cast<const F*>(values) : packed_values,
                   values_in_place ? args.v_strides.time : at.row, direct, sums + (tile.first - first_row));
    }
  }
}

template <class T, class P>
void forward_in(const AttentionArgs& args) {
  const Call<T, P> call(args, nullptr);
  const std::int64_t rows = call.group * args.queries;
  const std::int64_t chunks = (rows + kAttentionForwardRows - 1) / kAttentionForwardRows;
  for_each_item(args.threads, args.batch * args.kv_heads * chunks, [&](int rank, std::int64_t index) {
    const std::int64_t first = index % chunks * kAttentionForwardRows;
    P::begin();
    forward_item(Item<T, P>(call, rank, index / chunks, (index + args.threads) / chunks), first,
                 smaller(rows, first + kAttentionForwardRows));
    P::end();
  });
}

template <class T>
void forward(const AttentionArgs& args) {
#if defined(__AVX512F__)
  if (has_narrow_heads(args))
    return with_narrow_size(args, [&](auto size) { narrow_forward_of<size()>(args); });
#endif
  with_products<T>(args, [&]<class P>(P) { forward_in<T, P>(args); });
}

}  // namespace

EDDY_CPU_KERNEL(attention_forward, forward)

}  // namespace eddy::EDDY_ISA
