// Attention by heads of 4, 8 or 16 in f32, with AVX-512: 16 queries of one head side by side, one in each lane. A key
// or a value is then as many scalars, each of which multiplies a vector of queries; along a head of 8 half of a
// register would be empty, in each of five products: it takes a quarter to three fifths less time so (docs/choices.md).
// The gradients of keys and values are summed without transposing their weights, which takes 6 to 15 % off backward.
// Only the two kernels of attention include this header.
#pragma once

#include <math.h>

#include "ops/attention/attention_item.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/vec_math.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

// Whether a call is computed so.
EDDY_INLINE bool has_narrow_heads(const AttentionArgs& args) {
  return args.head_scale == nullptr && args.bias == nullptr && args.positions == nullptr &&
         attention_has_narrow_heads(args.dtype, args.queries, args.keys, args.head_size, args.precision);
}

#if defined(__AVX512F__)
using Lanes = Vector<float>::type;
using LaneNumbers = Vector<float>::index;
inline constexpr std::int64_t kQueryLanes = 16;  // queries side by side
inline constexpr std::int64_t kPieceKeys = 64;   // keys whose scores are held

// 2^x with a relative error of 1e-7; 0 below 2^-126.
EDDY_INLINE Lanes power_of_2(Lanes x) {
  return reinterpret_cast<Lanes>(power_of_two_by(reinterpret_cast<__m512>(x), 0x1.e974fap-10f, 0x1.277856p-7f,
                                                 0x1.c91ce6p-5f, 0x1.ebdb56p-3f, 0x1.62e4bap-1f, 1.0f));
}

EDDY_INLINE Lanes larger_lanes(Lanes a, Lanes b) {
  return a > b ? a : b;
}

// Rows `from`, from + step and so on side by side, as many as there is room for; in place of those from `count` on the
// last.
template <int kSize>
EDDY_INLINE __m512 rows_beside(const float* x, std::int64_t stride, std::int64_t count, std::int64_t from,
                               int step) {
  const auto row = [&](int i) { return x + smaller(from + i * step, count - 1) * stride; };
  if constexpr (kSize == 16) return _mm512_loadu_ps(row(0));
  if constexpr (kSize == 8)
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(row(0))), _mm256_loadu_ps(row(1)), 1);
  if constexpr (kSize == 4) {
    __m512 rows = _mm512_castps128_ps512(_mm_loadu_ps(row(0)));
    rows = _mm512_insertf32x4(rows, _mm_loadu_ps(row(1)), 1);
    rows = _mm512_insertf32x4(rows, _mm_loadu_ps(row(2)), 2);
    return _mm512_insertf32x4(rows, _mm_loadu_ps(row(3)), 3);
  }
}

// to[c] = factor * column c of 16 rows, of which those from `count` on are copies of the last.
template <int kSize>
EDDY_INLINE void read_columns(const float* x, std::int64_t stride, std::int64_t count, float factor,
                              Lanes* to) {
  for (int r = 0; r < kSize; ++r)
    to[r] = reinterpret_cast<Lanes>(rows_beside<kSize>(x, stride, count, r, kSize));
  transpose_squares<kSize, 16>(to);
  for (int c = 0; c < kSize; ++c) to[c] *= factor;
}
// The inverse, for the first `count` rows, which are added to if `adds`. The columns are overwritten.
template <int kSize>
EDDY_INLINE void write_columns(Lanes* x, std::int64_t stride, std::int64_t count, bool adds, float* to) {
  transpose_squares<kSize, 16>(x);
  for (std::int64_t r = 0; r < count; ++r, to += stride) {
    const float* const from = reinterpret_cast<const float*>(x + r % kSize) + r / kSize * kSize;
    for (int c = 0; c < kSize; ++c) to[c] = adds ? to[c] + from[c] : from[c];
  }
}

// kFloats floats, again and again.
template <int kFloats>
EDDY_INLINE Lanes repeated(const float* x) {
  if constexpr (kFloats == 1) return reinterpret_cast<Lanes>(_mm512_set1_ps(*x));
  if constexpr (kFloats == 2) {
    double pair;
    memcpy(&pair, x, sizeof pair);
    return reinterpret_cast<Lanes>(_mm512_set1_pd(pair));
  }
  if constexpr (kFloats == 4)
    return reinterpret_cast<Lanes>(_mm512_maskz_broadcast_f32x4(0xffff, _mm_loadu_ps(x)));
}

// to[t] = sum over c of q[c] rows[t][c], for `count` rows.
template <int kSize>
__attribute__((noinline)) void narrow_dots(const Lanes* q, const float* rows, std::int64_t stride,
                                           std::int64_t count, Lanes* to) {
  constexpr int kSums = 8;
  Lanes query[kSize];
  for (int c = 0; c < kSize; ++c) query[c] = q[c];
  std::int64_t t = 0;
  for (; t + kSums <= count; t += kSums) {
    Lanes sum[kSums] = {};
#pragma GCC unroll 16
    for (int c = 0; c < kSize; ++c)
#pragma GCC unroll 8
      for (int i = 0; i < kSums; ++i) sum[i] += query[c] * rows[(t + i) * stride + c];
#pragma GCC unroll 8
    for (int i = 0; i < kSums; ++i) to[t + i] = sum[i];
  }
  for (; t < count; ++t) {
    Lanes sum{};
    for (int c = 0; c < kSize; ++c) sum += query[c] * rows[t * stride + c];
    to[t] = sum;
  }
}

// sums[c] += sum over t of weights[t] rows[t][c], for `count` rows.
template <int kSize>
__attribute__((noinline)) void narrow_mix(const Lanes* weights, const float* rows, std::int64_t stride,
                                          std::int64_t count, Lanes* sums) {
  Lanes sum[kSize];
#pragma GCC unroll 16
  for (int c = 0; c < kSize; ++c) sum[c] = sums[c];
  for (std::int64_t t = 0; t < count; ++t) {
    const Lanes weight = weights[t];
#pragma GCC unroll 16
    for (int c = 0; c < kSize; ++c) sum[c] += weight * rows[t * stride + c];
  }
#pragma GCC unroll 16
  for (int c = 0; c < kSize; ++c) sums[c] = sum[c];
}

// Rows of the gradients of keys and values are sums over queries, the lanes. A vector has room for kCopies such rows of
// one key: copies of an element lie side by side, and each sums every kCopies-th query.
template <int kSize>
inline constexpr int kCopies = kQueryLanes / kSize;

// sums[t] += sum over the lanes l of weights[t] of weights[t][l] times row l, for `count` keys. rows[j] holds the rows
// from j kCopies on, with copies of an element side by side.
template <int kSize, int kKeys>
EDDY_INLINE void mix_across_keys(const Lanes* weights, const Lanes* rows, std::int64_t count, Lanes* sums) {
  constexpr int copies = kCopies<kSize>;
  std::int64_t t = 0;
  for (; t + kKeys <= count; t += kKeys) {
    Lanes sum[kKeys];
#pragma GCC unroll 8
    for (int i = 0; i < kKeys; ++i) sum[i] = sums[t + i];
#pragma GCC unroll 16
    for (int j = 0; j < kSize; ++j)
#pragma GCC unroll 8
      for (int i = 0; i < kKeys; ++i)
        sum[i] += repeated<copies>(reinterpret_cast<const float*>(weights + t + i) + j * copies) * rows[j];
#pragma GCC unroll 8
    for (int i = 0; i < kKeys; ++i) sums[t + i] = sum[i];
  }
  if constexpr (kKeys > 1) mix_across_keys<kSize, kKeys / 2>(weights + t, rows, count - t, sums + t);
}
template <int kSize>
__attribute__((noinline)) void narrow_mix_across(const Lanes* weights, const Lanes* rows, std::int64_t count,
                                                 Lanes* sums) {
  Lanes row[kSize];
#pragma GCC unroll 16
  for (int j = 0; j < kSize; ++j) row[j] = rows[j];
  mix_across_keys<kSize, 8>(weights, row, count, sums);
}

// Sums of neighbouring lanes: those of x, then those of y.
EDDY_INLINE Lanes neighbour_sums(Lanes x, Lanes y) {
  return __builtin_shufflevector(x, y, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
         __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
// Writes the rows of `count` keys. It reads up to kCopies - 1 sums more.
template <int kSize>
EDDY_INLINE void write_sums(const Lanes* sums, std::int64_t count, std::int64_t stride, float* to) {
  constexpr int copies = kCopies<kSize>;
  for (std::int64_t t = 0; t < count; t += copies) {
    Lanes rows = sums[t];
    if constexpr (copies == 2) rows = neighbour_sums(rows, sums[t + 1]);
    if constexpr (copies == 4)
      rows = neighbour_sums(neighbour_sums(rows, sums[t + 1]), neighbour_sums(sums[t + 2], sums[t + 3]));
    const auto write = [&](auto r) __attribute__((always_inline)) {
      if (t + r() >= count) return;
      const __m512 x = reinterpret_cast<__m512>(rows);
      float* const row = to + (t + r()) * stride;
      if constexpr (kSize == 16) _mm512_storeu_ps(row, x);
      if constexpr (kSize == 8) _mm256_storeu_ps(row, _mm512_extractf32x8_ps(x, r()));
      if constexpr (kSize == 4) _mm_storeu_ps(row, _mm512_maskz_extractf32x4_ps(0xf, x, r()));
    };
    write(std::integral_constant<int, 0>{});
    if constexpr (copies > 1) write(std::integral_constant<int, 1>{});
    if constexpr (copies > 2) {
      write(std::integral_constant<int, 2>{});
      write(std::integral_constant<int, 3>{});
    }
  }
}

// Up to 16 queries of one head from `first` on.
template <int kSize>
struct NarrowQueries {
  const AttentionArgs& args;
  std::int64_t batch, head, kv_head, first, count;
  std::int64_t begin, end;            // keys that some query sees
  std::int64_t full_begin, full_end;  // and those that no lane has to leave out
  std::int64_t offset;                // distance of query `first` and key 0

  NarrowQueries(const AttentionArgs& a, std::int64_t b, std::int64_t h, std::int64_t q)
      : args(a),
        batch(b),
        head(h),
        kv_head(h / (a.heads / a.kv_heads)),
        first(q),
        count(smaller(kQueryLanes, a.queries - q)),
        offset(a.keys - a.queries + q) {
    const std::int64_t last = offset + count - 1;
    begin = larger(0, offset - a.most);
    end = larger(0, smaller(a.keys, last - a.least + 1));
    full_begin = larger(begin, last - a.most);
    full_end = smaller(a.keys, offset - a.least + 1);
    if (count < kQueryLanes || full_end < full_begin) full_begin = full_end = begin;
  }

  const float* row(const void* base, const AttentionStrides& s, std::int64_t time, std::int64_t h) const {
    return static_cast<const float*>(base) + batch * s.batch + time * s.time + h * s.head;
  }
  AttentionStrides output_strides() const {
    return {args.queries * args.heads * kSize, args.heads * kSize, kSize};
  }
  // Rows of keys or values from `key` on, of which those of the past lie elsewhere.
  struct KeyRows {
    const float* first;
    std::int64_t stride;
  };
  KeyRows key_rows(const void* own, const AttentionStrides& own_strides, const void* past,
                   const AttentionStrides& past_strides, std::int64_t key) const {
    if (key < args.past) return {row(past, past_strides, key, kv_head), past_strides.time};
    return {row(own, own_strides, key, kv_head), own_strides.time};
  }
  KeyRows keys_from(std::int64_t key) const {
    return key_rows(args.k, args.k_strides, args.past_k, args.past_k_strides, key);
  }
  KeyRows values_from(std::int64_t key) const {
    return key_rows(args.v, args.v_strides, args.past_v, args.past_v_strides, key);
  }
  float* log_sums() const {
    return static_cast<float*>(args.log_sum) + (batch * args.heads + head) * args.queries + first;
  }
  // Columns of the queries' rows of a tensor.
  void read(const void* base, const AttentionStrides& s, float factor, Lanes* to) const {
    read_columns<kSize>(row(base, s, first, head), s.time, count, factor, to);
  }
  void write(Lanes* x, const void* base, const AttentionStrides& s, bool adds) const {
    write_columns<kSize>(x, s.time, count, adds, const_cast<float*>(row(base, s, first, head)));
  }
  // The same rows, kCopies in a vector, as narrow_mix_across reads them, and zeros in place of those past the end.
  void read_rows(const void* base, const AttentionStrides& s, float factor, Lanes* to) const {
    constexpr std::uint32_t copies = kCopies<kSize>;
    LaneNumbers lane;
    for (int i = 0; i < kQueryLanes; ++i) lane[i] = static_cast<std::uint32_t>(i);
    const LaneNumbers copy = lane % copies, place = copy * std::uint32_t{kSize} + lane / copies;
    for (int j = 0; j < kSize; ++j) {
      const std::int64_t from = j * std::int64_t{copies};
      const __mmask16 used = _mm512_cmplt_epu32_mask(
          reinterpret_cast<__m512i>(copy), _mm512_set1_epi32(static_cast<int>(larger(0, count - from))));
      const __m512 rows = rows_beside<kSize>(row(base, s, first, head), s.time, count, from, 1);
      to[j] = reinterpret_cast<Lanes>(
          _mm512_maskz_permutexvar_ps(used, reinterpret_cast<__m512i>(place), rows) * factor);
    }
  }

  // x in the lanes of queries that see `key`, `other` in the rest. The distance of a lane's query and the key lies in
  // the band; smaller ones wrap.
  EDDY_INLINE Lanes seen(Lanes x, std::int64_t key, Lanes other) const {
    LaneNumbers lane;
    for (int i = 0; i < kQueryLanes; ++i) lane[i] = static_cast<std::uint32_t>(i);
    const LaneNumbers distance = lane + static_cast<std::uint32_t>(offset - args.least - key);
    const auto in_band = distance <= static_cast<std::uint32_t>(args.most - args.least);
    const auto in_use = lane < static_cast<std::uint32_t>(count);
    return in_band & in_use ? x : other;
  }
  // The same for the keys from `key` on in x[0 .. n - 1].
  EDDY_INLINE void hide_unseen(Lanes* x, std::int64_t key, std::int64_t n, Lanes other) const {
    const std::int64_t from = larger(0, smaller(n, full_begin - key)), to = smaller(n, full_end - key);
    for (std::int64_t t = 0; t < from; ++t) x[t] = seen(x[t], key + t, other);
    for (std::int64_t t = larger(from, to); t < n; ++t) x[t] = seen(x[t], key + t, other);
  }

  // Dropout's factors of the probabilities of n keys from `key` on.
  void draw_keep(std::int64_t key, std::int64_t n, Lanes* keep) const {
    std::uint64_t element[kQueryLanes];
    for (std::int64_t i = 0; i < kQueryLanes; ++i)
      element[i] = static_cast<std::uint64_t>(
          ((batch * args.heads + head) * args.queries + first + smaller(i, count - 1)) * args.keys + key);
    keep_columns<float>(args.dropout_key, element, n, args.drop_below, static_cast<float>(args.keep_scale),
                        keep);
  }

  void forward() const {
    const Lanes nothing = Lanes{} - INFINITY;
    Lanes q[kSize], y[kSize] = {}, scores[kPieceKeys], keep[kPieceKeys + 4];
    Lanes most = nothing, shift{}, sum{};
    read(args.q, args.q_strides, static_cast<float>(args.scale) * kLog2E, q);
    for (std::int64_t key = begin; key < end; key += kPieceKeys) {
      const std::int64_t n = smaller(kPieceKeys, end - key), of_past = larger(0, smaller(n, args.past - key));
      const auto each_part = [&](auto&& body) {  // of the piece: first keys and how many
        if (of_past > 0) body(0, of_past);
        if (of_past < n) body(of_past, n - of_past);
      };
      each_part([&](std::int64_t t, std::int64_t size) {
        const KeyRows k = keys_from(key + t);
        narrow_dots<kSize>(q, k.first, k.stride, size, scores + t);
      });
      hide_unseen(scores, key, n, nothing);
      // Two maxima and two sums, since each waits for the one before.
      if (n % 2 != 0) scores[n] = nothing;
      Lanes here[2] = {most, most};
      for (std::int64_t t = 0; t < n; t += 2) {
        here[0] = larger_lanes(scores[t], here[0]);
        here[1] = larger_lanes(scores[t + 1], here[1]);
      }
      here[0] = larger_lanes(here[0], here[1]);
      shift = here[0] == nothing ? Lanes{} : here[0];  // of a query that sees nothing: 2^-infinity is 0
      if (key > begin) {
        const Lanes correction = power_of_2(most - shift);
        sum *= correction;
        for (Lanes& x : y) x *= correction;
      }
      most = here[0];
      Lanes sums[2] = {};
      for (std::int64_t t = 0; t < n; t += 2) {
        sums[0] += scores[t] = power_of_2(scores[t] - shift);
        sums[1] += scores[t + 1] = power_of_2(scores[t + 1] - shift);
      }
      sum += sums[0] + sums[1];
      if (args.drop_below > 0) {
        draw_keep(key, n, keep);
        for (std::int64_t t = 0; t < n; ++t) scores[t] *= keep[t];
      }
      each_part([&](std::int64_t t, std::int64_t size) {
        const KeyRows v = values_from(key + t);
        narrow_mix<kSize>(scores + t, v.first, v.stride, size, y);
      });
    }
    const Lanes factor = sum > 0.0f ? 1.0f / sum : Lanes{};
    for (Lanes& x : y) x *= factor;
    write(y, args.output, output_strides(), false);
    for (std::int64_t i = 0; i < count; ++i)
      log_sums()[i] = sum[i] > 0 ? shift[i] * kLn2 + vec::log(sum[i]) : -INFINITY;
  }

  // The part of the backward pass that concerns the keys [tile_begin, tile_end), to whose gradients dk and dv it adds.
  // `p` and `ds` are those of backward_tile.
  void backward(const AttentionBackwardArgs& gradient, std::int64_t tile_begin, std::int64_t tile_end,
                Lanes* dk, Lanes* dv) const {
    const std::int64_t from = larger(tile_begin, begin), to = smaller(tile_end, end);
    if (from >= to) {
      Lanes zeros[kSize] = {};
      if (begin >= end && tile_begin == 0 && gradient.dq != nullptr)
        write(zeros, gradient.dq, gradient.dq_strides, false);
      return;
    }
    const float scale = static_cast<float>(args.scale);
    Lanes q[kSize], doutput[kSize], output[kSize], dq[kSize] = {};
    Lanes q_rows[kSize], doutput_rows[kSize];
    read(args.q, args.q_strides, scale * kLog2E, q);
    read(gradient.doutput, gradient.doutput_strides, 1, doutput);
    read(args.output, output_strides(), 1, output);
    read_rows(args.q, args.q_strides, scale, q_rows);
    read_rows(gradient.doutput, gradient.doutput_strides, 1, doutput_rows);
    Lanes delta{}, log_sum{};
    for (int c = 0; c < kSize; ++c) delta += doutput[c] * output[c];
    for (std::int64_t i = 0; i < count; ++i) log_sum[i] = log_sums()[i] * kLog2E;
    // Over one key the softmax is constant. Without this, rounding would leave a gradient.
    Lanes one{};
    bool some_one = false;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t last = smaller(args.keys, offset + i - args.least + 1);
      if (last - larger(0, offset + i - args.most) != 1) continue;
      one[i] = 1;
      some_one = true;
    }

    Lanes p[kPieceKeys], ds[kPieceKeys], keep[kPieceKeys + 4];
    for (std::int64_t key = from, n = 0; key < to; key += n) {
      n = smaller(kPieceKeys, (key < args.past ? smaller(to, args.past) : to) - key);
      const KeyRows k = keys_from(key), v = values_from(key);
      narrow_dots<kSize>(q, k.first, k.stride, n, p);
      narrow_dots<kSize>(doutput, v.first, v.stride, n, ds);
      if (args.drop_below > 0) {
        draw_keep(key, n, keep);
        for (std::int64_t t = 0; t < n; ++t) {
          const Lanes e = power_of_2(p[t] - log_sum);
          ds[t] = e * (keep[t] * ds[t] - delta);
          p[t] = e * keep[t];
        }
      } else {
        for (std::int64_t t = 0; t < n; ++t) {
          p[t] = power_of_2(p[t] - log_sum);
          ds[t] = p[t] * (ds[t] - delta);
        }
      }
      hide_unseen(p, key, n, Lanes{});
      hide_unseen(ds, key, n, Lanes{});
      if (some_one)
        for (std::int64_t t = 0; t < n; ++t) ds[t] = one == Lanes{} ? ds[t] : Lanes{};
      narrow_mix<kSize>(ds, k.first, k.stride, n, dq);
      narrow_mix_across<kSize>(ds, q_rows, n, dk + (key - tile_begin));
      narrow_mix_across<kSize>(p, doutput_rows, n, dv + (key - tile_begin));
    }
    if (gradient.dq == nullptr) return;
    for (Lanes& x : dq) x *= scale;
    write(dq, gradient.dq, gradient.dq_strides, begin < tile_begin);
  }
};

template <int kSize>
void narrow_forward_of(const AttentionArgs& args) {
  const std::int64_t chunks = (args.queries + kAttentionForwardRows - 1) / kAttentionForwardRows;
  for_each_item(args.threads, args.batch * args.heads * chunks, [&](int, std::int64_t index) {
    const std::int64_t item = index / chunks, begin = index % chunks * kAttentionForwardRows,
                       end = smaller(args.queries, begin + kAttentionForwardRows);
    for (std::int64_t q = begin; q < end; q += kQueryLanes)
      NarrowQueries<kSize>(args, item / args.heads, item % args.heads, q).forward();
  });
}

// A work item is a key head of one batch entry, and goes through its keys in tiles, whose gradients are sums in scratch
// memory.
template <int kSize>
void narrow_backward_of(const AttentionBackwardArgs& gradient) {
  const AttentionArgs& args = gradient.forward;
  const AttentionScratch layout = attention_scratch(args.head_size);
  const AttentionShared shared = attention_shared(args, &gradient);
  const std::int64_t group = args.heads / args.kv_heads;
  for_each_item(args.threads, args.batch * args.kv_heads, [&](int rank, std::int64_t index) {
    const std::int64_t batch = index / args.kv_heads, kv_head = index % args.kv_heads;
    float* const scratch = static_cast<float*>(args.scratch) + shared.elements + rank * layout.elements;
    Lanes *const dk = reinterpret_cast<Lanes*>(scratch + layout.dkeys), *const dv = reinterpret_cast<Lanes*>(
                                                                            scratch + layout.dvalues);
    for (std::int64_t key = 0; key < args.keys; key += kAttentionKeyTile) {
      const std::int64_t end = smaller(args.keys, key + kAttentionKeyTile);
      for (std::int64_t t = 0; t < end - key; ++t) dk[t] = dv[t] = Lanes{};
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (std::int64_t q = 0; q < args.queries; q += kQueryLanes)
          NarrowQueries<kSize>(args, batch, head, q).backward(gradient, key, end, dk, dv);
      const auto write = [&](void* past, const AttentionStrides& past_strides, void* own,
                             const AttentionStrides& own_strides, const Lanes* sums) {
        const auto write_part = [&](void* base, const AttentionStrides& s, std::int64_t from,
                                    std::int64_t to) {
          if (base != nullptr && from < to)
            write_sums<kSize>(sums + (from - key), to - from, s.time,
                              static_cast<float*>(base) + batch * s.batch + from * s.time + kv_head * s.head);
        };
        write_part(past, past_strides, key, smaller(end, args.past));
        write_part(own, own_strides, larger(key, args.past), end);
      };
      write(gradient.past_dk, gradient.past_dk_strides, gradient.dk, gradient.dk_strides, dk);
      write(gradient.past_dv, gradient.past_dv_strides, gradient.dv, gradient.dv_strides, dv);
    }
  });
}

template <class Call>
EDDY_INLINE void with_narrow_size(const AttentionArgs& args, Call&& call) {
  if (args.head_size == 4)
    call(std::integral_constant<int, 4>{});
  else if (args.head_size == 8)
    call(std::integral_constant<int, 8>{});
  else
    call(std::integral_constant<int, 16>{});
}
#endif

}  // namespace
}  // namespace eddy::EDDY_ISA
