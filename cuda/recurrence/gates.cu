// The gates of a recurrent cell and their gradients.
//
//   mapping        a thread block of 32 columns x 8 rows for every 32 columns and every kGateBlockRows rows;
//                  thread row t takes rows t, t + 8, ... and, in the gradient, sums its share of the bias
//                  gradients, which are then added in order
//   shared memory  2 KiB (2,048 bytes) in the gradient
//   bytes moved    every operand and every result once, the least; the partial sums are 1/64 of a result
#include "cuda/core/launch.cuh"
#include "ops/cpu/vec_math.h"
#include "ops/recurrence/gates.h"

namespace eddy::cuda {
namespace {

constexpr int kColumns = 32, kLanes = kThreads / kColumns;

// The work of one thread of a block: rows first, first + kLanes, ... below `last`, in one column.
struct Piece {
  std::int64_t block, first, last, column;
  int lane, column_in_tile;
  bool inside;  // the column exists
};

// Calls body(piece) for every block of rows and tile of columns, by all threads of the thread block together.
template <class Body>
__device__ void for_each_piece(const GateArgs& args, Body&& body) {
  const std::int64_t tiles = (args.width + kColumns - 1) / kColumns;
  const std::int64_t blocks = (args.rows + kGateBlockRows - 1) / kGateBlockRows;
  Piece piece;
  piece.column_in_tile = static_cast<int>(threadIdx.x) % kColumns;
  piece.lane = static_cast<int>(threadIdx.x) / kColumns;
  for (std::int64_t item = blockIdx.x; item < tiles * blocks; item += gridDim.x) {
    piece.block = item / tiles;
    piece.column = item % tiles * kColumns + piece.column_in_tile;
    piece.inside = piece.column < args.width;
    piece.first = piece.block * kGateBlockRows + piece.lane;
    piece.last = piece.inside ? min((piece.block + 1) * kGateBlockRows, args.rows) : 0;
    body(piece);
  }
}

__device__ float at(const GateRows& rows, std::int64_t row, std::int64_t column) {
  return static_cast<const float*>(rows.data)[row * rows.stride + column];
}
__device__ float bias_at(const void* bias, const Piece& piece) {
  return piece.inside ? static_cast<const float*>(bias)[piece.column] : 0.0f;
}
// z', and dz'/dz from the value of z'.
template <bool Tanh>
__device__ float candidate(float z) {
  return Tanh ? vec::tanh(z) : z;
}
template <bool Tanh>
__device__ float candidate_slope(float value) {
  return Tanh ? 1.0f - value * value : 1.0f;
}
__device__ void store(void* to, std::int64_t place, float value) {
  if (to != nullptr) static_cast<float*>(to)[place] = value;
}

template <GateKind Kind, bool Tanh>
__global__ void forward_kernel(GateArgs args) {
  for_each_piece(args, [&](const Piece& piece) {
    const float bias_f = bias_at(args.bias_f, piece);
    const float bias_i = Kind == GateKind::lstm ? bias_at(args.bias_i, piece) : 0.0f;
    const float fixed = vec::sigmoid(bias_f);
    for (std::int64_t row = piece.first; row < piece.last; row += kLanes) {
      const float c = at(args.c, row, piece.column), value = candidate<Tanh>(at(args.z, row, piece.column));
      float y;
      if constexpr (Kind == GateKind::fixed)
        y = c * fixed + value * (1.0f - fixed);
      else
        y = c * vec::sigmoid(at(args.f, row, piece.column) + bias_f + 1.0f) +
            value * vec::sigmoid(at(args.i, row, piece.column) + bias_i - 1.0f);
      static_cast<float*>(args.y)[row * args.width + piece.column] = y;
    }
  });
}

// The gradients of ops/recurrence/gates.h. The fixed gate's bias gets sum(dy (c - z')) g (1 - g).
template <GateKind Kind, bool Tanh>
__global__ void backward_kernel(GateBackwardArgs args) {
  __shared__ float sums_i[kLanes][kColumns], sums_f[kLanes][kColumns];
  const GateArgs& forward = args.forward;
  for_each_piece(forward, [&](const Piece& piece) {
    const float bias_f = bias_at(forward.bias_f, piece);
    const float bias_i = Kind == GateKind::lstm ? bias_at(forward.bias_i, piece) : 0.0f;
    const float fixed = vec::sigmoid(bias_f);
    float sum_i = 0, sum_f = 0;
    for (std::int64_t row = piece.first; row < piece.last; row += kLanes) {
      const std::int64_t place = row * forward.width + piece.column;
      const float c = at(forward.c, row, piece.column), dy = at(args.dy, row, piece.column);
      const float value = candidate<Tanh>(at(forward.z, row, piece.column));
      if constexpr (Kind == GateKind::fixed) {
        sum_f += dy * (c - value);
        store(args.dc, place, dy * fixed);
        store(args.dz, place, dy * (1.0f - fixed) * candidate_slope<Tanh>(value));
      } else {
        const float forget = vec::sigmoid(at(forward.f, row, piece.column) + bias_f + 1.0f);
        const float input = vec::sigmoid(at(forward.i, row, piece.column) + bias_i - 1.0f);
        const float dforget = dy * c * forget * (1.0f - forget);
        const float dinput = dy * value * input * (1.0f - input);
        store(args.dc, place, dy * forget);
        store(args.dz, place, dy * input * candidate_slope<Tanh>(value));
        store(args.df, place, dforget);
        store(args.di, place, dinput);
        sum_f += dforget;
        sum_i += dinput;
      }
    }
    sums_f[piece.lane][piece.column_in_tile] = sum_f;
    sums_i[piece.lane][piece.column_in_tile] = sum_i;
    __syncthreads();
    if (piece.lane < 2 &&
        piece.inside) {  // the first row of threads writes for bias_f, the second for bias_i
      const auto& sums = piece.lane == 0 ? sums_f : sums_i;
      float sum = 0;
      for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane][piece.column_in_tile];
      if constexpr (Kind == GateKind::fixed) sum *= fixed * (1.0f - fixed);
      store(piece.lane == 0 ? args.dbias_f_partials : args.dbias_i_partials,
            piece.block * forward.width + piece.column, sum);
    }
    __syncthreads();  // the next piece overwrites the shared sums
  });
}

std::int64_t blocks_of(const GateArgs& args) {
  return grid_for((args.width + kColumns - 1) / kColumns * gate_blocks(args.rows), 1, 64);
}

}  // namespace

void gate_forward(const GateArgs& args) {
  require_f32("gate", args.dtype);
  const bool fixed = args.kind == GateKind::fixed;
  const auto kernel =
      fixed ? (args.tanh_z ? forward_kernel<GateKind::fixed, true> : forward_kernel<GateKind::fixed, false>)
            : (args.tanh_z ? forward_kernel<GateKind::lstm, true> : forward_kernel<GateKind::lstm, false>);
  launch(fixed ? "fixed_gate" : "lstm_gate", kernel, blocks_of(args), kThreads, args);
}

void gate_backward(const GateBackwardArgs& args) {
  require_f32("gate", args.dtype);
  const bool fixed = args.forward.kind == GateKind::fixed, tanh_z = args.forward.tanh_z;
  const auto kernel =
      fixed ? (tanh_z ? backward_kernel<GateKind::fixed, true> : backward_kernel<GateKind::fixed, false>)
            : (tanh_z ? backward_kernel<GateKind::lstm, true> : backward_kernel<GateKind::lstm, false>);
  launch(fixed ? "fixed_gate_backward" : "lstm_gate_backward", kernel, blocks_of(args.forward), kThreads,
         args);
}

}  // namespace eddy::cuda
