// CPU kernels of window attention: 16 sequences side by side, one in each lane. A work item is one such group
// and a few heads (one if heads are wide; if they are narrow, enough for 16 columns). Its rows are transposed
// into columns of lanes, [row][channel][16]. After that every step is a plain loop over vectors: two queries
// against four keys for scores, two queries or two keys against eight channels for sums (with AVX-512). Work
// items write disjoint rows, so bits do not depend on the number of threads.
//
// Milliseconds for 256 sequences, 32 queries, 64 keys, 4 heads of 8, f32, on one Emerald Rapids core with
// AVX-512, in brackets blocked attention:
//
//              without dropout   with dropout
//   forward        1.9  (7.0)     3.5  (9.2)
//   backward       3.1 (11.1)     3.6 (13.9)
#include "ops/attention/window_attention.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/philox_words.h"
#include "ops/cpu/vec_math.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

// Lanes are those of one register: 16 with AVX-512, fewer elsewhere.
#if defined(__AVX512F__)
constexpr std::int64_t kVectorBytes = 64;
constexpr int kChannels = 8;
#elif defined(__AVX2__)
constexpr std::int64_t kVectorBytes = 32;
constexpr int kChannels = 4;
#else
constexpr std::int64_t kVectorBytes = 16;
constexpr int kChannels = 4;
#endif

template <class T>
constexpr std::int64_t kLanes = kVectorBytes / static_cast<std::int64_t>(sizeof(T));
template <class T>
constexpr bool kTurns = kLanes<T> == 16;

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(kVectorBytes), may_alias));
  typedef T loose __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias));
};
template <class T>
using V = typename Vector<T>::type;

// Transposes 16 rows of 16 into 16 columns, in four rounds that interleave two halves.
template <class T>
EDDY_INLINE void turn(V<T>* r) {
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
    V<T> next[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      next[2 * i] =
          __builtin_shufflevector(r[i], r[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(r[i], r[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                                14, 30, 15, 31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = next[i];
  }
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
        turn<T>(block);
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
        turn<T>(x + c);
        for (std::int64_t lane = 0; lane < group.lanes; ++lane)
          *reinterpret_cast<typename Vector<T>::loose*>(place(lane) + c) = x[c + lane];
      }
    for (; c < width; ++c)
      for (std::int64_t lane = 0; lane < group.lanes; ++lane) place(lane)[c] = x[c][lane];
  }
}

// out[i][k] = sum over `d` channels of a[i] b[k], for Rows rows of a and four of b, which lie `width` apart.
template <class T, int Rows>
EDDY_INLINE void dots(const V<T>* a, const V<T>* b, std::int64_t width, std::int64_t d, V<T>* out,
                      std::int64_t out_stride) {
  V<T> sum[Rows][4] = {};
  for (std::int64_t c = 0; c < d; ++c) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const V<T> other = b[k * width + c];
#pragma GCC unroll 2
      for (int i = 0; i < Rows; ++i) sum[i][k] += a[i * width + c] * other;
    }
  }
  for (int i = 0; i < Rows; ++i)
    for (int k = 0; k < 4; ++k) out[i * out_stride + k] = sum[i][k];
}

// to[i][c] = factor * sum over t of weight[i][t] x[t][c], for Rows rows of weights and Channels channels.
// Weights of row i lie at weight + i weight_row, those of t a `weight_step` apart.
template <class T, int Rows, int Channels>
EDDY_INLINE void mix_some(const V<T>* weight, std::int64_t weight_row, std::int64_t weight_step,
                          const V<T>* x, std::int64_t width, std::int64_t count, T factor, V<T>* to) {
  V<T> sum[Rows][Channels] = {};
  for (std::int64_t t = 0; t < count; ++t) {
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i) {
      const V<T> w = weight[i * weight_row + t * weight_step];
#pragma GCC unroll 8
      for (int c = 0; c < Channels; ++c) sum[i][c] += w * x[t * width + c];
    }
  }
  for (int i = 0; i < Rows; ++i)
    for (int c = 0; c < Channels; ++c) to[i * width + c] = sum[i][c] * factor;
}
template <class T, int Rows>
EDDY_INLINE void mix(const V<T>* weight, std::int64_t weight_row, std::int64_t weight_step, const V<T>* x,
                     std::int64_t width, std::int64_t count, std::int64_t d, T factor, V<T>* to) {
  std::int64_t c = 0;
  for (; kChannels > 1 && c + kChannels <= d; c += kChannels)
    mix_some<T, Rows, kChannels>(weight, weight_row, weight_step, x + c, width, count, factor, to + c);
  for (; c < d; ++c)
    mix_some<T, Rows, 1>(weight, weight_row, weight_step, x + c, width, count, factor, to + c);
}

// One work item: a group of sequences and some heads.
template <class T>
struct Item {
  const WindowAttentionArgs& args;
  std::int64_t head, heads;  // the first, and how many
  std::int64_t group_index;
  Group group;
  std::int64_t d, width, keys, padded;
  V<T>*q, *k, *v, *other, *dq, *dk, *dv, *weights, *slopes, *row, *keep;

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
    q = take(a.queries * width);
    other = take(a.queries * width);
    dq = take(a.queries * width);
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

  void read_inputs() const {
    const std::int64_t dim = args.heads * d, column = head * d;
    read_columns<T>(args.q, group, args.queries, column, width, static_cast<T>(args.scale), q);
    read_columns<T>(args.past_rows, group, args.past, column, width, T(1), k);
    read_columns<T>(args.past_rows, group, args.past, dim + column, width, T(1), v);
    read_columns<T>(args.own_rows, group, args.own, column, width, T(1), k + args.past * width);
    read_columns<T>(args.own_rows, group, args.own, dim + column, width, T(1), v + args.past * width);
    for (std::int64_t i = keys * width; i < padded * width; ++i) k[i] = v[i] = V<T>{};
  }

  // Writes the dropout factors of the first `limit` probabilities of one query, four keys at a time, since
  // one counter gives four words. Where a sequence's probabilities do not start at a counter, up to three of
  // the row before are drawn, too.
  void draw_keep(std::int64_t h, std::int64_t query, std::int64_t limit) const {
    const T scale = static_cast<T>(args.keep_scale);
    std::uint64_t blocks[kLanes<T>];
    V<T> before;
    std::int64_t most_before = 0;
    for (std::int64_t lane = 0; lane < kLanes<T>; ++lane) {
      const std::int64_t element =
          (((group.first + lane) * args.heads + head + h) * args.queries + query) * keys;
      blocks[lane] = static_cast<std::uint64_t>(element) >> 2;
      reinterpret_cast<T*>(&before)[lane] = static_cast<T>(element % 4);
      most_before = element % 4 > most_before ? element % 4 : most_before;
    }
    std::uint32_t words[4 * kLanes<T>];
    for (std::int64_t t = 0; t < limit + most_before; t += 4) {
      philox_columns<kLanes<T>>(args.dropout_key, blocks, words);
      for (std::int64_t lane = 0; lane < kLanes<T>; ++lane) ++blocks[lane];
      T* const to = reinterpret_cast<T*>(keep + t);
      for (std::int64_t i = 0; i < 4 * kLanes<T>; ++i)
        to[i] = (words[i] >> 8) >= args.drop_below ? scale : T(0);
    }
    if (most_before == 0) return;
    for (std::int64_t t = 0; t < limit; ++t) {
      const V<T> later = before == V<T>{} + T(2) ? keep[t + 2] : keep[t + 3],
                 sooner = before == V<T>{} ? keep[t] : keep[t + 1];
      keep[t] = before < V<T>{} + T(2) ? sooner : later;
    }
  }

  // Scores of Rows queries into `to`, rows `padded` apart.
  template <int Rows>
  EDDY_INLINE void scores(const V<T>* a, const V<T>* b, std::int64_t limit, V<T>* to) const {
    for (std::int64_t t = 0; t < limit; t += 4) dots<T, Rows>(a, b + t * width, width, d, to + t, padded);
  }

  template <int Rows>
  EDDY_INLINE void forward_queries(std::int64_t h, std::int64_t first) const {
    const std::int64_t limit = sees(first + Rows - 1), column = h * d;
    scores<Rows>(q + first * width + column, k + column, limit, row);
    V<T> inverse[Rows];
    for (int i = 0; i < Rows; ++i) {
      V<T>* const p = row + i * padded;
      const std::int64_t visible = sees(first + i);
      V<T> most = p[0];
      for (std::int64_t t = 1; t < visible; ++t) most = p[t] > most ? p[t] : most;
      V<T> sum{};
      for (std::int64_t t = 0; t < visible; ++t) {
        T* const e = reinterpret_cast<T*>(p + t);
        const T* const m = reinterpret_cast<const T*>(&most);
        for (std::int64_t lane = 0; lane < kLanes<T>; ++lane) e[lane] = vec::exp(e[lane] - m[lane]);
        sum += p[t];
      }
      for (std::int64_t t = visible; t < limit; ++t) p[t] = V<T>{};
      inverse[i] = T(1) / sum;
      V<T> log;
      for (std::int64_t lane = 0; lane < kLanes<T>; ++lane)
        reinterpret_cast<T*>(&log)[lane] = vec::log(reinterpret_cast<const T*>(&sum)[lane]);
      log_sum(h, first + i) = most + log;
      if (args.drop_below > 0) {
        draw_keep(h, first + i, visible);
        for (std::int64_t t = 0; t < visible; ++t) p[t] *= keep[t];
      }
    }
    V<T>* const to = other + first * width + column;
    mix<T, Rows>(row, padded, 1, v + column, width, limit, d, T(1), to);
    for (int i = 0; i < Rows; ++i)
      for (std::int64_t c = 0; c < d; ++c) to[i * width + c] *= inverse[i];
  }

  void forward() const {
    read_inputs();
    for (std::int64_t h = 0; h < heads; ++h) {
      std::int64_t j = 0;
      for (; j + 2 <= args.queries; j += 2) forward_queries<2>(h, j);
      if (j < args.queries) forward_queries<1>(h, j);
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
  EDDY_INLINE void backward_queries(std::int64_t h, std::int64_t first) const {
    const std::int64_t limit = sees(first + Rows - 1), column = h * d;
    V<T>* const p_rows = weights + first * padded;
    V<T>* const ds_rows = slopes + first * padded;
    scores<Rows>(q + first * width + column, k + column, limit, p_rows);
    scores<Rows>(other + first * width + column, v + column, limit, ds_rows);
    for (int i = 0; i < Rows; ++i) {
      V<T>*const p = p_rows + i * padded, *const ds = ds_rows + i * padded;
      const std::int64_t visible = sees(first + i);
      const T* const lse = reinterpret_cast<const T*>(&log_sum(h, first + i));
      for (std::int64_t t = 0; t < visible; ++t) {
        T* const e = reinterpret_cast<T*>(p + t);
        for (std::int64_t lane = 0; lane < kLanes<T>; ++lane) e[lane] = vec::exp(e[lane] - lse[lane]);
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
    mix<T, Rows>(ds_rows, padded, 1, k + column, width, limit, d, static_cast<T>(args.scale),
                 dq + first * width + column);
  }

  // Gradients of Rows keys: sums over the queries that see the first of them; queries that do not see the
  // others have zeros there.
  template <int Rows>
  EDDY_INLINE void backward_keys(std::int64_t h, std::int64_t t) const {
    const std::int64_t before = keys - args.queries, first = t > before ? t - before : 0, column = h * d;
    const std::int64_t left = args.queries - first, from = first * width + column, at = first * padded + t;
    mix<T, Rows>(slopes + at, 1, padded, q + from, width, left, d, T(1), dk + t * width + column);
    mix<T, Rows>(weights + at, 1, padded, other + from, width, left, d, T(1), dv + t * width + column);
  }

  void backward() const {
    const std::int64_t dim = args.heads * d, column = head * d;
    read_inputs();
    const WindowRows dy{args.doutput, args.queries * dim, dim};
    read_columns<T>(dy, group, args.queries, column, width, T(1), other);
    for (std::int64_t h = 0; h < heads; ++h) {
      std::int64_t j = 0;
      for (; j + 2 <= args.queries; j += 2) backward_queries<2>(h, j);
      if (j < args.queries) backward_queries<1>(h, j);
      std::int64_t t = args.dpast != nullptr ? 0 : args.past;
      const std::int64_t end = args.down != nullptr ? keys : args.past;
      for (; t + 2 <= end; t += 2) backward_keys<2>(h, t);
      if (t < end) backward_keys<1>(h, t);
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

template <class T, class Work>
EDDY_INLINE void each_item(const WindowAttentionArgs& args, Work&& work) {
  const std::int64_t items = Item<T>::count(args);
  parallel_team(args.threads, [&](int rank, int size, TeamBarrier&) {
    for (std::int64_t i = rank; i < items; i += size) work(Item<T>(args, i, rank));
  });
}

template <class T>
void forward(const WindowAttentionArgs& args) {
  each_item<T>(args, [](const Item<T>& item) { item.forward(); });
}

template <class T>
void backward(const WindowAttentionArgs& args) {
  each_item<T>(args, [](const Item<T>& item) { item.backward(); });
}

}  // namespace

EDDY_CPU_KERNEL(window_attention_forward, forward)
EDDY_CPU_KERNEL(window_attention_backward, backward)

}  // namespace eddy::EDDY_ISA
