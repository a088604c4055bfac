// Shared parts of attention's forward and backward kernels on the CPU: the tables of a call, work items,
// query tiles and what each of their rows sees, and products limited to the visible pairs. Included by
// *.isa.cpp files only.
//
// A work item is one key head of one batch entry. The query rows of all heads that share it form one list of
// `group * queries` rows, cut into tiles of kQueryTile. The outer loop runs over tiles of
// kAttentionKeyTile keys: a key tile is packed once and stays in L2 while all query tiles use it. Distances
// fall by 1 from key to key and rise by 1 from query to query, so a row sees an interval of keys that moves
// by one key per row. Tiles outside the band are skipped. Inside a tile, kRows rows at a time use their own
// interval of columns, rounded to whole vectors.
//
// Tables are packed in reversed order, column c for distance `distances` - 1 - c: then the columns of a row
// rise with its keys, and row r of a tile has them shifted by r. q . positions is one product with the run of
// columns that the tile needs, added to the scores row by row with that shift. For its gradients the gradient
// of the scores is shifted back ("skewed") and goes through the same products.
#pragma once

#include "ops/attention/attention_products.h"
#include "ops/attention/attention_scratch.h"
#include "ops/attention/attention_tile.h"
#include "ops/cpu/isa.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

using namespace attention_tile;

EDDY_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
EDDY_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

// The multiple of `step` that is at most, or at least, x.
EDDY_INLINE std::int64_t down_to(std::int64_t step, std::int64_t x) {
  return x / step * step;
}
EDDY_INLINE std::int64_t up_to(std::int64_t step, std::int64_t x) {
  return (x + step - 1) / step * step;
}
// The factors that a product reads of `elements` of a sum, and those before element `begin`.
template <class P>
EDDY_INLINE std::int64_t inner_size(std::int64_t elements) {
  return up_to(P::kStep, elements) / kInner<typename P::Factor>;
}
template <class P>
EDDY_INLINE std::int64_t inner_begin(std::int64_t begin) {
  return down_to(P::kStep, begin) / kInner<typename P::Factor>;
}

// y += x; y and x do not overlap.
template <class T>
EDDY_INLINE void add_to(T* __restrict y, const T* __restrict x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

// Zeros a row of a score tile in [begin, end), except for the keys it sees, [see_begin, see_end).
template <class T>
EDDY_INLINE void zero_unseen(T* row, std::int64_t begin, std::int64_t see_begin, std::int64_t see_end,
                             std::int64_t end) {
  for (std::int64_t t = begin; t < see_begin; ++t) row[t] = T(0);
  for (std::int64_t t = see_end; t < end; ++t) row[t] = T(0);
}

// What all work items of a call share. P is how its products are computed (attention_products.h).
template <class T, class P>
struct Call {
  using F = typename P::Factor;
  const AttentionArgs& args;
  AttentionScratch layout;
  AttentionShared shared;
  std::int64_t group;   // heads of a key head
  std::int64_t offset;  // distance of query 0 and key 0
  // Whether a query tile stays within one head. The intervals of its rows then move in one direction and use
  // the same table row.
  bool separate_heads;
  // Packed tables; null when absent. positions_t serves products with queries, positions the gradient of q.
  const F *positions_t, *positions;
  const T* bias;

  Call(const AttentionArgs& a, const AttentionBackwardArgs* gradient)
      : args(a),
        layout(attention_scratch(a.head_size)),
        shared(attention_shared(a, gradient)),
        group(a.heads / a.kv_heads),
        offset(a.keys - a.queries),
        separate_heads(a.most < a.keys - 1 || a.head_scale != nullptr || a.bias != nullptr ||
                       a.positions != nullptr),
        positions_t(nullptr),
        positions(nullptr),
        bias(nullptr) {
    T* const base = static_cast<T*>(a.scratch);
    if (a.positions != nullptr) {
      const T* last = static_cast<const T*>(a.positions) + (a.distances - 1) * a.positions_stride;
      if (group * a.queries >= attention_tile::kRows) {  // fewer rows use dot products with the table itself
        F* const to = reinterpret_cast<F*>(base + shared.positions_t);
        pack_transposed(last, -a.positions_stride, a.distances, a.head_size, inner_size<P>(a.head_size), to);
        positions_t = to;
      }
      if (gradient != nullptr) {
        F* const to = reinterpret_cast<F*>(base + shared.positions);
        pack_rows(last, -a.positions_stride, a.distances, a.head_size, inner_size<P>(a.distances), to,
                  layout.row);
        positions = to;
      }
    }
    if (a.bias != nullptr) {
      for (std::int64_t h = 0; h < a.heads; ++h) {
        const T* const from = static_cast<const T*>(a.bias) + h * a.bias_stride;
        T* const to = base + shared.bias + h * shared.bias_row;
        for (std::int64_t c = 0; c < a.distances; ++c) to[c] = from[a.distances - 1 - c];
      }
      bias = base + shared.bias;
    }
  }

  bool has_tables() const { return args.bias != nullptr || args.positions != nullptr; }
  T* scratch(int rank) const {
    return static_cast<T*>(args.scratch) + shared.elements + rank * layout.elements;
  }
  // The factor of the scores of a head.
  T factor(std::int64_t head) const {
    return static_cast<T>(args.head_scale == nullptr
                              ? args.scale
                              : args.scale *
                                    static_cast<double>(static_cast<const T*>(args.head_scale)[head]));
  }
  // The keys that a query sees; begin >= end when there are none.
  std::int64_t see_begin(std::int64_t query) const { return larger(0, query + offset - args.most); }
  std::int64_t see_end(std::int64_t query) const {
    return larger(0, smaller(args.keys, query + offset - args.least + 1));
  }
  bool sees_one(std::int64_t query) const { return see_end(query) - see_begin(query) == 1; }
};

// Rows first .. first + count - 1 of a work item's list.
struct QueryTile {
  std::int64_t first, count;
  std::int64_t begin, end;  // keys that some row sees
  bool sees_nothing() const { return begin >= end; }
  bool overlaps(std::int64_t key_begin, std::int64_t key_count) const {
    return begin < end && begin < key_begin + key_count && end > key_begin;
  }
};

// The columns of a block of rows in which work on its scores goes: whole vectors that some row sees, in multiples of
// kStep, and those among them that all rows see in full. Loops over them take the same turns for each row of a block,
// which a processor can foresee.
struct Span {
  std::int64_t begin, full_begin, full_end, end;
};

// A query tile against one key tile. Keys count from the start of the key tile.
struct TilePair {
  QueryTile tile;
  std::int64_t key_begin;
  std::int64_t count;                       // rows in use
  std::int64_t blocks;                      // of kRows rows; the last one may be padded
  std::int64_t visible_begin, visible_end;  // keys that some row sees
  std::int64_t begin, end;                  // the same in multiples of kRows, of which products read all
  std::int64_t head[kAttentionQueryTile];
  std::int64_t query[kAttentionQueryTile];
  std::int64_t see_begin[kAttentionQueryTile], see_end[kAttentionQueryTile];
  std::int64_t block_begin[kAttentionQueryBlocks], block_end[kAttentionQueryBlocks];
  Span span[kAttentionQueryBlocks];
};

// The columns of the packed tables of one head that a tile needs.
struct Skew {
  std::int64_t base;         // key t and row r use column base - r + t
  std::int64_t origin, end;  // the columns; origin is a multiple of whole vectors and of kStep
  std::int64_t block_begin[kAttentionQueryBlocks], block_end[kAttentionQueryBlocks];
};

// The index of a row in a [batch, time, head, head_size] tensor.
struct RowIndex {
  std::int64_t batch, time, head;
};

// A work item's place, and the scratch of the thread that runs it.
template <class T, class P>
struct Item {
  using F = typename P::Factor;
  static constexpr std::int64_t kRows = P::kRows, kQueryTile = P::kQueryTile;
  const Call<T, P>& call;
  const AttentionArgs& args;
  const AttentionScratch& layout;
  T* scratch;
  std::int64_t batch, kv_head, group;
  std::int64_t next_batch, next_kv_head;  // the work item that this thread is likely to run next

  Item(const Call<T, P>& c, int rank, std::int64_t index, std::int64_t next)
      : call(c),
        args(c.args),
        layout(c.layout),
        scratch(c.scratch(rank)),
        batch(index / args.kv_heads),
        kv_head(index % args.kv_heads),
        group(c.group),
        next_batch(next / args.kv_heads),
        next_kv_head(next % args.kv_heads) {}

  std::int64_t rows() const { return group * args.queries; }
  // A part of the scratch, as factors.
  F* factors_at(std::int64_t part) const { return reinterpret_cast<F*>(scratch + part); }
  // Rows of [batch, time, head, head_size] tensors.
  const T* at(const void* base, const AttentionStrides& s, std::int64_t time, std::int64_t head) const {
    return static_cast<const T*>(base) + batch * s.batch + time * s.time + head * s.head;
  }
  AttentionStrides output_strides() const {
    return {args.queries * args.heads * args.head_size, args.heads * args.head_size, args.head_size};
  }
  T* log_sum(std::int64_t head, std::int64_t query) const {
    return static_cast<T*>(args.log_sum) + (batch * args.heads + head) * args.queries + query;
  }
  // The number of a probability in the stream of dropout draws.
  std::uint64_t element(const TilePair& rows, std::int64_t r) const {
    return static_cast<std::uint64_t>(((batch * args.heads + rows.head[r]) * args.queries + rows.query[r]) *
                                          args.keys +
                                      rows.key_begin + rows.see_begin[r]);
  }
  // The same for a key of a work item of a single row.
  std::uint64_t element(std::int64_t key) const {
    return static_cast<std::uint64_t>((batch * args.heads + kv_head) * args.keys + key);
  }
  std::int64_t head_of(std::int64_t row) const { return kv_head * group + row / args.queries; }

  // The tile that starts at row `first`, before row `end`.
  QueryTile tile_at(std::int64_t first, std::int64_t end) const {
    const std::int64_t query = first % args.queries;
    end = smaller(end, first + kQueryTile);
    if (call.separate_heads) end = smaller(end, first - query + args.queries);
    const std::int64_t last = query + (end - first) - 1;
    const bool crosses = last >= args.queries;
    return {first, end - first, call.see_begin(crosses ? 0 : query),
            call.see_end(crosses ? args.queries - 1 : last)};
  }

  TilePair rows_of(const QueryTile& tile, std::int64_t key_begin, std::int64_t key_count) const {
    TilePair rows;
    rows.tile = tile;
    rows.key_begin = key_begin;
    rows.count = tile.count;
    rows.blocks = (rows.count + kRows - 1) / kRows;
    rows.visible_begin = key_count;
    rows.visible_end = 0;
    const auto inside = [key_begin, key_count](std::int64_t key) {
      return larger(0, smaller(key_count, key - key_begin));
    };
    std::int64_t head = head_of(tile.first), query = tile.first % args.queries;
    for (std::int64_t b = 0, r = 0; b < rows.blocks; ++b) {
      std::int64_t begin = key_count, end = 0, all_begin = 0, all_end = key_count;
      for (; r < smaller(rows.count, (b + 1) * kRows); ++r) {
        rows.head[r] = head;
        rows.query[r] = query;
        rows.see_begin[r] = inside(call.see_begin(query));
        rows.see_end[r] = inside(call.see_end(query));
        all_begin = larger(all_begin, rows.see_begin[r]);
        all_end = smaller(all_end, rows.see_end[r]);
        if (rows.see_begin[r] < rows.see_end[r]) {
          begin = smaller(begin, rows.see_begin[r]);
          end = larger(end, rows.see_end[r]);
        }
        if (++query == args.queries) {
          query = 0;
          ++head;
        }
      }
      rows.block_begin[b] = smaller(begin, end);
      rows.block_end[b] = end;
      Span& span = rows.span[b];
      const std::int64_t step = larger(kLanes<T>, P::kStep);
      span.begin = down_to(step, rows.block_begin[b]);
      span.end = up_to(step, end);
      span.full_begin = smaller(up_to(kLanes<T>, all_begin), span.end);
      span.full_end = larger(span.full_begin, smaller(span.end, down_to(kLanes<T>, all_end)));
      rows.visible_begin = smaller(rows.visible_begin, begin);
      rows.visible_end = larger(rows.visible_end, end);
    }
    rows.begin = down_to(kRows, rows.visible_begin);
    rows.end = up_to(kRows, rows.visible_end);
    return rows;
  }

  Skew skew_of(const TilePair& rows) const {
    Skew skew;
    skew.base = args.distances - 1 - (rows.query[0] + call.offset) + rows.key_begin;
    skew.origin = args.distances;
    skew.end = 0;
    for (std::int64_t b = 0, r = 0; b < rows.blocks; ++b) {
      std::int64_t begin = args.distances, end = 0;
      for (; r < smaller(rows.count, (b + 1) * kRows); ++r)
        if (rows.see_begin[r] < rows.see_end[r]) {
          begin = smaller(begin, skew.base - r + rows.see_begin[r]);
          end = larger(end, skew.base - r + rows.see_end[r]);
        }
      skew.block_begin[b] = smaller(begin, end);
      skew.block_end[b] = end;
      skew.origin = smaller(skew.origin, begin);
      skew.end = larger(skew.end, end);
    }
    skew.origin = down_to(larger(kLanes<T>, P::kStep), skew.origin);
    return skew;
  }

  // The places of row `row` of the list and of key `key`; past the end, those of the next work item.
  RowIndex query_index(std::int64_t row) const {
    const bool beyond = row >= rows();
    if (beyond) row -= rows();
    if (row >= rows()) return {args.batch, 0, 0};
    return {beyond ? next_batch : batch, row % args.queries,
            (beyond ? next_kv_head : kv_head) * group + row / args.queries};
  }
  RowIndex key_index(std::int64_t key) const {
    const bool beyond = key >= args.keys;
    if (beyond) key -= args.keys;
    if (key >= args.keys) return {args.batch, 0, 0};
    return {beyond ? next_batch : batch, key, beyond ? next_kv_head : kv_head};
  }
  // Into the second-level cache, since the first is full of what is being computed: on tiles the backward pass takes
  // 6 % more time otherwise (docs/choices.md). Both are always inline: GCC drops calls of a function that only
  // prefetches, as if it had no effect.
  __attribute__((always_inline)) void prefetch(const void* base, const AttentionStrides& s,
                                               const RowIndex& index) const {
    if (base != nullptr && index.batch < args.batch)
      prefetch_row<2>(
          static_cast<const T*>(base) + index.batch * s.batch + index.time * s.time + index.head * s.head,
          args.head_size);
  }
  // Prefetches the keys after the key tile at `key_begin`, one for each row of the list.
  __attribute__((always_inline)) void prefetch_next_keys(std::int64_t key_begin, std::int64_t row) const {
    if (row >= kAttentionKeyTile) return;
    const RowIndex next = key_index(smaller(args.keys, key_begin + kAttentionKeyTile) + row);
    prefetch(args.k, args.k_strides, next);
    prefetch(args.v, args.v_strides, next);
  }

  // Packs the rows of a query-side tensor: as left factors of products over head_size into `packed`, and, where
  // that differs, as right factors of products over the rows into `across`. Padding rows are zeros.
  void pack_query_side(const void* base, const AttentionStrides& strides, const TilePair& rows, F* packed,
                       F* across) const {
    const auto row = [&](std::int64_t r) { return at(base, strides, rows.query[r], rows.head[r]); };
    for (std::int64_t r = 0; r < rows.count; ++r) {
      if constexpr (kInner<F> == 1)
        pack_rows(row(r), 0, 1, args.head_size, 1, packed + r * layout.row, layout.row);
      else if (r % 2 == 0)
        round_two_rows(row(r), r + 1 < rows.count ? row(r + 1) : nullptr, args.head_size,
                       packed + r * layout.row, packed + (r + 1) * layout.row,
                       across == nullptr ? nullptr : across + r / 2 * layout.row);
    }
    for (std::int64_t i = rows.count * layout.row; i < rows.blocks * kRows * layout.row; ++i)
      packed[i] = F(0);
    if (kInner<F> != 1 && across != nullptr)
      for (std::int64_t i = factors<F>(rows.count) * layout.row; i < inner_size<P>(rows.count) * layout.row;
           ++i)
        across[i] = F(0);
  }

  // Rounds columns [begin, end) of a score tile, and those before them in their vector, to factors of sums over
  // columns, maybe in the same memory, or of sums over rows, with P::kMovesAcross in other memory.
  void round_along(const T* tile, std::int64_t stride, const TilePair& rows, std::int64_t begin,
                   std::int64_t end, F* to) const {
    begin = down_to(2 * kLanes<T>, begin);
    for (std::int64_t r = 0; r < rows.count; ++r)
      round_row(tile + r * stride + begin, end - begin, to + r * stride + begin / 2);
  }
  void round_across(const T* tile, std::int64_t stride, const TilePair& rows, std::int64_t begin,
                    std::int64_t end, F* to) const {
    begin = down_to(kLanes<T>, begin);
    P::round_across(tile + begin, stride, rows.count, end - begin, P::across(to, 0, begin, stride));
  }

  // result = left right^T in columns [begin[b], end[b]) of each block of rows, from whole vectors to whole
  // vectors; right_t is packed by pack_transposed. The result's first column is column `origin`.
  void block_products(std::int64_t blocks, const std::int64_t* begin, const std::int64_t* end, const F* left,
                      const F* right_t, T* result, std::int64_t stride, std::int64_t origin) const {
    const std::int64_t inner = inner_size<P>(args.head_size);
    std::int64_t least = begin[0], most = end[0];
    for (std::int64_t b = 1; b < blocks; ++b)
      if (begin[b] < end[b]) {
        least = least < most ? smaller(least, begin[b]) : begin[b];
        most = larger(most, end[b]);
      }
    for (std::int64_t panel = least / kPanel<T> * kPanel<T>; panel < most; panel += kPanel<T>)
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t from = larger(panel, begin[b] / kLanes<T> * kLanes<T>);
        const std::int64_t to = smaller(panel + kPanel<T>, end[b]);
        if (from < to)
          P::product(inner, to - from, left + b * kRows * layout.row, layout.row,
                     right_t + panel * inner + (from - panel), kPanel<T>,
                     result + b * kRows * stride + (from - origin), stride, false);
      }
  }

  // The same for few rows, at the keys that some row sees. It reads both operands in place: with fewer rows than a
  // register tile, packing would cost more than the products.
  void direct_products(const TilePair& rows, const void* left, const AttentionStrides& left_strides,
                       const void* right, const AttentionStrides& strides, T* result) const {
    const T* const keys = at(right, strides, rows.key_begin, kv_head);
    for (std::int64_t t = rows.visible_begin; t < rows.visible_end; ++t)
      for (std::int64_t r = 0; r < rows.count; ++r)
        result[r * layout.score_row + t] =
            dot(at(left, left_strides, rows.query[r], rows.head[r]), keys + t * strides.time, args.head_size);
    for (std::int64_t r = rows.count; r < rows.blocks * kRows; ++r)
      zero_unseen(result + r * layout.score_row, rows.visible_begin, rows.visible_begin, rows.visible_begin,
                  rows.visible_end);
  }

  // q . position by distance; column 0 is distance column skew.origin.
  void relative_scores(const TilePair& rows, const Skew& skew, const F* q, T* relative) const {
    block_products(rows.blocks, skew.block_begin, skew.block_end, q, call.positions_t, relative,
                   layout.skew_row, skew.origin);
  }

  // A tile of raw scores: q . k + q . position + bias. `direct` as above.
  void raw_scores(const TilePair& rows, const Skew& skew, const F* q, bool direct, T* scores) const {
    if (direct)
      direct_products(rows, args.q, args.q_strides, args.k, args.k_strides, scores);
    else
      block_products(rows.blocks, rows.block_begin, rows.block_end, q, factors_at(layout.keys_t), scores,
                     layout.score_row, 0);
    if (args.positions != nullptr && direct) {
      const T* const positions = static_cast<const T*>(args.positions);
      for (std::int64_t r = 0; r < rows.count; ++r)
        for (std::int64_t t = rows.see_begin[r]; t < rows.see_end[r]; ++t)
          scores[r * layout.score_row + t] += dot(
              at(args.q, args.q_strides, rows.query[r], rows.head[r]),
              positions + (args.distances - 1 - (skew.base - r + t)) * args.positions_stride, args.head_size);
    } else if (args.positions != nullptr) {
      T* const relative = scratch + layout.skewed;
      relative_scores(rows, skew, q, relative);
      for (std::int64_t r = 0; r < rows.count; ++r)
        add_to(scores + r * layout.score_row + rows.see_begin[r],
               relative + r * layout.skew_row + (skew.base - r + rows.see_begin[r] - skew.origin),
               rows.see_end[r] - rows.see_begin[r]);
    }
    if (args.bias != nullptr) {
      const T* const bias = call.bias + rows.head[0] * call.shared.bias_row;
      for (std::int64_t r = 0; r < rows.count; ++r)
        add_to(scores + r * layout.score_row + rows.see_begin[r], bias + skew.base - r + rows.see_begin[r],
               rows.see_end[r] - rows.see_begin[r]);
    }
  }
};

// Scores of a key head from which on tiles are faster than f32. Below, most of a tile would be padding: 16 queries and
// keys take 2.5 ms on tiles and 1.8 in f32, 32 of 32 take as long (docs/choices.md).
inline constexpr std::int64_t kLeastTileScores = 32 * 32;

// Calls body(P{}) with the way in which a call multiplies. Factors are not rounded with so few rows that the keys are
// read in place, nor where tiles would not be full.
template <class T, class Body>
EDDY_INLINE void with_products([[maybe_unused]] const AttentionArgs& args, Body&& body) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == sizeof(Pair)) {
    const std::int64_t rows = args.heads / args.kv_heads * args.queries;
    if (rounds_to_bf16(args.precision) && rows >= attention_tile::kRows) {
      if (isa_level() != IsaLevel::amx) return body(RegisterProducts<T, Pair>{});
      if (rows * args.keys >= kLeastTileScores) return body(TileProducts{});
    }
  }
#endif
  body(RegisterProducts<T, T>{});
}

// Runs body(rank, index) for every index below count, on up to `threads` threads with different ranks.
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

}  // namespace
}  // namespace eddy::EDDY_ISA
