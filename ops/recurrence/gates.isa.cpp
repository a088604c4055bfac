// CPU kernels of the gates. A block of rows is processed in pieces of its columns, so that what belongs to a
// column (the fixed gate's sigmoid, the sums of the bias gradients) stays on the stack. Every operand is read
// once and every result written once.
#include "ops/recurrence/gates.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/vec_math.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kPiece = 256;  // columns

// Calls body(block, first row, last row, first column, columns) for every piece of every block of rows.
template <class Body>
EDDY_INLINE void for_each_piece(const GateArgs& args, const Body& body) {
  parallel_for_rows(gate_blocks(args.rows), kGateBlockRows * args.width, [&](std::int64_t block) {
    const std::int64_t first = block * kGateBlockRows;
    const std::int64_t last = first + kGateBlockRows < args.rows ? first + kGateBlockRows : args.rows;
    for (std::int64_t column = 0; column < args.width; column += kPiece)
      body(block, first, last, column, args.width - column < kPiece ? args.width - column : kPiece);
  });
}

template <class T>
EDDY_INLINE const T* at(const GateRows& rows, std::int64_t row, std::int64_t column) {
  return static_cast<const T*>(rows.data) + row * rows.stride + column;
}

// A piece of a row-major result, or scratch that nobody reads when the result is not wanted.
template <class T>
EDDY_INLINE T* piece_of(void* result, std::int64_t place, T* scratch) {
  return result == nullptr ? scratch : static_cast<T*>(result) + place;
}

// z', and its derivative by z from its value.
template <bool Tanh, class T>
EDDY_INLINE T candidate(T z) {
  return Tanh ? vec::tanh(z) : z;
}
template <bool Tanh, class T>
EDDY_INLINE T candidate_slope(T value) {
  return Tanh ? T(1) - value * value : T(1);
}

template <bool Tanh, class T>
void fixed_forward(const GateArgs& args) {
  for_each_piece(
      args, [&](std::int64_t, std::int64_t first, std::int64_t last, std::int64_t column, std::int64_t n) {
        const T* const bias = static_cast<const T*>(args.bias_f) + column;
        T gate[kPiece];
        for (std::int64_t j = 0; j < n; ++j) gate[j] = vec::sigmoid(bias[j]);
        for (std::int64_t row = first; row < last; ++row) {
          const T *const c = at<T>(args.c, row, column), *const z = at<T>(args.z, row, column);
          T* const y = static_cast<T*>(args.y) + row * args.width + column;
#pragma GCC ivdep
          for (std::int64_t j = 0; j < n; ++j)
            y[j] = c[j] * gate[j] + candidate<Tanh>(z[j]) * (T(1) - gate[j]);
        }
      });
}

template <bool Tanh, class T>
void lstm_forward(const GateArgs& args) {
  for_each_piece(
      args, [&](std::int64_t, std::int64_t first, std::int64_t last, std::int64_t column, std::int64_t n) {
        const T* const bias_i = static_cast<const T*>(args.bias_i) + column;
        const T* const bias_f = static_cast<const T*>(args.bias_f) + column;
        for (std::int64_t row = first; row < last; ++row) {
          const T *const c = at<T>(args.c, row, column), *const z = at<T>(args.z, row, column);
          const T *const i = at<T>(args.i, row, column), *const f = at<T>(args.f, row, column);
          T* const y = static_cast<T*>(args.y) + row * args.width + column;
#pragma GCC ivdep
          for (std::int64_t j = 0; j < n; ++j)
            y[j] = c[j] * vec::sigmoid(f[j] + bias_f[j] + T(1)) +
                   candidate<Tanh>(z[j]) * vec::sigmoid(i[j] + bias_i[j] - T(1));
        }
      });
}

template <bool Tanh, class T>
void fixed_backward(const GateBackwardArgs& args) {
  const GateArgs& forward = args.forward;
  for_each_piece(forward, [&](std::int64_t block, std::int64_t first, std::int64_t last, std::int64_t column,
                              std::int64_t n) {
    const T* const bias = static_cast<const T*>(forward.bias_f) + column;
    T gate[kPiece], sum[kPiece], unused_c[kPiece], unused_z[kPiece];
    for (std::int64_t j = 0; j < n; ++j) gate[j] = vec::sigmoid(bias[j]);
    for (std::int64_t j = 0; j < n; ++j) sum[j] = 0;
    for (std::int64_t row = first; row < last; ++row) {
      const T *const c = at<T>(forward.c, row, column), *const z = at<T>(forward.z, row, column);
      const T* const dy = at<T>(args.dy, row, column);
      const std::int64_t place = row * forward.width + column;
      T *const dc = piece_of(args.dc, place, unused_c), *const dz = piece_of(args.dz, place, unused_z);
#pragma GCC ivdep
      for (std::int64_t j = 0; j < n; ++j) {
        const T value = candidate<Tanh>(z[j]);
        sum[j] += dy[j] * (c[j] - value);
        dc[j] = dy[j] * gate[j];
        dz[j] = dy[j] * (T(1) - gate[j]) * candidate_slope<Tanh>(value);
      }
    }
    if (args.dbias_f_partials == nullptr) return;
    T* const dbias = static_cast<T*>(args.dbias_f_partials) + block * forward.width + column;
    for (std::int64_t j = 0; j < n; ++j) dbias[j] = sum[j] * gate[j] * (T(1) - gate[j]);
  });
}

template <bool Tanh, class T>
void lstm_backward(const GateBackwardArgs& args) {
  const GateArgs& forward = args.forward;
  for_each_piece(forward, [&](std::int64_t block, std::int64_t first, std::int64_t last, std::int64_t column,
                              std::int64_t n) {
    const T* const bias_i = static_cast<const T*>(forward.bias_i) + column;
    const T* const bias_f = static_cast<const T*>(forward.bias_f) + column;
    T sum_i[kPiece], sum_f[kPiece], unused_c[kPiece], unused_z[kPiece], unused_i[kPiece], unused_f[kPiece];
    for (std::int64_t j = 0; j < n; ++j) sum_i[j] = sum_f[j] = 0;
    for (std::int64_t row = first; row < last; ++row) {
      const T *const c = at<T>(forward.c, row, column), *const z = at<T>(forward.z, row, column);
      const T *const i = at<T>(forward.i, row, column), *const f = at<T>(forward.f, row, column);
      const T* const dy = at<T>(args.dy, row, column);
      const std::int64_t place = row * forward.width + column;
      T *const dc = piece_of(args.dc, place, unused_c), *const dz = piece_of(args.dz, place, unused_z);
      T *const di = piece_of(args.di, place, unused_i), *const df = piece_of(args.df, place, unused_f);
#pragma GCC ivdep
      for (std::int64_t j = 0; j < n; ++j) {
        const T forget = vec::sigmoid(f[j] + bias_f[j] + T(1));
        const T input = vec::sigmoid(i[j] + bias_i[j] - T(1));
        const T value = candidate<Tanh>(z[j]);
        const T dforget = dy[j] * c[j] * forget * (T(1) - forget);
        const T dinput = dy[j] * value * input * (T(1) - input);
        dc[j] = dy[j] * forget;
        dz[j] = dy[j] * input * candidate_slope<Tanh>(value);
        df[j] = dforget;
        di[j] = dinput;
        sum_f[j] += dforget;
        sum_i[j] += dinput;
      }
    }
    const std::int64_t place = block * forward.width + column;
    if (args.dbias_i_partials != nullptr)
      for (std::int64_t j = 0; j < n; ++j) static_cast<T*>(args.dbias_i_partials)[place + j] = sum_i[j];
    if (args.dbias_f_partials != nullptr)
      for (std::int64_t j = 0; j < n; ++j) static_cast<T*>(args.dbias_f_partials)[place + j] = sum_f[j];
  });
}

template <class T>
void forward_kernel(const GateArgs& args) {
  if (args.kind == GateKind::fixed)
    args.tanh_z ? fixed_forward<true, T>(args) : fixed_forward<false, T>(args);
  else
    args.tanh_z ? lstm_forward<true, T>(args) : lstm_forward<false, T>(args);
}

template <class T>
void backward_kernel(const GateBackwardArgs& args) {
  if (args.forward.kind == GateKind::fixed)
    args.forward.tanh_z ? fixed_backward<true, T>(args) : fixed_backward<false, T>(args);
  else
    args.forward.tanh_z ? lstm_backward<true, T>(args) : lstm_backward<false, T>(args);
}

}  // namespace

EDDY_CPU_KERNEL(gate_forward, forward_kernel)
EDDY_CPU_KERNEL(gate_backward, backward_kernel)

}  // namespace eddy::EDDY_ISA
