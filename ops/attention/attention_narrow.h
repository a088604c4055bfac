// Attention by heads of 4, 8 or 16 in f32, with AVX-512: 16 queries of one head side by side, one in each lane. A key or a
// value is then as many scalars, each of which multiplies a vector of queries; along a head of 8 half of a register would be
// empty, in each of five products. Only the two kernels of attention include this header.
//
// Milliseconds forward + backward on one core of an Intel Xeon with AMX (2026-11-27), in brackets along the heads, for
// windows with 16 sequences side by side:
//
//   16 sequences of 1,024 tokens, 4 heads of 8, causal         11 + 25     (24 + 42)
//   64 of 64 tokens, 4 heads of 8, causal                    0.28 + 0.71   (1.0 + 1.6)
//   16 of 256 tokens, 4 heads of 16, causal                   1.2 + 2.9    (1.9 + 3.4)
//   windows: 64 of 32 queries and 64 keys, 4 heads of 8      0.19 + 0.50   (0.30 + 0.61)
//   windows: 64 of 32 queries and 64 keys, 4 heads of 16     0.32 + 0.80   (0.55 + 1.24)
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

// to[c] = factor * column c of 16 rows, of which those from `count` on are copies of the last.
template <int kSize>
EDDY_INLINE void read_columns(const float* x, std::int64_t stride, std::int64_t count, float factor,
                              Lanes* to) {
  const auto row = [&](std::int64_t r) { return x + smaller(r, count - 1) * stride; };
  for (int r = 0; r < kSize; ++r) {
    __m512 rows;  // r, r + kSize and so on, side by side
    if constexpr (kSize == 16) {
      rows = _mm512_loadu_ps(row(r));
    } else if constexpr (kSize == 8) {
      rows =
          _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(row(r))), _mm256_loadu_ps(row(r + 8)), 1);
    } else {
      rows = _mm512_castps128_ps512(_mm_loadu_ps(row(r)));
      rows = _mm512_insertf32x4(rows, _mm_loadu_ps(row(r + 4)), 1);
      rows = _mm512_insertf32x4(rows, _mm_loadu_ps(row(r + 8)), 2);
      rows = _mm512_insertf32x4(rows, _mm_loadu_ps(row(r + 12)), 3);
    }
    to[r] = reinterpret_cast<Lanes>(rows);
  }
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

// The same with the keys in the lanes: lane t of sums[c] += sum over the lanes l of weights[t] of weights[t][l] rows[l][c],
// for 16 keys.
template <int kSize>
__attribute__((noinline)) void narrow_mix_across(const Lanes* weights, const float* rows, Lanes* sums) {
  Lanes turned[kQueryLanes], sum[kSize];
  for (int t = 0; t < kQueryLanes; ++t) turned[t] = weights[t];
  transpose_square<kQueryLanes>(turned);
#pragma GCC unroll 16
  for (int c = 0; c < kSize; ++c) sum[c] = sums[c];
#pragma GCC unroll 16
  for (int l = 0; l < kQueryLanes; ++l)
#pragma GCC unroll 16
    for (int c = 0; c < kSize; ++c) sum[c] += turned[l] * rows[l * kSize + c];
#pragma GCC unroll 16
  for (int c = 0; c < kSize; ++c) sums[c] = sum[c];
}

// Keys whose gradients are summed together: [begin, end), in two parts, those of the past and the rest. Each part begins
// columns of its own, for 16 keys each; the scratch has room for 16 keys more than a tile.
struct KeyTile {
  std::int64_t begin, end, past;

  std::int64_t part_begin(std::int64_t key) const { return key < past ? begin : larger(begin, past); }
  std::int64_t part_end(std::int64_t key) const { return key < past ? smaller(past, end) : end; }
  // Where a key's gradient is, counted in keys; `key` may be the end.
  std::int64_t place(std::int64_t key) const {
    const std::int64_t before = past > begin && key >= past ? up_to(kQueryLanes, past - begin) : 0;
    return before + key - part_begin(key);
  }
};

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
  // The same rows as they are, and zeros in place of those past the end.
  void copy_rows(const void* base, const AttentionStrides& s, float factor, float* to) const {
    constexpr __mmask16 size = static_cast<__mmask16>((1 << kSize) - 1);
    for (std::int64_t r = 0; r < kQueryLanes; ++r) {
      const __mmask16 used = r < count ? size : __mmask16{0};
      const float* const from = row(base, s, first + smaller(r, count - 1), head);
      _mm512_mask_storeu_ps(to + r * kSize, size, _mm512_maskz_loadu_ps(used, from) * factor);
    }
  }

  // x in the lanes of queries that see `key`, `other` in the rest. The distance of a lane's query and the key lies in the
  // band; smaller ones wrap.
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

  // The part of the backward pass that concerns the keys of a tile, whose gradients are added to columns dk and dv. `p` and
  // `ds` are those of backward_tile.
  void backward(const AttentionBackwardArgs& gradient, const KeyTile& tile, Lanes* dk, Lanes* dv) const {
    const std::int64_t from = larger(tile.begin, begin), to = smaller(tile.end, end);
    if (from >= to) {
      Lanes zeros[kSize] = {};
      if (begin >= end && tile.begin == 0 && gradient.dq != nullptr)
        write(zeros, gradient.dq, gradient.dq_strides, false);
      return;
    }
    const float scale = static_cast<float>(args.scale);
    Lanes q[kSize], doutput[kSize], output[kSize], dq[kSize] = {};
    alignas(64) float q_rows[kQueryLanes * kSize], doutput_rows[kQueryLanes * kSize];
    read(args.q, args.q_strides, scale * kLog2E, q);
    read(gradient.doutput, gradient.doutput_strides, 1, doutput);
    read(args.output, output_strides(), 1, output);
    copy_rows(args.q, args.q_strides, scale, q_rows);
    copy_rows(gradient.doutput, gradient.doutput_strides, 1, doutput_rows);
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
      const std::int64_t part = tile.part_begin(key);
      key = part + down_to(kQueryLanes, key - part);
      n = smaller(kPieceKeys, smaller(to, tile.part_end(key)) - key);
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
      for (std::int64_t t = n; t % kQueryLanes != 0; ++t) p[t] = ds[t] = Lanes{};
      narrow_mix<kSize>(ds, k.first, k.stride, n, dq);
      for (std::int64_t t = 0; t < n; t += kQueryLanes) {
        const std::int64_t column = tile.place(key + t) / kQueryLanes * kSize;
        narrow_mix_across<kSize>(ds + t, q_rows, dk + column);
        narrow_mix_across<kSize>(p + t, doutput_rows, dv + column);
      }
    }
    if (gradient.dq == nullptr) return;
    for (Lanes& x : dq) x *= scale;
    write(dq, gradient.dq, gradient.dq_strides, begin < tile.begin);
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
      const KeyTile tile{key, smaller(args.keys, key + kAttentionKeyTile), args.past};
      const std::int64_t columns = up_to(kQueryLanes, tile.place(tile.end)) / kQueryLanes * kSize;
      for (std::int64_t i = 0; i < columns; ++i) dk[i] = dv[i] = Lanes{};
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (std::int64_t q = 0; q < args.queries; q += kQueryLanes)
          NarrowQueries<kSize>(args, batch, head, q).backward(gradient, tile, dk, dv);
      const auto write = [&](void* past, const AttentionStrides& past_strides, void* own,
                             const AttentionStrides& own_strides, Lanes* x) {
        for (std::int64_t t = tile.begin, n = 0; t < tile.end; t += n, x += kSize) {
          n = smaller(kQueryLanes, tile.part_end(t) - t);
          void* const base = t < args.past ? past : own;
          const AttentionStrides& s = t < args.past ? past_strides : own_strides;
          if (base != nullptr)
            write_columns<kSize>(x, s.time, n, false,
                                 static_cast<float*>(base) + batch * s.batch + t * s.time + kv_head * s.head);
        }
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
