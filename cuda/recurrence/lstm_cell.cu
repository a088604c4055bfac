// One step of an LSTM after its matrix products, and its gradient.
//
//   mapping        a thread for each entry of the state, neighbours along a row
//   shared memory  none
//   bytes moved    every operand and every result once, the least; the gradient computes the gates' values
//                  again
#include "cuda/core/launch.cuh"
#include "ops/cpu/vec_math.h"
#include "ops/recurrence/lstm_cell.h"

namespace eddy::cuda {
namespace {

struct Gates {
  float i, f, g, o;
};
__device__ Gates gates_at(const void* gates, std::int64_t stride, std::int64_t row, std::int64_t column,
                          std::int64_t hidden) {
  const float* const from = static_cast<const float*>(gates) + row * stride + column;
  return {vec::sigmoid(from[0]), vec::sigmoid(from[hidden]), vec::tanh(from[2 * hidden]),
          vec::sigmoid(from[3 * hidden])};
}
// An entry of an optional array; 0 without one.
__device__ float at(const void* data, std::int64_t stride, std::int64_t row, std::int64_t column) {
  return data == nullptr ? 0.0f : static_cast<const float*>(data)[row * stride + column];
}

__global__ void forward_kernel(LstmCellArgs args) {
  for (std::int64_t place = first_item(); place < args.batch * args.hidden; place += item_step()) {
    const std::int64_t row = place / args.hidden, column = place % args.hidden;
    const Gates gates = gates_at(args.gates, args.gates_stride, row, column, args.hidden);
    const float c = gates.f * at(args.c, args.c_stride, row, column) + gates.i * gates.g;
    static_cast<float*>(args.c_next)[place] = c;
    static_cast<float*>(args.h)[place] = gates.o * vec::tanh(c);
  }
}

// The gradients of ops/recurrence/lstm_cell.h.
__global__ void backward_kernel(LstmCellBackwardArgs args) {
  for (std::int64_t place = first_item(); place < args.batch * args.hidden; place += item_step()) {
    const std::int64_t row = place / args.hidden, column = place % args.hidden;
    const auto [i, f, g, o] = gates_at(args.gates, args.gates_stride, row, column, args.hidden);
    const float t = vec::tanh(static_cast<const float*>(args.c_next)[place]);
    const float dh = at(args.dh, args.dh_stride, row, column);
    const float dstate = at(args.dc_next, args.dc_next_stride, row, column) + dh * o * (1.0f - t * t);
    if (args.dgates != nullptr) {
      float* const to = static_cast<float*>(args.dgates) + row * 4 * args.hidden + column;
      to[0] = dstate * g * i * (1.0f - i);
      to[args.hidden] = dstate * at(args.c, args.c_stride, row, column) * f * (1.0f - f);
      to[2 * args.hidden] = dstate * i * (1.0f - g * g);
      to[3 * args.hidden] = dh * t * o * (1.0f - o);
    }
    if (args.dc != nullptr) static_cast<float*>(args.dc)[place] = dstate * f;
  }
}

}  // namespace

void lstm_cell_forward(const LstmCellArgs& args) {
  require_f32("lstm_cell", args.dtype);
  launch("lstm_cell", forward_kernel, grid_for(args.batch * args.hidden, kThreads), kThreads, args);
}

void lstm_cell_backward(const LstmCellBackwardArgs& args) {
  require_f32("lstm_cell", args.dtype);
  launch("lstm_cell_backward", backward_kernel, grid_for(args.batch * args.hidden, kThreads), kThreads, args);
}

}  // namespace eddy::cuda
