// The gates of a recurrent cell and their gradients.
//
//   mapping        a thread block of 32 fours of columns x 8 rows for every 128 columns and every kGateBlockRows rows;
//                  thread row t takes rows t, t + 8, ..., 16 bytes at a time (fours.cuh), and, in the gradient, sums
//                  its share of the bias gradients, which are then added in order
//   shared memory  8 KiB (8,192 bytes) in the gradient
//   bytes moved    every operand and every result once, the least; the partial sums are 1/64 of a result
#include "cuda/core/launch.cuh"
#include "cuda/recurrence/fours.cuh"
#include "ops/cpu/vec_math.h"
#include "ops/recurrence/gates.h"

namespace eddy::cuda {
namespace {

constexpr int kGateFours = 32, kGateLanes = kThreads / kGateFours;
constexpr int kGateColumns = 4 * kGateFours;  // of a tile

// The work of one thread of a block: rows first, first + kGateLanes, ... below `last`, in four columns.
struct Piece {
  std::int64_t block, first, last;
  std::int64_t tile, column;  // the first columns of the thread block and of this thread
  int lane, four;             // the place of the thread in its block
  int count;                  // columns from `column` on; 0: none
};

// Calls body(piece) for every block of rows and tile of columns, by all threads of the thread block together.
template <class Body>
__device__ void for_each_piece(const GateArgs& args, Body&& body) {
  const std::int64_t tiles = (args.width + kGateColumns - 1) / kGateColumns;
  const std::int64_t blocks = (args.rows + kGateBlockRows - 1) / kGateBlockRows;
  Piece piece;
  piece.four = static_cast<int>(threadIdx.x) % kGateFours;
  piece.lane = static_cast<int>(threadIdx.x) / kGateFours;
  for (std::int64_t item = blockIdx.x; item < tiles * blocks; item += gridDim.x) {
    piece.block = item / tiles;
    piece.tile = item % tiles * kGateColumns;
    piece.column = piece.tile + 4 * piece.four;
    piece.count =
        static_cast<int>(max(std::int64_t{0}, min(std::int64_t{kGateColumns}, args.width - piece.column)));
    piece.first = piece.block * kGateBlockRows + piece.lane;
    piece.last = piece.count > 0 ? min((piece.block + 1) * kGateBlockRows, args.rows) : 0;
    body(piece);
  }
}

template <bool Whole>
__device__ Fours at(const GateRows& rows, std::int64_t row, const Piece& piece) {
  return read_fours<Whole>(static_cast<const float*>(rows.data) + row * rows.stride + piece.column,
                           piece.count);
}
template <bool Whole>
__device__ Fours bias_at(const void* bias, const Piece& piece) {
  return piece.count > 0 ? read_fours<Whole>(static_cast<const float*>(bias) + piece.column, piece.count)
                         : Fours{};
}
template <bool Whole>
__device__ void store(void* to, std::int64_t place, const Fours& four, const Piece& piece) {
  if (to != nullptr) store_fours<Whole>(static_cast<float*>(to) + place, four, piece.count);
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

template <GateKind Kind, bool Tanh, bool Whole>
__global__ void forward_kernel(GateArgs args) {
  for_each_piece(args, [&](const Piece& piece) {
    const Fours bias_f = bias_at<Whole>(args.bias_f, piece);
    Fours bias_i, fixed;
    if constexpr (Kind == GateKind::lstm) bias_i = bias_at<Whole>(args.bias_i, piece);
#pragma unroll
    for (int e = 0; e < 4; ++e) fixed.at[e] = vec::sigmoid(bias_f.at[e]);
    for (std::int64_t row = piece.first; row < piece.last; row += kGateLanes) {
      const Fours c = at<Whole>(args.c, row, piece), z = at<Whole>(args.z, row, piece);
      Fours f, i, y;
      if constexpr (Kind == GateKind::lstm) {
        f = at<Whole>(args.f, row, piece);
        i = at<Whole>(args.i, row, piece);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float value = candidate<Tanh>(z.at[e]);
        if constexpr (Kind == GateKind::fixed)
          y.at[e] = c.at[e] * fixed.at[e] + value * (1.0f - fixed.at[e]);
        else
          y.at[e] = c.at[e] * vec::sigmoid(f.at[e] + bias_f.at[e] + 1.0f) +
                    value * vec::sigmoid(i.at[e] + bias_i.at[e] - 1.0f);
      }
      store<Whole>(args.y, row * args.width + piece.column, y, piece);
    }
  });
}

// The gradients of ops/recurrence/gates.h. The fixed gate's bias gets sum(dy (c - z')) g (1 - g).
template <GateKind Kind, bool Tanh, bool Whole>
__global__ void backward_kernel(GateBackwardArgs args) {
  __shared__ Fours sums_i[kGateLanes][kGateFours], sums_f[kGateLanes][kGateFours];
  const GateArgs& forward = args.forward;
  for_each_piece(forward, [&](const Piece& piece) {
    const Fours bias_f = bias_at<Whole>(forward.bias_f, piece);
    Fours bias_i, fixed, sum_i{}, sum_f{};
    if constexpr (Kind == GateKind::lstm) bias_i = bias_at<Whole>(forward.bias_i, piece);
#pragma unroll
    for (int e = 0; e < 4; ++e) fixed.at[e] = vec::sigmoid(bias_f.at[e]);
    for (std::int64_t row = piece.first; row < piece.last; row += kGateLanes) {
      const std::int64_t place = row * forward.width + piece.column;
      const Fours c = at<Whole>(forward.c, row, piece), dy = at<Whole>(args.dy, row, piece),
                  z = at<Whole>(forward.z, row, piece);
      Fours f, i, dc, dz, df, di;
      if constexpr (Kind == GateKind::lstm) {
        f = at<Whole>(forward.f, row, piece);
        i = at<Whole>(forward.i, row, piece);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float value = candidate<Tanh>(z.at[e]);
        if constexpr (Kind == GateKind::fixed) {
          sum_f.at[e] += dy.at[e] * (c.at[e] - value);
          dc.at[e] = dy.at[e] * fixed.at[e];
          dz.at[e] = dy.at[e] * (1.0f - fixed.at[e]) * candidate_slope<Tanh>(value);
        } else {
          const float forget = vec::sigmoid(f.at[e] + bias_f.at[e] + 1.0f);
          const float input = vec::sigmoid(i.at[e] + bias_i.at[e] - 1.0f);
          df.at[e] = dy.at[e] * c.at[e] * forget * (1.0f - forget);
          di.at[e] = dy.at[e] * value * input * (1.0f - input);
          dc.at[e] = dy.at[e] * forget;
          dz.at[e] = dy.at[e] * input * candidate_slope<Tanh>(value);
          sum_f.at[e] += df.at[e];
          sum_i.at[e] += di.at[e];
        }
      }
      store<Whole>(args.dc, place, dc, piece);
      store<Whole>(args.dz, place, dz, piece);
      if constexpr (Kind == GateKind::lstm) {
        store<Whole>(args.df, place, df, piece);
        store<Whole>(args.di, place, di, piece);
      }
    }
    sums_f[piece.lane][piece.four] = sum_f;
    sums_i[piece.lane][piece.four] = sum_i;
    __syncthreads();
    // Half of the threads, one for each column, writes for bias_f, the other half for bias_i.
    const int thread = static_cast<int>(threadIdx.x), in_tile = thread % kGateColumns;
    const std::int64_t column = piece.tile + in_tile;
    float* const partials =
        static_cast<float*>(thread < kGateColumns ? args.dbias_f_partials : args.dbias_i_partials);
    if (partials != nullptr && column < forward.width) {
      const auto& sums = thread < kGateColumns ? sums_f : sums_i;
      float sum = 0;
      for (int lane = 0; lane < kGateLanes; ++lane) sum += sums[lane][in_tile / 4].at[in_tile % 4];
      if constexpr (Kind == GateKind::fixed) {
        const float gate = vec::sigmoid(static_cast<const float*>(forward.bias_f)[column]);
        sum *= gate * (1.0f - gate);
      }
      partials[piece.block * forward.width + column] = sum;
    }
    __syncthreads();  // the next piece overwrites the shared sums
  });
}

std::int64_t blocks_of(const GateArgs& args) {
  return grid_for((args.width + kGateColumns - 1) / kGateColumns * gate_blocks(args.rows), 1, 64);
}

// Calls run(kind, tanh_z, whole), each a constant of a type.
template <class Run>
void with_constants(const GateArgs& args, bool whole, Run&& run) {
  const auto with = [](bool value, auto&& next) {
    return value ? next(std::true_type{}) : next(std::false_type{});
  };
  with(args.kind == GateKind::fixed, [&](auto fixed) {
    constexpr GateKind kKind = fixed ? GateKind::fixed : GateKind::lstm;
    with(args.tanh_z, [&](auto tanh_z) {
      with(whole, [&](auto fours) { run(std::integral_constant<GateKind, kKind>{}, tanh_z, fours); });
    });
  });
}

// Whether the operands of the forward pass go by whole fours.
bool reads_fours(const GateArgs& args) {
  const auto takes = [](const GateRows& rows) { return takes_fours(rows.data, rows.stride); };
  return args.width % 4 == 0 && takes(args.c) && takes(args.z) && takes(args.i) && takes(args.f) &&
         takes_fours(args.bias_i) && takes_fours(args.bias_f);
}

}  // namespace

void gate_forward(const GateArgs& args) {
  require_f32("gate", args.dtype);
  with_constants(args, reads_fours(args) && takes_fours(args.y), [&](auto kind, auto tanh_z, auto whole) {
    launch(kind == GateKind::fixed ? "fixed_gate" : "lstm_gate", forward_kernel<kind, tanh_z, whole>,
           blocks_of(args), kThreads, args);
  });
}

void gate_backward(const GateBackwardArgs& args) {
  require_f32("gate", args.dtype);
  const GateArgs& forward = args.forward;
  const bool whole = reads_fours(forward) && takes_fours(args.dy.data, args.dy.stride) &&
                     takes_fours(args.dc) && takes_fours(args.dz) && takes_fours(args.di) &&
                     takes_fours(args.df);
  with_constants(forward, whole, [&](auto kind, auto tanh_z, auto fours) {
    launch(kind == GateKind::fixed ? "fixed_gate_backward" : "lstm_gate_backward",
           backward_kernel<kind, tanh_z, fours>, blocks_of(forward), kThreads, args);
  });
}

}  // namespace eddy::cuda
