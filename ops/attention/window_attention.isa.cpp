// CPU kernels of window attention: 16 sequences side by side, one in each lane. A work item is one such group
// and a few heads (one if heads are wide; if they are narrow, enough for 16 columns). Its rows are transposed
// into columns of lanes, [row][channel][16]. After that every step is a plain loop over vectors: two queries
// against four keys for scores, two queries or two keys against eight channels for sums (with 32 registers). Work
// items write disjoint rows, so bits do not depend on the number of threads. With AVX512-BF16 the factors of sums
// can be rounded: then neighbours along a sum, two channels or two rows, are a pair of bf16.
//
// With AVX-512 this is the way of short windows and of odd heads: queries that fill the lanes lie side by side instead
// (attention_narrow.h). Blocked attention takes 1.4 to 4.7 times as long (docs/choices.md).
#include "ops/attention/window_attention.h"

#include "ops/attention/attention_tile.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/vec_math.h"
#include "tensor/threads/thread_pool.h"

#if defined(__AVX512F__)
EDDY_TARGET_BEGIN("avx512bf16")
#endif

namespace eddy::EDDY_ISA {
namespace {

using attention_tile::each_lane, attention_tile::kLanes, attention_tile::Vector;

// Lanes are those of one register: 16 with AVX-512, fewer elsewhere. Channels are summed so many at a time.
constexpr int kChannels = 2 * attention_tile::kVectors;
template <class T>
constexpr bool kTurns = kLanes<T> == 16;

template <class T>
using V = typename Vector<T>::type;

template <class T>
EDDY_INLINE void multiply_add(V<T>& sum, const V<T>& a, const V<T>& b) {
  sum += a * b;
}
#if defined(__AVX512F__)
template <class>
EDDY_INLINE void multiply_add(V<float>& sum, const V<Pair>& a, const V<Pair>& b) {
  sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
#endif
// Makes factors of pairs of numbers; without rounding there is nothing to do.
template <class T, class F>
EDDY_INLINE void round_pair([[maybe_unused]] const V<T>& first, [[maybe_unused]] const V<T>& second,
                            [[maybe_unused]] V<F>* to) {
#if defined(__AVX512F__)
  if constexpr (kInner<F> != 1) *to = reinterpret_cast<V<Pair>>(bf16::pairs_of(first, second));
#endif
}

// Where a group's rows begin: lanes past the end of the batch read its last sequence again.
struct Group {
  std::int64_t first, lanes;  // sequences in use
  EDDY_INLINE std::int64_t sequence(std::int64_t lane) const {
    return first + (lane < lanes ? lane : lanes - 1);
  }
};

// to[t][c] = factor * x[lane][t][column + c], for `count` rows and `width` channels.
template <class T>
void read_columns(const WindowRows& x, const Group& group, std::int64_t count, std::int64_t column,
                  std::int64_t width, T factor, V<T>* to) {
  if (count == 0) return;
  const T* from[kLanes<T>];
  for (std::int64_t lane = 0; lane < kLanes<T>; ++lane)
    from[lane] = static_cast<const T*>(x.data) + group.sequence(lane) * x.batch_stride + column;
  for (std::int64_t t = 0; t < count; ++t, to += width) {
    const std::int64_t row = t * x.time_stride;
    std::int64_t c = 0;
    if constexpr (kTurns<T>)
      for (; c + kLanes<T> <= width; c += kLanes<T>) {
        V<T> block[kLanes<T>];
        for (std::int64_t lane = 0; lane < kLanes<T>; ++lane)
          block[lane] = *reinterpret_cast<const typename Vector<T>::loose*>(from[lane] + row + c);
        transpose_square<kLanes<T>>(block);
        for (std::int64_t i = 0; i < kLanes<T>; ++i) to[c + i] = block[i] * factor;
      }
    for (; c < width; ++c)
      for (std::int64_t lane = 0; lane < kLanes<T>; ++lane)
        reinterpret_cast<T*>(to + c)[lane] = from[lane][row + c] * factor;
  }
}

// The inverse of read_columns, into contiguous [batch, rows, row_width].
template <class T>
void write_columns(V<T>* x, const Group& group, std::int64_t count, std::int64_t column, std::int64_t width,
                   std::int64_t row_width, void* to) {
  for (std::int64_t t = 0; t < count; ++t, x += width) {
    const auto place = [&](std::int64_t lane) {
      return static_cast<T*>(to) + ((group.first + lane) * count + t) * row_width + column;
    };
    std::int64_t c = 0;
    if constexpr (kTurns<T>)
      for (; c + kLanes<T> <= width; c += kLanes<T>) {
        transpose_square<kLanes<T>>(x + c);
        for (std::int64_t lane = 0; lane < group.lanes; ++lane)
          *reinterpret_cast<typename Vector<T>::loose*>(place(lane) + c) = x[c + lane];
      }
    for (; c < width; ++c)
      for (std::int64_t lane = 0; lane < group.lanes; ++lane) place(lane)[c] = x[c][lane];
  }
}

// out[i][k] = sum over `d` factors of a[i] b[k], for Rows rows of a and four of b, which lie `width` apart.
template <class T, class F, int Rows>
EDDY_INLINE void dots(const V<F>* a, const V<F>* b, std::int64_t width, std::int64_t d, V<T>* out,
                      std::int64_t out_stride) {
  V<T> sum[Rows][4] = {};
  for (std::int64_t c = 0; c < d; ++c) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const V<F> other = b[k * width + c];
#pragma GCC unroll 2
      for (int i = 0; i < Rows; ++i) multiply_add<T>(sum[i][k], a[i * width + c], other);
    }
  }
  for (int i = 0; i < Rows; ++i)
    for (int k = 0; k < 4; ++k) out[i * out_stride + k] = sum[i][k];
}

// to[i][c] = factor * sum over t of weight[i][t] x[t][c], for Rows rows of weights and Channels channels.
// Weights of row i lie at weight + i weight_row, those of t a `weight_step` apart.
template <class T, class F, int Rows, int Channels>
EDDY_INLINE void mix_some(const V<F>* weight, std::int64_t weight_row, std::int64_t weight_step,
                          const V<F>* x, std::int64_t width, std::int64_t count, T factor, V<T>* to) {
  V<T> sum[Rows][Channels] = {};
  for (std::int64_t t = 0; t < count; ++t) {
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i) {
      const V<F> w = weight[i * weight_row + t * weight_step];
#pragma GCC unroll 8
      for (int c = 0; c < Channels; ++c) multiply_add<T>(sum[i][c], w, x[t * width + c]);
    }
  }
  for (int i = 0; i < Rows; ++i)
    for (int c = 0; c < Channels; ++c) to[i * width + c] = sum[i][c] * factor;
}
template <class T, class F, int Rows>
EDDY_INLINE void mix(const V<F>* weight, std::int64_t weight_row, std::int64_t weight_step, const V<F>* x,
                     std::int64_t width, std::int64_t count, std::int64_t d, T factor, V<T>* to) {
  std::int64_t c = 0;
  for (; kChannels > 1 && c + kChannels <= d; c += kChannels)
    mix_some<T, F, Rows, kChannels>(weight, weight_row, weight_step, x + c, width, count, factor, to + c);
  for (; c < d; ++c)
    mix_some<T, F, Rows, 1>(weight, weight_row, weight_step, x + c, width, count, factor, to + c);
}

// The largest of `count` vectors, lane by lane. Two maxima go side by side, since each waits for the one before.
template <class T>
EDDY_INLINE V<T> largest(const V<T>* x, std::int64_t count) {
  V<T> most[2] = {x[0], x[0]};
  std::int64_t t = 1;
  for (; t + 2 <= count; t += 2)
    for (int i = 0; i < 2; ++i) most[i] = x[t + i] > most[i] ? x[t + i] : most[i];
  if (t < count) most[0] = x[t] > most[0] ? x[t] : most[0];
  return most[1] > most[0] ? most[1] : most[0];
}

// y += ln x. One loop over the sums of all queries: the logarithms of the few of one query are not vectorised.
template <class T>
void add_logs(const T* x, std::int64_t count, T* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += vec::log(x[i]);
}

// One work item: a group of sequences and some heads. F is the type of the factors of sums.
template <class T, class F>
struct Item {
  // Rows as factors of sums over channels and of sums over rows.
  struct Factors {
    const V<F>*along, *across;
  };

  const WindowAttentionArgs& args;
  std::int64_t head, heads;  // the first, and how many
  std::int64_t group_index;
  Group group;
  std::int64_t d, width, keys, padded;
  V<T>*q, *k, *v, *other, *dq, *dk, *dv, *weights, *slopes, *row, *keep;
  static constexpr bool kRounds = kInner<F> != 1;

  Item(const WindowAttentionArgs& a, std::int64_t index, std::int64_t rank) : args(a) {
    const std::int64_t span = window_attention_span(a.heads, a.head_size),
                       parts = (a.heads + span - 1) / span;
    head = index % parts * span;
    heads = a.heads - head < span ? a.heads - head : span;
    group_index = index / parts;
    group.first = group_index * kLanes<T>;
    group.lanes = a.batch - group.first < kLanes<T> ? a.batch - group.first : kLanes<T>;
    d = a.head_size;
    width = heads * d;
    keys = a.past + a.own;
    padded = (keys + 3) / 4 * 4;
    V<T>* next = static_cast<V<T>*>(a.scratch) + rank * (window_attention_scratch(a) / kLanes<T>);
    const auto take = [&next](std::int64_t count) {
      V<T>* const at = next;
      next += count;
      return at;
    };
    q = take((a.queries + 1) * width);
    other = take((a.queries + 1) * width);
    dq = take((a.queries + 1) * width);
    k = take(padded * width);
    v = take(padded * width);
    dk = take(padded * width);
    dv = take(padded * width);
    weights = take(a.queries * padded);
    slopes = take(a.queries * padded);
    row = take(2 * padded);
    keep = take(padded + 4);
  }

  static std::int64_t count(const WindowAttentionArgs& a) {
    const std::int64_t span = window_attention_span(a.heads, a.head_size);
    return (a.batch + kLanes<T> - 1) / kLanes<T> * ((a.heads + span - 1) / span);
  }

  EDDY_INLINE std::int64_t sees(std::int64_t query) const { return keys - args.queries + query + 1; }
  EDDY_INLINE V<T>& log_sum(std::int64_t h, std::int64_t query) const {
    return static_cast<V<T>*>(args.log_sum)[(group_index * args.heads + head + h) * args.queries + query];
  }

  // Reads rows by read(to), into `rows`, or by way of `spare` if they are rounded.
  template <class Read>
  EDDY_INLINE Factors factors_of(std::int64_t count, V<T>* rows, V<T>* spare, Read&& read) const {
    V<T>* const x = kRounds ? spare : rows;
    read(x);
    V<F>* const along = reinterpret_cast<V<F>*>(rows);
    if constexpr (!kRounds) return {along, along};
    V<F>* const across = along + count * width / 2;
    for (std::int64_t i = 0; i < count * width; i += 2) round_pair<T, F>(x[i], x[i + 1], along + i / 2);
    for (std::int64_t t = 0; t < count; t += 2)
      for (std::int64_t c = 0; c < width; ++c)
        round_pair<T, F>(x[t * width + c], t + 1 < count ? x[(t + 1) * width + c] : V<T>{},
                         across + t / 2 * width + c);
    return {along, across};
  }
  // The queries, or with `part` 0 and 1 the keys and the values.
  Factors queries() const {
    return factors_of(args.queries, q, dq, [&](V<T>* to) {
      read_columns<T>(args.q, group, args.queries, head * d, width, static_cast<T>(args.scale), to);
    });
  }
  Factors rows(int part, V<T>* place) const {
    return factors_of(padded, place, dk, [&](V<T>* to) {
      const std::int64_t column = (part * args.heads + head) * d;
      read_columns<T>(args.past_rows, group, args.past, column, width, T(1), to);
      read_columns<T>(args.own_rows, group, args.own, column, width, T(1), to + args.past * width);
      for (std::int64_t i = keys * width; i < padded * width; ++i) to[i] = V<T>{};
    });
  }
  // The first `count` numbers of Rows rows as factors of sums along a row, in `to`, which may be the rows.
  template <int Rows>
  EDDY_INLINE const V<F>* round_along(const V<T>* x, std::int64_t count, V<T>* to) const {
    if constexpr (!kRounds) return x;
    V<F>* const pairs = reinterpret_cast<V<F>*>(to);
    for (int i = 0; i < Rows; ++i)
      for (std::int64_t t = 0; t < count; t += 2)
        round_pair<T, F>(x[i * padded + t], x[i * padded + t + 1], pairs + i * padded + t / 2);
    return pairs;
  }
  // Makes the rows `first` to first + Rows - 1 of `x` row `first` / 2 of factors of sums over rows.
  template <int Rows>
  EDDY_INLINE void round_across(V<T>* x, std::int64_t first) const {
    if constexpr (kRounds)
      for (std::int64_t t = 0; t < padded; ++t)
        round_pair<T, F>(x[first * padded + t], Rows > 1 ? x[(first + 1) * padded + t] : V<T>{},
                         reinterpret_cast<V<F>*>(x) + first / 2 * padded + t);
  }

  // Writes the dropout factors of the first `limit` probabilities of one query.
  void draw_keep(std::int64_t h, std::int64_t query, std::int64_t limit) const {
    std::uint64_t element[kLanes<T>];
    for (std::int64_t lane = 0; lane < kLanes<T>; ++lane)
      element[lane] = static_cast<std::uint64_t>(
          (((group.first + lane) * args.heads + head + h) * args.queries + query) * keys);
    attention_tile::keep_columns<T>(args.dropout_key, element, limit, args.drop_below,
                                    static_cast<T>(args.keep_scale), keep);
  }

  // Scores of Rows queries from `first` on, for one head, into `to`, rows `padded` apart.
  template <int Rows>
  EDDY_INLINE void scores(const Factors& a, const Factors& b, std::int64_t h, std::int64_t first,
                          std::int64_t limit, V<T>* to) const {
    const std::int64_t row_width = width / kInner<F>, size = d / kInner<F>;
    for (std::int64_t t = 0; t < limit; t += 4)
      dots<T, F, Rows>(a.along + first * row_width + h * size, b.along + t * row_width + h * size, row_width,
                       size, to + t, padded);
  }

  template <int Rows>
  EDDY_INLINE void forward_queries(const Factors& qs, const Factors& ks, const Factors& vs, std::int64_t h,
                                   std::int64_t first) const {
    const std::int64_t limit = sees(first + Rows - 1), column = h * d;
    scores<Rows>(qs, ks, h, first, limit, row);
    V<T> inverse[Rows];
    for (int i = 0; i < Rows; ++i) {
      V<T>* const p = row + i * padded;
      const std::int64_t visible = sees(first + i);
      const V<T> most = largest<T>(p, visible);
      V<T> sum{};
      for (std::int64_t t = 0; t < visible; ++t) {
        T* const e = reinterpret_cast<T*>(p + t);
        const T* const m = reinterpret_cast<const T*>(&most);
        each_lane<T>([&](std::int64_t lane) { e[lane] = vec::exp(e[lane] - m[lane]); });
        sum += p[t];
      }
      for (std::int64_t t = visible; t < factors<F>(limit) * kInner<F>; ++t) p[t] = V<T>{};
      inverse[i] = T(1) / sum;
      log_sum(h, first + i) = most;  // add_logs adds the rest
      slopes[first + i] = sum;
      if (args.drop_below > 0) {
        draw_keep(h, first + i, visible);
        for (std::int64_t t = 0; t < visible; ++t) p[t] *= keep[t];
      }
    }
    V<T>* const to = other + first * width + column;
    mix<T, F, Rows>(round_along<Rows>(row, limit, row), padded, 1, vs.across + column, width,
                    factors<F>(limit), d, T(1), to);
    for (int i = 0; i < Rows; ++i)
      for (std::int64_t c = 0; c < d; ++c) to[i * width + c] *= inverse[i];
  }

  void forward() const {
    const Factors qs = queries(), ks = rows(0, k), vs = rows(1, v);
    for (std::int64_t h = 0; h < heads; ++h) {
      std::int64_t j = 0;
      for (; j + 2 <= args.queries; j += 2) forward_queries<2>(qs, ks, vs, h, j);
      if (j < args.queries) forward_queries<1>(qs, ks, vs, h, j);
      add_logs(reinterpret_cast<const T*>(slopes), args.queries * kLanes<T>,
               reinterpret_cast<T*>(&log_sum(h, 0)));
    }
    write_columns<T>(other, group, args.queries, head * d, width, args.heads * d, args.output);
  }

  // With P the probabilities, K their dropout factors, W = P K and o = sum of W v:
  //
  //   dv_t = sum of W_t do
  //   dW_t = do . v_t
  //   ds_t = P_t (K_t dW_t - sum of P K dW)
  //   dq   = scale ds k
  template <int Rows>
  EDDY_INLINE void backward_queries(const Factors& qs, const Factors& ks, const Factors& vs,
                                    const Factors& dys, std::int64_t h, std::int64_t first) const {
    const std::int64_t limit = sees(first + Rows - 1), column = h * d;
    V<T>* const p_rows = weights + first * padded;
    V<T>* const ds_rows = slopes + first * padded;
    scores<Rows>(qs, ks, h, first, limit, p_rows);
    scores<Rows>(dys, vs, h, first, limit, ds_rows);
    for (int i = 0; i < Rows; ++i) {
      V<T>*const p = p_rows + i * padded, *const ds = ds_rows + i * padded;
      const std::int64_t visible = sees(first + i);
      const T* const lse = reinterpret_cast<const T*>(&log_sum(h, first + i));
      for (std::int64_t t = 0; t < visible; ++t) {
        T* const e = reinterpret_cast<T*>(p + t);
        each_lane<T>([&](std::int64_t lane) { e[lane] = vec::exp(e[lane] - lse[lane]); });
      }
      V<T> mean{};
      if (args.drop_below > 0) {
        draw_keep(h, first + i, visible);
        for (std::int64_t t = 0; t < visible; ++t) {
          ds[t] *= keep[t];
          mean += p[t] * ds[t];
        }
        for (std::int64_t t = 0; t < visible; ++t) {
          ds[t] = p[t] * (ds[t] - mean);
          p[t] *= keep[t];
        }
      } else {
        for (std::int64_t t = 0; t < visible; ++t) mean += p[t] * ds[t];
        for (std::int64_t t = 0; t < visible; ++t) ds[t] = p[t] * (ds[t] - mean);
      }
      for (std::int64_t t = visible; t < padded; ++t) p[t] = ds[t] = V<T>{};
    }
    mix<T, F, Rows>(round_along<Rows>(ds_rows, limit, row), padded, 1, ks.across + column, width,
                    factors<F>(limit), d, static_cast<T>(args.scale), dq + first * width + column);
    round_across<Rows>(weights, first);
    round_across<Rows>(slopes, first);
  }

  // Gradients of Rows keys: sums over the queries that see the first of them; queries that do not see the
  // others have zeros there.
  template <int Rows>
  EDDY_INLINE void backward_keys(const Factors& qs, const Factors& dys, std::int64_t h,
                                 std::int64_t t) const {
    const std::int64_t before = keys - args.queries, first = (t > before ? t - before : 0) / kInner<F>,
                       column = h * d;
    const std::int64_t left = factors<F>(args.queries) - first, from = first * width + column,
                       at = first * padded + t;
    const auto sum = [&](const V<T>* weight, const Factors& x, V<T>* to) {
      mix<T, F, Rows>(reinterpret_cast<const V<F>*>(weight) + at, 1, padded, x.across + from, width, left, d,
                      T(1), to + t * width + column);
    };
    sum(slopes, qs, dk);
    sum(weights, dys, dv);
  }

  void backward() const {
    const std::int64_t dim = args.heads * d, column = head * d;
    const Factors qs = queries(), ks = rows(0, k), vs = rows(1, v);
    const Factors dys = factors_of(args.queries, other, dq, [&](V<T>* to) {
      read_columns<T>({args.doutput, args.queries * dim, dim}, group, args.queries, column, width, T(1), to);
    });
    for (std::int64_t h = 0; h < heads; ++h) {
      std::int64_t j = 0;
      for (; j + 2 <= args.queries; j += 2) backward_queries<2>(qs, ks, vs, dys, h, j);
      if (j < args.queries) backward_queries<1>(qs, ks, vs, dys, h, j);
      std::int64_t t = args.dpast != nullptr ? 0 : args.past;
      const std::int64_t end = args.down != nullptr ? keys : args.past;
      for (; t + 2 <= end; t += 2) backward_keys<2>(qs, dys, h, t);
      if (t < end) backward_keys<1>(qs, dys, h, t);
    }
    if (args.dq != nullptr) write_columns<T>(dq, group, args.queries, column, width, dim, args.dq);
    const auto write = [&](V<T>* x, std::int64_t at) {
      if (args.dpast != nullptr) write_columns<T>(x, group, args.past, at, width, 2 * dim, args.dpast);
      if (args.down != nullptr)
        write_columns<T>(x + args.past * width, group, args.own, at, width, 2 * dim, args.down);
    };
    write(dk, column);
    write(dv, dim + column);
  }
};

template <class T, class F, class Work>
EDDY_INLINE void each_item_in(const WindowAttentionArgs& args, Work&& work) {
  const std::int64_t items = Item<T, F>::count(args);
  parallel_team(args.threads, [&](int rank, int size, TeamBarrier&) {
    for (std::int64_t i = rank; i < items; i += size) work(Item<T, F>(args, i, rank));
  });
}
template <class T, class Work>
EDDY_INLINE void each_item(const WindowAttentionArgs& args, Work&& work) {
  // Processors with AMX multiply pairs by VDPBF16PS no faster than floats, and rounding takes time.
  if (kInner<RoundedFactor<T>> != 1 && rounds_to_bf16(args.precision) && isa_level() != IsaLevel::amx &&
      args.head_size % 2 == 0)
    return each_item_in<T, RoundedFactor<T>>(args, work);
  each_item_in<T, T>(args, work);
}

template <class T>
void forward(const WindowAttentionArgs& args) {
  each_item<T>(args, [](const auto& item) { item.forward(); });
}

template <class T>
void backward(const WindowAttentionArgs& args) {
  each_item<T>(args, [](const auto& item) { item.backward(); });
}

}  // namespace

EDDY_CPU_KERNEL(window_attention_forward, forward)
EDDY_CPU_KERNEL(window_attention_backward, backward)

}  // namespace eddy::EDDY_ISA

#if defined(__AVX512F__)
EDDY_TARGET_END
#endif
