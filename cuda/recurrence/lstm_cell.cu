// One step of an LSTM after its matrix products, and its gradient.
//
//   mapping        a thread for four neighbours of a row of the state, 16 bytes at a time (fours.cuh)
//   shared memory  none
//   bytes moved    every operand and every result once, the least; the gradient computes the gates' values
//                  again
#include "cuda/core/launch.cuh"
#include "cuda/recurrence/fours.cuh"
#include "ops/cpu/vec_math.h"
#include "ops/recurrence/lstm_cell.h"

namespace eddy::cuda {
namespace {

// Four entries of the state: their row, the first one's column, and how many the row has from there on.
struct StateFour {
  std::int64_t row, column;
  int count;
};
template <class Body>
__device__ void for_each_four(std::int64_t batch, std::int64_t hidden, Body&& body) {
  const std::int64_t fours = (hidden + 3) / 4;
  for (std::int64_t i = first_item(); i < batch * fours; i += item_step()) {
    const std::int64_t row = i / fours, column = 4 * (i % fours);
    body(StateFour{row, column, static_cast<int>(min(std::int64_t{4}, hidden - column))});
  }
}

// Entries of an optional array; 0 without one.
template <bool Whole>
__device__ Fours at(const void* data, std::int64_t stride, const StateFour& four) {
  if (data == nullptr) return Fours{};
  return read_fours<Whole>(static_cast<const float*>(data) + four.row * stride + four.column, four.count);
}

// The gates of four entries, before or after their nonlinearities.
struct Gates {
  Fours i, f, g, o;
};
template <bool Whole>
__device__ Gates gates_at(const void* gates, std::int64_t stride, std::int64_t hidden,
                          const StateFour& four) {
  const float* const from = static_cast<const float*>(gates) + four.row * stride + four.column;
  Gates result{read_fours<Whole>(from, four.count), read_fours<Whole>(from + hidden, four.count),
               read_fours<Whole>(from + 2 * hidden, four.count),
               read_fours<Whole>(from + 3 * hidden, four.count)};
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    result.i.at[e] = vec::sigmoid(result.i.at[e]);
    result.f.at[e] = vec::sigmoid(result.f.at[e]);
    result.g.at[e] = vec::tanh(result.g.at[e]);
    result.o.at[e] = vec::sigmoid(result.o.at[e]);
  }
  return result;
}

template <bool Whole>
__global__ void forward_kernel(LstmCellArgs args) {
  for_each_four(args.batch, args.hidden, [&](const StateFour& four) {
    const Gates gates = gates_at<Whole>(args.gates, args.gates_stride, args.hidden, four);
    const Fours before = at<Whole>(args.c, args.c_stride, four);
    Fours c, h;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      c.at[e] = gates.f.at[e] * before.at[e] + gates.i.at[e] * gates.g.at[e];
      h.at[e] = gates.o.at[e] * vec::tanh(c.at[e]);
    }
    const std::int64_t place = four.row * args.hidden + four.column;
    store_fours<Whole>(static_cast<float*>(args.c_next) + place, c, four.count);
    store_fours<Whole>(static_cast<float*>(args.h) + place, h, four.count);
  });
}

// The gradients of ops/recurrence/lstm_cell.h.
template <bool Whole>
__global__ void backward_kernel(LstmCellBackwardArgs args) {
  for_each_four(args.batch, args.hidden, [&](const StateFour& four) {
    const Gates gates = gates_at<Whole>(args.gates, args.gates_stride, args.hidden, four);
    const Fours c_next = at<Whole>(args.c_next, args.hidden, four),
                c = at<Whole>(args.c, args.c_stride, four), dh = at<Whole>(args.dh, args.dh_stride, four),
                dc_next = at<Whole>(args.dc_next, args.dc_next_stride, four);
    Gates dgates;
    Fours dc;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float i = gates.i.at[e], f = gates.f.at[e], g = gates.g.at[e], o = gates.o.at[e];
      const float t = vec::tanh(c_next.at[e]);
      const float dstate = dc_next.at[e] + dh.at[e] * o * (1.0f - t * t);
      dgates.i.at[e] = dstate * g * i * (1.0f - i);
      dgates.f.at[e] = dstate * c.at[e] * f * (1.0f - f);
      dgates.g.at[e] = dstate * i * (1.0f - g * g);
      dgates.o.at[e] = dh.at[e] * t * o * (1.0f - o);
      dc.at[e] = dstate * f;
    }
    if (args.dgates != nullptr) {
      float* const to = static_cast<float*>(args.dgates) + four.row * 4 * args.hidden + four.column;
      store_fours<Whole>(to, dgates.i, four.count);
      store_fours<Whole>(to + args.hidden, dgates.f, four.count);
      store_fours<Whole>(to + 2 * args.hidden, dgates.g, four.count);
      store_fours<Whole>(to + 3 * args.hidden, dgates.o, four.count);
    }
    if (args.dc != nullptr)
      store_fours<Whole>(static_cast<float*>(args.dc) + four.row * args.hidden + four.column, dc, four.count);
  });
}

std::int64_t cell_blocks(std::int64_t batch, std::int64_t hidden) {
  return grid_for(batch * ((hidden + 3) / 4), kThreads);
}

}  // namespace

void lstm_cell_forward(const LstmCellArgs& args) {
  require_f32("lstm_cell", args.dtype);
  const bool whole = args.hidden % 4 == 0 && takes_fours(args.gates, args.gates_stride) &&
                     takes_fours(args.c, args.c_stride) && takes_fours(args.h) && takes_fours(args.c_next);
  launch("lstm_cell", whole ? forward_kernel<true> : forward_kernel<false>,
         cell_blocks(args.batch, args.hidden), kThreads, args);
}

void lstm_cell_backward(const LstmCellBackwardArgs& args) {
  require_f32("lstm_cell", args.dtype);
  const bool whole = args.hidden % 4 == 0 && takes_fours(args.gates, args.gates_stride) &&
                     takes_fours(args.c, args.c_stride) && takes_fours(args.c_next) &&
                     takes_fours(args.dh, args.dh_stride) && takes_fours(args.dc_next, args.dc_next_stride) &&
                     takes_fours(args.dgates) && takes_fours(args.dc);
  launch("lstm_cell_backward", whole ? backward_kernel<true> : backward_kernel<false>,
         cell_blocks(args.batch, args.hidden), kThreads, args);
}

}  // namespace eddy::cuda
