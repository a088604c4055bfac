// CPU kernels of the LSTM cell: one pass over a row of four gates.
#include "ops/recurrence/lstm_cell.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/vec_math.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kPiece = 256;  // entries of a row whose unwanted results share scratch

template <class T>
void forward_kernel(const LstmCellArgs& args) {
  const std::int64_t hidden = args.hidden;
  parallel_for_rows(args.batch, 2 * hidden, [=, &args](std::int64_t row) {
    const T* const gate_i = static_cast<const T*>(args.gates) + row * args.gates_stride;
    const T *const gate_f = gate_i + hidden, *const gate_g = gate_f + hidden, *const gate_o = gate_g + hidden;
    const T* const c = static_cast<const T*>(args.c) + row * args.c_stride;
    T* const h = static_cast<T*>(args.h) + row * hidden;
    T* const c_next = static_cast<T*>(args.c_next) + row * hidden;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < hidden; ++j) {
      const T state = vec::sigmoid(gate_f[j]) * c[j] + vec::sigmoid(gate_i[j]) * vec::tanh(gate_g[j]);
      c_next[j] = state;
      h[j] = vec::sigmoid(gate_o[j]) * vec::tanh(state);
    }
  });
}

// Row `row` of something that may be absent.
template <class T>
EDDY_INLINE const T* row_of(const void* data, std::int64_t row, std::int64_t stride) {
  return data == nullptr ? nullptr : static_cast<const T*>(data) + row * stride;
}

template <class T>
void backward_kernel(const LstmCellBackwardArgs& args) {
  const std::int64_t hidden = args.hidden;
  parallel_for(args.batch, items_per_chunk(2 * hidden), [=, &args](std::int64_t begin, std::int64_t end) {
    T zeros[kPiece], unused[5][kPiece];
    for (std::int64_t j = 0; j < kPiece; ++j) zeros[j] = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const gates = row_of<T>(args.gates, row, args.gates_stride);
      const T* const c_row = row_of<T>(args.c, row, args.c_stride);
      const T* const c_next_row = row_of<T>(args.c_next, row, hidden);
      const T* const dh_row = row_of<T>(args.dh, row, args.dh_stride);
      const T* const dc_next_row = row_of<T>(args.dc_next, row, args.dc_next_stride);
      for (std::int64_t first = 0; first < hidden; first += kPiece) {
        const std::int64_t n = hidden - first < kPiece ? hidden - first : kPiece;
        const T *const gate_i = gates + first, *const gate_f = gate_i + hidden;
        const T *const gate_g = gate_f + hidden, *const gate_o = gate_g + hidden;
        const T *const c = c_row + first, *const c_next = c_next_row + first;
        const T* const dh = dh_row == nullptr ? zeros : dh_row + first;
        const T* const dc_next = dc_next_row == nullptr ? zeros : dc_next_row + first;
        T* const dgates =
            args.dgates == nullptr ? nullptr : static_cast<T*>(args.dgates) + row * 4 * hidden + first;
        T* const di = dgates == nullptr ? unused[0] : dgates;
        T* const df = dgates == nullptr ? unused[1] : dgates + hidden;
        T* const dg = dgates == nullptr ? unused[2] : dgates + 2 * hidden;
        T* const dout = dgates == nullptr ? unused[3] : dgates + 3 * hidden;
        T* const dc = args.dc == nullptr ? unused[4] : static_cast<T*>(args.dc) + row * hidden + first;
#pragma GCC ivdep
        for (std::int64_t j = 0; j < n; ++j) {
          const T i = vec::sigmoid(gate_i[j]), f = vec::sigmoid(gate_f[j]);
          const T g = vec::tanh(gate_g[j]), o = vec::sigmoid(gate_o[j]), t = vec::tanh(c_next[j]);
          const T dstate = dc_next[j] + dh[j] * o * (T(1) - t * t);
          dout[j] = dh[j] * t * o * (T(1) - o);
          di[j] = dstate * g * i * (T(1) - i);
          df[j] = dstate * c[j] * f * (T(1) - f);
          dg[j] = dstate * i * (T(1) - g * g);
          dc[j] = dstate * f;
        }
      }
    }
  });
}

}  // namespace

EDDY_CPU_KERNEL(lstm_cell_forward, forward_kernel)
EDDY_CPU_KERNEL(lstm_cell_backward, backward_kernel)

}  // namespace eddy::EDDY_ISA
