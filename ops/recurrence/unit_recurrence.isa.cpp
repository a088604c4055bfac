// CPU kernels of the unit recurrence, forward and backward.
//
// Two ways to use several threads, chosen by the batch alone so that bits do not depend on their number:
//
//   many rows   blocks of 64 rows run all steps on their own; weights stream from L3 once per 64 rows;
//               threads do not wait for one another
//   few rows    all threads walk through time together; products are split by panels of columns, row work by
//               rows, with a barrier between (7 a step); splitting 16 rows instead would make every thread
//               stream all weights
#include "ops/recurrence/unit_recurrence.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/vec_math.h"
#include "ops/norm/layer_norm.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/packed_gemm.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kManyRows = 128;
constexpr std::int64_t kBlockRows = 64;
// Multiply-adds of one step below which threads lose more at the barriers than they gain.
constexpr std::int64_t kSmallStep = 1 << 20;
// The activation is computed in pieces of so many elements. After each, so many cache lines of the next product's
// panels are fetched: products wait for memory, the activation does not. More lines at once make the activation wait
// (docs/choices.md).
constexpr std::int64_t kPiece = 64;
constexpr int kPieceLines = 16;

template <class T>
EDDY_INLINE const PackedGemm<T>& kernels(MatmulPrecision precision) {
  if constexpr (sizeof(T) == 4)
    return packed_gemm_kernels(precision).f32;
  else
    return packed_gemm_kernels(precision).f64;
}

// A weight for C = A B; `columns` of C, `inner` of A. Packed in panels, or without them as stored in rows
// [columns, inner].
template <class T>
struct Packed {
  std::int64_t inner, columns;
  const T *panels, *rows;
  const PackedGemm<T>& gemm;
};

// One thread's part of the rows [begin, end) at all steps.
struct Share {
  std::int64_t begin, end;  // rows of the batch that this team works on
  int rank, size;
  TeamBarrier& barrier;

  EDDY_INLINE std::int64_t rows() const { return end - begin; }
  // This thread's rows.
  EDDY_INLINE std::int64_t row_begin() const { return begin + rows() * rank / size; }
  EDDY_INLINE std::int64_t row_end() const { return begin + rows() * (rank + 1) / size; }
  EDDY_INLINE void wait() { barrier.arrive_and_wait(); }
};

template <class T>
EDDY_INLINE T dot(const T* a, const T* b, std::int64_t n) {
  T lanes[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  T sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (int lane = 0; lane < 16; ++lane) sum += lanes[lane];
  return sum;
}

// This thread's columns of C = A B (+ C) for the team's rows of one step.
template <class T>
struct ColumnRange {
  std::int64_t begin, end;
};
template <class T>
EDDY_INLINE ColumnRange<T> multiply(const Share& share, const Packed<T>& w, const T* a, T* c,
                                    bool accumulate = false) {
  if (w.panels == nullptr) {
    const std::int64_t from = w.columns * share.rank / share.size,
                       to = w.columns * (share.rank + 1) / share.size;
    for (std::int64_t row = share.begin; row < share.end; ++row)
      for (std::int64_t column = from; column < to; ++column) {
        const T sum = dot(a + row * w.inner, w.rows + column * w.inner, w.inner);
        c[row * w.columns + column] = accumulate ? c[row * w.columns + column] + sum : sum;
      }
    return {from, to};
  }
  const PackedGemm<T>& gemm = w.gemm;
  const std::int64_t panels = gemm.panels(w.columns);
  const std::int64_t first = panels * share.rank / share.size, last = panels * (share.rank + 1) / share.size;
  if (first < last)
    gemm.multiply({share.rows(), w.inner, w.columns, first, last, a + share.begin * w.inner, w.inner,
                   w.panels, c + share.begin * w.columns, w.columns, accumulate});
  const std::int64_t limit = last * gemm.panel_columns;
  return {first * gemm.panel_columns, limit < w.columns ? limit : w.columns};
}

// Fetches this thread's panels of a product that comes soon.
class Ahead {
 public:
  template <class T>
  Ahead(const Share& share, const Packed<T>& w) {
    if (w.panels == nullptr) return;
    const std::int64_t panels = w.gemm.panels(w.columns),
                       each = w.gemm.packed_elements(w.inner, w.columns) / panels;
    next_ = reinterpret_cast<const char*>(w.panels + panels * share.rank / share.size * each);
    end_ = reinterpret_cast<const char*>(w.panels + panels * (share.rank + 1) / share.size * each);
  }
  EDDY_INLINE void fetch(int lines) {
    constexpr std::int64_t kLine = 64;
    for (; lines > 0 && next_ < end_; --lines, next_ += kLine) __builtin_prefetch(next_, 0, 2);
  }

 private:
  const char *next_ = nullptr, *end_ = nullptr;
};

// Calls piece(begin, end) for pieces of the columns.
template <class T, class Piece>
EDDY_INLINE void in_pieces(const ColumnRange<T>& columns, Ahead& ahead, Piece&& piece) {
  for (std::int64_t begin = columns.begin; begin < columns.end; begin += kPiece) {
    piece(begin, begin + kPiece < columns.end ? begin + kPiece : columns.end);
    ahead.fetch(kPieceLines);
  }
}

// y = drop(x), y may be x; the element numbers are those of [time, batch, dim].
template <class T>
void drop_rows(const UnitRecurrenceArgs& args, const RandomKey& key, std::int64_t first_element,
               std::int64_t n, const T* x, T* y) {
  if (args.dropout == 0) {
    if (x != y)
      for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
    return;
  }
  dropout_slot(Device{}, {args.dtype, n, x, y, args.dropout, key, static_cast<std::uint64_t>(first_element),
                          1 / (1 - args.dropout), 0});
}

template <class T>
void add_bias(T* x, const void* bias, std::int64_t n) {
  if (bias == nullptr) return;
  const T* b = static_cast<const T*>(bias);
  for (std::int64_t i = 0; i < n; ++i) x[i] += b[i];
}

// The dropout factor of a probability: 1 / (1 - p), or 0 if it is dropped.
EDDY_INLINE double keep(const UnitRecurrenceArgs& args, std::uint64_t element) {
  if (args.dropout == 0) return 1;
  return static_cast<double>(uniform01(args.gate_key.word(element))) >= args.dropout ? 1 / (1 - args.dropout)
                                                                                     : 0;
}

template <class T>
struct Chain {
  const UnitRecurrenceArgs& args;
  const std::int64_t dim, mlp, heads, batch;

  explicit Chain(const UnitRecurrenceArgs& a)
      : args(a), dim(a.dim), mlp(a.mlp), heads(a.heads), batch(a.batch) {}

  // Row `row` of step `t` of an array [time, batch, width].
  EDDY_INLINE T* at(void* base, std::int64_t t, std::int64_t row, std::int64_t width) const {
    return static_cast<T*>(base) + (t * batch + row) * width;
  }
  EDDY_INLINE const T* at(const void* base, std::int64_t t, std::int64_t row, std::int64_t width) const {
    return static_cast<const T*>(base) + (t * batch + row) * width;
  }
  // Key or value of the state before step t; null at the first step of a sequence.
  EDDY_INLINE const T* before(const void* array, const void* carried, std::int64_t t,
                              std::int64_t row) const {
    if (t > 0) return at(array, t - 1, row, dim);
    return carried == nullptr ? nullptr : static_cast<const T*>(carried) + row * dim;
  }

  void norm_rows(const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd,
                 std::int64_t t, const Share& share) const {
    const std::int64_t first = share.row_begin(), rows = share.row_end() - first;
    if (rows > 0)
      layer_norm_forward_slot(
          Device{}, {args.dtype, rows, dim, at(x, t, first, dim), dim, weight, bias, at(y, t, first, dim),
                     dim, at(mean, t, first, 1), at(rstd, t, first, 1), args.eps});
  }

  // dx += LN'(dy): the gain's own gradient is summed after the loop.
  void norm_gradient(const void* dy, const void* x, const void* weight, const void* mean, const void* rstd,
                     void* dx, std::int64_t t, const Share& share) const {
    const std::int64_t first = share.row_begin(), rows = share.row_end() - first;
    if (rows > 0)
      layer_norm_backward_slot(
          Device{},
          {args.dtype, rows, dim, at(dy, t, first, dim), dim, at(x, t, first, dim), dim, weight,
           at(mean, t, first, 1), at(rstd, t, first, 1), at(dx, t, first, dim), dim, 1, nullptr, nullptr, 0});
  }

  // o = px vx + ph vh with (ph, px) the softmax over the two scores, each with its own dropout.
  void gate_forward(std::int64_t t, std::int64_t row) const {
    const std::int64_t d = dim / heads;
    const T* q = at(args.qkv, t, row, 3 * dim);
    const T *kx = q + dim, *vx = kx + dim;
    const T* kh = before(args.key, args.key0, t, row);
    const T* vh = before(args.value, args.value0, t, row);
    T* o = at(args.o, t, row, dim);
    T* gate = at(args.gate, t, row, heads);
    const T scale = static_cast<T>(1 / ::sqrt(static_cast<double>(d)));
    for (std::int64_t j = 0; j < heads; ++j) {
      const std::int64_t c = j * d;
      const T g =
          kh == nullptr ? T(0) : vec::sigmoid((dot(q + c, kh + c, d) - dot(q + c, kx + c, d)) * scale);
      gate[j] = g;
      const std::uint64_t element = static_cast<std::uint64_t>(((t * batch + row) * heads + j) * 2);
      const T ph = static_cast<T>(g * static_cast<T>(keep(args, element)));
      const T px = static_cast<T>((T(1) - g) * static_cast<T>(keep(args, element + 1)));
      if (kh == nullptr) {
        for (std::int64_t i = c; i < c + d; ++i) o[i] = px * vx[i];
      } else {
        for (std::int64_t i = c; i < c + d; ++i) o[i] = px * vx[i] + ph * vh[i];
      }
    }
  }

  // From do: dq, dkx, dvx of this step; the gradients of kh and vh are accumulated into the step before.
  void gate_backward(std::int64_t t, std::int64_t row, const T* dout) const {
    const std::int64_t d = dim / heads;
    const T* q = at(args.qkv, t, row, 3 * dim);
    const T *kx = q + dim, *vx = kx + dim;
    const T* kh = before(args.key, args.key0, t, row);
    const T* vh = before(args.value, args.value0, t, row);
    const T* gate = at(static_cast<const void*>(args.gate), t, row, heads);
    T* dq = at(args.dqkv, t, row, 3 * dim);
    T *dkx = dq + dim, *dvx = dkx + dim;
    T* dkh = t > 0 ? at(args.dkey, t - 1, row, dim) : nullptr;
    T* dvh = t > 0 ? at(args.dvalue, t - 1, row, dim) : nullptr;
    const T scale = static_cast<T>(1 / ::sqrt(static_cast<double>(d)));
    for (std::int64_t j = 0; j < heads; ++j) {
      const std::int64_t c = j * d;
      const T g = gate[j];
      const std::uint64_t element = static_cast<std::uint64_t>(((t * batch + row) * heads + j) * 2);
      const T keep_h = static_cast<T>(keep(args, element)), keep_x = static_cast<T>(keep(args, element + 1));
      const T px = (T(1) - g) * keep_x, ph = g * keep_h;
      for (std::int64_t i = c; i < c + d; ++i) dvx[i] = px * dout[i];
      if (kh == nullptr) {
        for (std::int64_t i = c; i < c + d; ++i) dq[i] = dkx[i] = 0;
        continue;
      }
      const T dg = keep_h * dot(dout + c, vh + c, d) - keep_x * dot(dout + c, vx + c, d);
      const T ds = g * (T(1) - g) * dg * scale;
      for (std::int64_t i = c; i < c + d; ++i) {
        dq[i] = ds * (kh[i] - kx[i]);
        dkx[i] = -ds * q[i];
      }
      if (dkh == nullptr) continue;
      for (std::int64_t i = c; i < c + d; ++i) {
        dkh[i] += ds * q[i];
        dvh[i] += ph * dout[i];
      }
    }
  }

  void forward(Share share, const Packed<T>& wk, const Packed<T>& wv, const Packed<T>& wo,
               const Packed<T>& up, const Packed<T>& down) const {
    T* const act = static_cast<T*>(args.scratch);  // [batch, mlp], one step
    const T* up_bias = static_cast<const T*>(args.up_bias);
    for (std::int64_t t = 0; t < args.time; ++t) {
      for (std::int64_t row = share.row_begin(); row < share.row_end(); ++row) gate_forward(t, row);
      share.wait();
      multiply(share, wo, at(static_cast<const void*>(args.o), t, 0, dim), at(args.r, t, 0, dim));
      share.wait();
      for (std::int64_t row = share.row_begin(); row < share.row_end(); ++row)
        add_residual(at(args.r, t, row, dim), args.wo_bias, at(args.x, t, row, dim), args.attn_key, t, row);
      norm_rows(args.r, args.norm2, args.norm2_bias, args.a2, args.mean2, args.rstd2, t, share);
      share.wait();
      const auto columns =
          multiply(share, up, at(static_cast<const void*>(args.a2), t, 0, dim), at(args.u, t, 0, mlp));
      Ahead ahead(share, down);
      for (std::int64_t row = share.begin; row < share.end; ++row) {
        T* u = at(args.u, t, row, mlp);
        T* a = act + row * mlp;
        if (up_bias != nullptr)
          for (std::int64_t i = columns.begin; i < columns.end; ++i) u[i] += up_bias[i];
        in_pieces(columns, ahead, [&](std::int64_t begin, std::int64_t end) {
          if (args.gelu) {
            for (std::int64_t i = begin; i < end; ++i) a[i] = pointwise::Gelu::forward(u[i]);
          } else {
            for (std::int64_t i = begin; i < end; ++i) a[i] = pointwise::Relu::forward(u[i]);
          }
        });
      }
      share.wait();
      multiply(share, down, static_cast<const T*>(act), at(args.h, t, 0, dim));
      share.wait();
      for (std::int64_t row = share.row_begin(); row < share.row_end(); ++row)
        add_residual(at(args.h, t, row, dim), args.down_bias,
                     at(static_cast<const void*>(args.r), t, row, dim), args.mlp_key, t, row);
      norm_rows(args.h, args.norm1, args.norm1_bias, args.a1, args.mean1, args.rstd1, t, share);
      share.wait();
      const auto own =
          multiply(share, wk, at(static_cast<const void*>(args.a1), t, 0, dim), at(args.key, t, 0, dim));
      multiply(share, wv, at(static_cast<const void*>(args.a1), t, 0, dim), at(args.value, t, 0, dim));
      if (args.wkv_bias != nullptr) {
        const T* bias = static_cast<const T*>(args.wkv_bias);
        for (std::int64_t row = share.begin; row < share.end; ++row) {
          add_bias(at(args.key, t, row, dim) + own.begin, bias + own.begin, own.end - own.begin);
          add_bias(at(args.value, t, row, dim) + own.begin, bias + dim + own.begin, own.end - own.begin);
        }
      }
      share.wait();
    }
  }

  // y = residual + drop(y + bias) on one row.
  EDDY_INLINE void add_residual(T* y, const void* bias, const T* residual, const RandomKey& key,
                                std::int64_t t, std::int64_t row) const {
    add_bias(y, bias, dim);
    drop_rows<T>(args, key, (t * batch + row) * dim, dim, y, y);
    for (std::int64_t i = 0; i < dim; ++i) y[i] += residual[i];
  }

  // a = act(u), and du becomes the gradient of u. Both are computed before either is stored, so that
  // what they share is computed once: for all the compiler knows, a lies over u.
  template <class Act>
  EDDY_INLINE static void activate(std::int64_t begin, std::int64_t end, const T* u, T* a, T* du) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T result = Act::forward(u[i]), gradient = Act::vjp(du[i], u[i]);
      a[i] = result;
      du[i] = gradient;
    }
  }

  void backward(Share share, const Packed<T>& wk, const Packed<T>& wv, const Packed<T>& wo,
                const Packed<T>& up, const Packed<T>& down) const {
    T* const dout = static_cast<T*>(args.scratch);  // [batch, dim], one step
    for (std::int64_t t = args.time - 1; t >= 0; --t) {
      multiply(share, wk, at(static_cast<const void*>(args.dkey), t, 0, dim), at(args.da1, t, 0, dim));
      multiply(share, wv, at(static_cast<const void*>(args.dvalue), t, 0, dim), at(args.da1, t, 0, dim),
               true);
      share.wait();
      norm_gradient(args.da1, args.h, args.norm1, args.mean1, args.rstd1, args.dh, t, share);
      for (std::int64_t row = share.row_begin(); row < share.row_end(); ++row)
        drop_rows<T>(args, args.mlp_key, (t * batch + row) * dim, dim,
                     at(static_cast<const void*>(args.dh), t, row, dim), at(args.dmlp_out, t, row, dim));
      share.wait();
      const auto columns = multiply(share, down, at(static_cast<const void*>(args.dmlp_out), t, 0, dim),
                                    at(args.du, t, 0, mlp));
      Ahead ahead(share, up);
      for (std::int64_t row = share.begin; row < share.end; ++row) {
        const T* u = at(static_cast<const void*>(args.u), t, row, mlp);
        T* a = at(args.act, t, row, mlp);
        T* du = at(args.du, t, row, mlp);
        in_pieces(columns, ahead, [&](std::int64_t begin, std::int64_t end) {
          if (args.gelu) {
            activate<pointwise::Gelu>(begin, end, u, a, du);
          } else {
            activate<pointwise::Relu>(begin, end, u, a, du);
          }
        });
      }
      share.wait();
      multiply(share, up, at(static_cast<const void*>(args.du), t, 0, mlp), at(args.da2, t, 0, dim));
      share.wait();
      for (std::int64_t row = share.row_begin(); row < share.row_end(); ++row) {
        const T* dh = at(static_cast<const void*>(args.dh), t, row, dim);
        T* dx = at(args.dx, t, row, dim);
        for (std::int64_t i = 0; i < dim; ++i) dx[i] = dh[i];
      }
      norm_gradient(args.da2, args.r, args.norm2, args.mean2, args.rstd2, args.dx, t, share);
      for (std::int64_t row = share.row_begin(); row < share.row_end(); ++row)
        drop_rows<T>(args, args.attn_key, (t * batch + row) * dim, dim,
                     at(static_cast<const void*>(args.dx), t, row, dim), at(args.do_out, t, row, dim));
      share.wait();
      multiply(share, wo, at(static_cast<const void*>(args.do_out), t, 0, dim), dout);
      share.wait();
      for (std::int64_t row = share.row_begin(); row < share.row_end(); ++row)
        gate_backward(t, row, dout + row * dim);
      share.wait();
    }
  }
};

// Hands row blocks or a team to `work(share)`.
template <class Work>
EDDY_INLINE void share_out(const UnitRecurrenceArgs& args, Work&& work) {
  const std::int64_t batch = args.batch;
  if (batch >= kManyRows) {
    parallel_for(batch, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
      TeamBarrier alone(1);
      work(Share{begin, end, 0, 1, alone});
    });
  } else {
    const bool small = batch * args.dim * (3 * args.dim + 2 * args.mlp) < kSmallStep;
    parallel_team(small ? 1 : 256, [&](int rank, int size, TeamBarrier& barrier) {
      work(Share{0, batch, rank, size, barrier});
    });
  }
}

// Weight `index` of args.panels as the factor [inner, columns].
template <class T>
Packed<T> weight(const UnitRecurrenceArgs& args, int index, std::int64_t inner, std::int64_t columns,
                 const void* stored) {
  return {inner, columns, static_cast<const T*>(args.panels[index]), static_cast<const T*>(stored),
          kernels<T>(args.precision)};
}

template <class T>
void run_forward(const UnitRecurrenceArgs& args) {
  const std::int64_t dim = args.dim, mlp = args.mlp;
  const auto wk = weight<T>(args, 0, dim, dim, args.wkv),
             wv = weight<T>(args, 1, dim, dim, static_cast<const T*>(args.wkv) + dim * dim),
             wo = weight<T>(args, 2, dim, dim, args.wo), up = weight<T>(args, 3, dim, mlp, args.up),
             down = weight<T>(args, 4, mlp, dim, args.down);
  const Chain<T> chain(args);
  share_out(args, [&](Share share) { chain.forward(share, wk, wv, wo, up, down); });
}

template <class T>
void run_backward(const UnitRecurrenceArgs& args) {
  const std::int64_t dim = args.dim, mlp = args.mlp;
  const auto wk = weight<T>(args, 0, dim, dim, nullptr), wv = weight<T>(args, 1, dim, dim, nullptr),
             wo = weight<T>(args, 2, dim, dim, nullptr), up = weight<T>(args, 3, mlp, dim, nullptr),
             down = weight<T>(args, 4, dim, mlp, nullptr);
  const Chain<T> chain(args);
  share_out(args, [&](Share share) { chain.backward(share, wk, wv, wo, up, down); });
}

}  // namespace

EDDY_CPU_KERNEL(unit_recurrence_forward, run_forward)
EDDY_CPU_KERNEL(unit_recurrence_backward, run_backward)

}  // namespace eddy::EDDY_ISA
