// Scores between two products whose factors are rounded to bf16: they become probabilities, or gradients, and pairs of
// factors in one pass over 32 columns at a time. Sums and maxima of 16 rows are folded together. Only *.isa.cpp files
// include this header, and only levels with AVX-512 have the functions.
#pragma once

#include <math.h>

#include "ops/attention/attention_item.h"
#include "ops/cpu/vec_math.h"

namespace eddy::EDDY_ISA {
namespace {

// Tensors of which the backward prefetches a row for each query row.
inline constexpr std::int64_t kPrefetches = 7;

// The gradients of a query tile's scores on tiles. Arrays have an entry for each row.
struct RoundedGradients {
  float scale[kAttentionQueryTile];    // of the scores, times log2(e)
  float log_sum[kAttentionQueryTile];  // times log2(e)
  float factor[kAttentionQueryTile];   // of dscore; 0 for a row that sees one key
  float delta[kAttentionQueryTile];
  const Pair *q, *doutput;  // left factors of products over head_size
  const Pair *keys_t, *values_t;
  Pair *p_across, *dr_across, *dr_along;
  const float* bias;   // of the head, or null
  float* dbias;        // sums of its gradients, or null
  float* relative;     // q . position by distance, to be replaced by dr, or null
  float* dhead_scale;  // a sum, or null
};

}  // namespace
}  // namespace eddy::EDDY_ISA

#if defined(__AVX512F__)
EDDY_TARGET_BEGIN("avx512bf16,amx-tile,amx-bf16")
namespace eddy::EDDY_ISA {
namespace {

inline constexpr std::int64_t kPiece = 32;       // columns of a pass: two vectors, or one of pairs
inline constexpr std::int64_t kFoldedRows = 16;  // rows whose sums are folded together

// 2^x: of relative error 3e-6, where rounding to bf16 makes up to 2e-3; 0 below 2^-126.
EDDY_INLINE __m512 power_of_two(__m512 x) {
  return power_of_two_by(x, 0x1.b7f748p-7f, 0x1.abf86p-5f, 0x1.ee2452p-3f, 0x1.62d6c6p-1f, 1.0f);
}

EDDY_INLINE __m512 larger_of(__m512 a, __m512 b) {  // b where a is NaN
  return _mm512_maskz_max_ps(0xffff, a, b);
}
// Lane i of the result combines the lanes of rows[i].
template <class Combine>
EDDY_INLINE __m512 fold_rows(__m512* rows, Combine combine) {
  typedef float Vec __attribute__((vector_size(64), may_alias));
  transpose_square<16>(reinterpret_cast<Vec*>(rows));
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) rows[i] = combine(rows[i], rows[i + half]);
  return rows[0];
}
EDDY_INLINE __m512 sum_of(__m512 a, __m512 b) {
  return a + b;
}

// The lanes of the keys from t on that row r sees.
EDDY_INLINE __mmask16 seen_mask(const TilePair& rows, std::int64_t r, std::int64_t t) {
  return static_cast<__mmask16>(bf16::mask_of(rows.see_end[r] - t) & ~bf16::mask_of(rows.see_begin[r] - t));
}

// A bit for each key of a row of a score tile that says whether dropout keeps it.
struct KeepBits {
  std::int64_t shift;  // the bit of key 0
  std::uint8_t bits[kAttentionKeyTile / 8 + 24];

  // Draws those of the vectors with keys that row r sees.
  template <class T, class P>
  void draw(const Item<T, P>& item, const TilePair& rows, std::int64_t r) {
    const std::int64_t begin = down_to(16, rows.see_begin[r]), end = up_to(16, rows.see_end[r]);
    const std::uint64_t first = item.element(rows, r) - static_cast<std::uint64_t>(rows.see_begin[r] - begin);
    const std::int64_t before = static_cast<std::int64_t>(first & 3);
    shift = before - begin;
    const __m512i below = _mm512_set1_epi32(static_cast<int>(item.args.drop_below));
    constexpr std::int64_t kWords = 4 * kPhiloxLanes;
    for (std::int64_t at = 0; at < before + end - begin; at += kWords) {
      alignas(64) std::uint32_t words[kWords];
      philox_lanes(item.args.dropout_key, (first >> 2) + static_cast<std::uint64_t>(at / 4), words);
      for (std::int64_t i = 0; i < kWords; i += 16) {
        const __m512i draws = _mm512_maskz_srli_epi32(0xffff, _mm512_load_si512(words + i), 8);
        const __mmask16 keeps = _mm512_cmpge_epu32_mask(draws, below);
        memcpy(bits + (at + i) / 8, &keeps, sizeof keeps);
      }
    }
  }
  EDDY_INLINE __mmask16 at(std::int64_t t) const {
    std::uint32_t word;
    memcpy(&word, bits + (shift + t) / 8, sizeof word);
    return static_cast<__mmask16>(word >> ((shift + t) % 8));
  }
};

// Calls body(t, whether all rows of the block see all of the piece) for the pieces of a span.
template <class Body>
EDDY_INLINE void each_piece(const Span& span, Body&& body) {
  std::int64_t t = down_to(kPiece, span.begin);
  const std::int64_t full_begin = smaller(up_to(kPiece, span.full_begin), span.end),
                     full_end = down_to(kPiece, span.full_end);
  for (; t < full_begin; t += kPiece) body(t, std::false_type{});
  for (; t < full_end; t += kPiece) body(t, std::true_type{});
  for (; t < span.end; t += kPiece) body(t, std::false_type{});
}

// Turns the scores of a block of rows into pairs of exponentials relative to the maximum of each row so far, with zeros
// for keys that a row does not see or dropout drops. Updates the maxima, times log2(e), in log_sum, and the sums of
// exponentials before dropout; `correction` is by what earlier sums had to be multiplied.
template <class P>
__attribute__((noinline)) void rounded_exponentials(const Item<float, P>& item, const TilePair& rows,
                                                    std::int64_t block, bool first, float* sums,
                                                    float* correction) {
  const std::int64_t stride = item.layout.score_row, begin = block * P::kRows,
                     end = smaller(rows.count, begin + P::kRows);
  const Span& span = rows.span[block];
  float* const scores = item.scratch + item.layout.scores;
  const __m512 nothing = _mm512_set1_ps(-INFINITY);
  for (std::int64_t group = begin; group < end; group += kFoldedRows) {
    const std::int64_t count = smaller(kFoldedRows, end - group);
    const __mmask16 used = bf16::mask_of(count);
    alignas(64) float shifts[kFoldedRows], scales[kFoldedRows];
    __m512 folded[kFoldedRows];
    for (std::int64_t i = 0; i < kFoldedRows; ++i) {
      folded[i] = nothing;
      if (i >= count) continue;
      const std::int64_t r = group + i;
      const float* const row = scores + r * stride;
      scales[i] = item.call.factor(rows.head[r]) * kLog2E;
      const __m512 scale = _mm512_set1_ps(scales[i]);
      __m512 best[2] = {nothing, nothing};
      each_piece(span, [&](std::int64_t t, auto full) {
        for (int half = 0; half < 2; ++half) {
          const __m512 here = _mm512_loadu_ps(row + t + 16 * half) * scale;
          const __mmask16 seen = full ? 0xffff : seen_mask(rows, r, t + 16 * half);
          best[half] = _mm512_mask_max_ps(best[half], seen, here, best[half]);
        }
      });
      folded[i] = larger_of(best[0], best[1]);
    }
    float* const maxima = item.log_sum(rows.head[group], rows.query[group]);
    const __m512 before = first ? nothing : _mm512_maskz_loadu_ps(used, maxima),
                 now = larger_of(fold_rows(folded, larger_of), before);
    // A row that sees nothing: 2^-infinity is 0.
    const __m512 shift = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(now, nothing, _CMP_NEQ_UQ), now);
    const __m512 corrections = power_of_two(before - shift);
    _mm512_mask_storeu_ps(maxima, used, now);
    _mm512_store_ps(shifts, shift);
    _mm512_mask_storeu_ps(correction + group, used, corrections);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t r = group + i;
      float* const row = scores + r * stride;
      Pair* const pairs = item.factors_at(item.layout.scores) + r * stride;
      const std::int64_t list_row = rows.tile.first + r;
      item.prefetch(item.args.output, item.output_strides(), {item.batch, rows.query[r], rows.head[r]});
      item.prefetch(item.args.q, item.args.q_strides, item.query_index(list_row + P::kQueryTile));
      item.prefetch_next_keys(rows.key_begin, list_row);
      KeepBits keep;
      const bool drops = item.args.drop_below > 0;
      if (drops && rows.see_begin[r] < rows.see_end[r]) keep.draw(item, rows, r);
      const __m512 scale = _mm512_set1_ps(scales[i]), by = _mm512_set1_ps(shifts[i]);
      __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      each_piece(span, [&](std::int64_t t, auto full) {
        __m512 e[2];
        for (int half = 0; half < 2; ++half) {
          const std::int64_t at = t + 16 * half;
          e[half] = power_of_two(_mm512_loadu_ps(row + at) * scale - by);
          const __mmask16 seen = full ? 0xffff : seen_mask(rows, r, at);
          if (!full) e[half] = _mm512_maskz_mov_ps(seen, e[half]);
          sum[half] += e[half];
          if (drops && seen != 0) e[half] = _mm512_maskz_mov_ps(keep.at(at), e[half]);
        }
        bf16::store(pairs + t / 2, reinterpret_cast<bf16::PairVector>(_mm512_cvtne2ps_pbh(e[1], e[0])));
      });
      folded[i] = sum[0] + sum[1];
    }
    const __m512 so_far = first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(used, sums + group);
    for (std::int64_t i = count; i < kFoldedRows; ++i) folded[i] = _mm512_setzero_ps();
    _mm512_mask_storeu_ps(sums + group, used, so_far * corrections + fold_rows(folded, sum_of));
  }
}

// delta[r] = a . b for the rows of a query tile.
template <class P>
__attribute__((noinline)) void rounded_deltas(const Item<float, P>& item, const TilePair& rows, const void* a,
                                              const AttentionStrides& a_strides, const void* b,
                                              const AttentionStrides& b_strides, float* delta) {
  for (std::int64_t group = 0; group < rows.count; group += kFoldedRows) {
    __m512 folded[kFoldedRows];
    for (std::int64_t i = 0; i < kFoldedRows; ++i) {
      const std::int64_t r = smaller(group + i, rows.count - 1);
      const float* const x = item.at(a, a_strides, rows.query[r], rows.head[r]);
      const float* const y = item.at(b, b_strides, rows.query[r], rows.head[r]);
      folded[i] = _mm512_setzero_ps();
      for (std::int64_t c = 0; c < item.args.head_size; c += 16) {
        const __mmask16 mask = bf16::mask_of(item.args.head_size - c);
        folded[i] += _mm512_maskz_loadu_ps(mask, x + c) * _mm512_maskz_loadu_ps(mask, y + c);
      }
    }
    _mm512_storeu_ps(delta + group, fold_rows(folded, sum_of));
  }
}

// Two products of kPiece rows and columns, q k^T and do v^T, in units of one or two tile instructions that run between
// others, so that the tiles compute while vectors do: a backward pass takes 6.4 ms so, and 7.1 otherwise
// (docs/choices.md). While it runs, nothing else uses tiles.
template <class Tiles>
struct PieceProducts {
  const Pair *left[2], *right[2];
  float* result[2];
  std::int64_t row;    // of the left factors, in pairs
  std::int64_t steps;  // of 16 pairs
  std::int64_t product = 2, step = 0, unit = 0;

  void start() { product = 0; }
  EDDY_INLINE std::int64_t units() const { return 2 * (4 * steps + 2); }
  EDDY_INLINE void run(std::int64_t count) {
    for (; count > 0 && product < 2; --count) next();
  }
  EDDY_INLINE void next() {
    constexpr std::int64_t word = sizeof(Pair), panel = kPanel<float>;
    const Pair *const a = left[product] + 16 * step, *const b = right[product] + 16 * step * panel;
    float* const c = result[product];
    switch (unit++) {
      case 0:
        if (step == 0) {
          Tiles::template zero<0>();
          Tiles::template zero<1>();
          Tiles::template zero<2>();
          Tiles::template zero<3>();
        }
        Tiles::template load<6>(b, panel * word);
        Tiles::template load<4>(a, row * word);
        return Tiles::template multiply<0, 4, 6>();
      case 1:
        Tiles::template load<7>(b + 16, panel * word);
        return Tiles::template multiply<1, 4, 7>();
      case 2:
        Tiles::template load<5>(a + 16 * row, row * word);
        return Tiles::template multiply<2, 5, 6>();
      case 3:
        if (++step < steps) unit = 0;
        return Tiles::template multiply<3, 5, 7>();
      case 4:
        Tiles::template store<0>(c, kPiece * word);
        return Tiles::template store<1>(c + 16, kPiece * word);
      default:
        Tiles::template store<2>(c + 16 * kPiece, kPiece * word);
        Tiles::template store<3>(c + 16 * kPiece + 16, kPiece * word);
        step = unit = 0;
        ++product;
    }
  }
};

// Turns the scores of a query tile into pairs of p and dr, one block of rows and kPiece keys after the other: while the
// tiles compute the next piece, this one is turned into pairs. prefetch(r, 0) to prefetch(r, kPrefetches - 1) are
// called for each row, evenly over time, since a processor waits for few lines at once.
template <class Tiles, class P, class Prefetch>
__attribute__((noinline)) void rounded_gradients(const Item<float, P>& item, const TilePair& rows,
                                                 const Skew& skew, const RoundedGradients& x,
                                                 const Prefetch& prefetch) {
  static_assert(P::kRows == kPiece);
  constexpr std::int64_t kBlocks = P::kQueryTile / P::kRows, kTurns = kPiece / 2;
  const AttentionArgs& args = item.args;
  const AttentionScratch& at = item.layout;
  const std::int64_t pairs = inner_size<P>(args.head_size);
  const __m512 keep_scale = _mm512_set1_ps(static_cast<float>(args.keep_scale));
  const bool drops = args.drop_below > 0, tables = item.call.has_tables() || x.dhead_scale != nullptr;
  KeepBits keep[P::kQueryTile];
  if (drops)
    for (std::int64_t r = 0; r < rows.count; ++r)
      if (rows.see_begin[r] < rows.see_end[r]) keep[r].draw(item, rows, r);
  alignas(64) float scores[2][kPiece * kPiece], dscores[2][kPiece * kPiece];
  __m512 dhead_scale = _mm512_setzero_ps();

  // Pairs of row r and of 32 keys, of p and of dr. `full` says that the row sees all of them; without with_drops or
  // with_tables there are no dropout or no tables.
  const auto round_row = [&](std::int64_t r, std::int64_t t, const float* score_row, const float* dp_row,
                             auto full, auto with_drops, auto with_tables, __m512i& p_pairs,
                             __m512i& dr_pairs) {
    const __m512 scale = _mm512_set1_ps(x.scale[r]), log_sum = _mm512_set1_ps(x.log_sum[r]),
                 delta = _mm512_set1_ps(x.delta[r]), factor = _mm512_set1_ps(x.factor[r]);
    __m512 p[2], dr[2];
    for (int half = 0; half < 2; ++half) {
      const std::int64_t key = t + 16 * half, distance = skew.base - r + key,
                         relative = r * at.skew_row + distance - skew.origin;
      __mmask16 seen = 0xffff;
      if (!full) seen = r < rows.count ? seen_mask(rows, r, key) : static_cast<__mmask16>(0);
      __m512 score = _mm512_load_ps(score_row + 16 * half), dp = _mm512_load_ps(dp_row + 16 * half);
      if (with_tables) {
        if (x.relative != nullptr) score += _mm512_maskz_loadu_ps(seen, x.relative + relative);
        if (x.bias != nullptr) score += _mm512_maskz_loadu_ps(seen, x.bias + distance);
      }
      const __m512 e = power_of_two(score * scale - log_sum);
      p[half] = e;
      if (with_drops && drops) {
        const __mmask16 kept = seen == 0 ? seen : keep[r].at(key);
        dp = _mm512_maskz_mul_ps(kept, dp, keep_scale);
        p[half] = _mm512_maskz_mul_ps(kept, e, keep_scale);
      }
      const __m512 dscore = e * (dp - delta);
      dr[half] = dscore * factor;
      if (!full) {
        p[half] = _mm512_maskz_mov_ps(seen, p[half]);
        dr[half] = _mm512_maskz_mov_ps(seen, dr[half]);
      }
      if (!with_tables) continue;
      if (x.relative != nullptr) _mm512_mask_storeu_ps(x.relative + relative, seen, dr[half]);
      if (x.dbias != nullptr)
        _mm512_mask_storeu_ps(x.dbias + distance, seen,
                              _mm512_maskz_loadu_ps(seen, x.dbias + distance) + dr[half]);
      if (x.dhead_scale != nullptr && seen != 0 && !item.call.sees_one(rows.query[r]))
        dhead_scale += _mm512_maskz_mul_ps(seen, score, dscore);
    }
    p_pairs = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p[1], p[0]));
    dr_pairs = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(dr[1], dr[0]));
  };

  // The pieces that some row of a block sees. Where none does, but another block's, pairs are zeros.
  struct Piece {
    std::int64_t block, key;
    bool full;
  } pieces[kBlocks * kAttentionKeyTile / kPiece];
  std::int64_t count = 0;
  for (std::int64_t t = rows.begin; t < rows.end; t += kPiece)
    for (std::int64_t b = 0; b < rows.blocks; ++b) {
      const Span& span = rows.span[b];
      const bool complete = (b + 1) * P::kRows <= rows.count;
      if (t < span.end && t + kPiece > span.begin)
        pieces[count++] = {b, t, complete && t >= span.full_begin && t + kPiece <= span.full_end};
      else
        for (std::int64_t key = t; key < t + kPiece; ++key)
          for (Pair* to : {x.p_across, x.dr_across})
            bf16::store(P::across(to, b * P::kRows, key, 0), bf16::PairVector{});
    }
  if (count == 0) return;
  PieceProducts<Tiles> products;
  products.row = at.row;
  products.steps = pairs / 16;
  const auto start = [&](std::int64_t i) {
    const std::int64_t rows_before = pieces[i].block * P::kRows * at.row, t = pieces[i].key,
                       column = t / kPanel<float> * kPanel<float> * pairs + t % kPanel<float>;
    products.left[0] = x.q + rows_before;
    products.left[1] = x.doutput + rows_before;
    products.right[0] = x.keys_t + column;
    products.right[1] = x.values_t + column;
    products.result[0] = scores[i % 2];
    products.result[1] = dscores[i % 2];
    products.start();
  };
  const std::int64_t units = (products.units() + kTurns - 1) / kTurns,
                     fetches = (rows.count * kPrefetches + count * kTurns - 1) / (count * kTurns);
  std::int64_t fetched_row = 0, fetched = 0;
  // squares[k][h] of p (k = 0) and dr (1): pairs of rows for columns 8 j + 4 h + 0 to 3, j = 0 to 3.
  const auto round_piece = [&](std::int64_t i, auto full, auto with_drops, auto with_tables) {
    alignas(64) __m512i squares[2][2][kTurns];
    const std::int64_t first = pieces[i].block * P::kRows, t = pieces[i].key;
    const float *score_row = scores[i % 2], *dp_row = dscores[i % 2];
    Pair* along = x.dr_along + first * at.score_row + t / 2;
    for (std::int64_t turn = 0; turn < kTurns; ++turn) {
      products.run(units);
      for (std::int64_t n = 0; n < fetches && fetched_row < rows.count; ++n) {
        prefetch(fetched_row, fetched);
        if (++fetched == kPrefetches) {
          fetched = 0;
          ++fetched_row;
        }
      }
      __m512i upper[2], lower[2];
      round_row(first + 2 * turn, t, score_row, dp_row, full, with_drops, with_tables, upper[0], upper[1]);
      round_row(first + 2 * turn + 1, t, score_row + kPiece, dp_row + kPiece, full, with_drops, with_tables,
                lower[0], lower[1]);
      score_row += 2 * kPiece;
      dp_row += 2 * kPiece;
      _mm512_storeu_si512(along, upper[1]);
      _mm512_storeu_si512(along + at.score_row, lower[1]);
      along += 2 * at.score_row;
      for (int k = 0; k < 2; ++k) {
        squares[k][0][turn] = _mm512_maskz_unpacklo_epi16(~__mmask32{0}, upper[k], lower[k]);
        squares[k][1][turn] = _mm512_maskz_unpackhi_epi16(~__mmask32{0}, upper[k], lower[k]);
      }
    }
    for (int k = 0; k < 2; ++k)
      for (int h = 0; h < 2; ++h) {
        bf16::PairVector square[16];
        for (int j = 0; j < 16; ++j) square[j] = reinterpret_cast<bf16::PairVector>(squares[k][h][j]);
        transpose_square<16>(square);
        Pair* const to = k == 0 ? x.p_across : x.dr_across;
        for (int j = 0; j < 16; ++j)
          bf16::store(P::across(to, first, t + j / 4 * 8 + j % 4 + 4 * h, 0), square[j]);
      }
  };
  start(0);
  products.run(products.units());
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + 1 < count) start(i + 1);
    const std::true_type yes;
    const std::false_type no;
    if (tables)
      round_piece(i, no, yes, yes);
    else if (drops)
      pieces[i].full ? round_piece(i, yes, yes, no) : round_piece(i, no, yes, no);
    else
      pieces[i].full ? round_piece(i, yes, no, no) : round_piece(i, no, no, no);
  }
  if (x.dhead_scale != nullptr) {
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, dhead_scale);
    for (const float lane : lanes) *x.dhead_scale += lane;
  }
}

}  // namespace
}  // namespace eddy::EDDY_ISA
EDDY_TARGET_END
#endif
