// A phase of the unit recurrence as a kernel: rows times a weight, with what is around the product in the same launch.
//
//   prologue   rows of bf16 are copied, or made: a norm of rows of f32, or a norm's gradient
//   product    [rows, depth] times [columns, depth] transposed, mma.sync of bf16 with sums in f32
//   epilogue   bias; dropout and residual, the activation or the gate of a head; or the gradient of one of these
//
// All weights are row-major by the columns of the result; those of backward are transposed once a call. A warp has
// 16 rows and 32 columns; DepthWarps warps share them, of which warp w has the w-th of every DepthWarps steps of 16
// numbers of the depth. Their sums are added in the order of the warps. So the bits of a row depend neither on the
// batch nor on how many multiprocessors a GPU has.
//
//   mapping        a block for Rows rows and Columns columns: 32 x 32 where the depth is long or all columns are few,
//                  32 x 128 up to the MLP's width, 16 rows and the columns of whole heads with the gate
//   shared memory  the norm's parameters; made rows, whole; two chunks of up to 256 numbers of the depth of weights
//                  (and of copied rows), later the sums in their place: at most 99 KiB
//   bytes moved    each array of a step through memory once: at dim 384, mlp 1,536 and 256 rows 20 MB of a forward
//                  and a backward step, where the composed chain moves 30. A block reads its weights and its rows,
//                  most of them from the second-level cache: 52 MB forward and 68 backward, of which 3.2 each are the
//                  weights once. The first two chunks of weights come before the launch ahead has ended
#pragma once

#include "cuda/core/dependent_launch.cuh"
#include "cuda/core/shared_launch.cuh"
#include "cuda/core/warp_matrix.cuh"
#include "cuda/recurrence/unit_gate.cuh"
#include "ops/pointwise/pointwise_functors.h"

namespace eddy::cuda {

enum class Prologue { copy, norm, norm_gradient };
enum class Epilogue { residual, activation, key_value_gate, plain, activation_gradient, gate_gradient };

// The argument of every phase. Arrays are those of its step, unless a gate reads them by args.
struct PhaseLaunch {
  UnitRecurrenceArgs args;
  Dropout dropout;
  std::int64_t t;
  RandomKey key;  // of the prologue's or the epilogue's dropout
  const bf16* weight;
  const float* bias;   // [columns], aligned; may be null
  int depth, columns;  // of the weight
  int width;           // columns of the result that a block has, in each half of its tile
  int chunk_shift;     // a chunk has 8 << chunk_shift numbers of the depth
  const bf16* copied;  // [batch, depth]
  // [batch, depth]: rows with a norm. Of its gradient: to = before + the gradient of dy.
  const float *x, *dy, *before;
  const float *gain, *shift;  // [depth], aligned; may be null
  float *mean, *rstd;         // [batch]: written by a norm, read by its gradient
  bf16* made;                 // [batch, depth]: the rows of the product
  float* to;                  // [batch, depth]
  const float* residual;      // [batch, columns]
  float* y;                   // [batch, columns]
};

constexpr int kPhaseThreads = 256, kPhaseWarps = kPhaseThreads / 32, kPhaseEntries = 512;

// Rows lie 16 bytes apart, modulo 128: no two of eight are in the same banks.
EDDY_HOST_DEVICE constexpr int padded_depth(int depth) {
  return (depth + 63) / 64 * 64 + 8;
}

template <Prologue P, Epilogue E>
struct Phase {
  static constexpr bool kGate = E == Epilogue::key_value_gate || E == Epilogue::gate_gradient;
  static constexpr bool kWide = E == Epilogue::activation || E == Epilogue::activation_gradient;
  static constexpr int kHalves = E == Epilogue::key_value_gate ? 2 : 1;  // of keys and of values
  static constexpr int kRows = kGate ? 16 : 32;
  static constexpr int kColumns = kWide ? 128 : kGate ? 64 * kHalves : 32;
  static constexpr int kRowWarps = kRows / 16, kColumnWarps = kColumns / 32,
                       kDepthWarps = kPhaseWarps / (kRowWarps * kColumnWarps);
  static constexpr bool kCopies = P == Prologue::copy;
  // Blocks on a multiprocessor that registers must leave room for: without a bound those with a norm take up to 184.
  static constexpr int kLeastBlocks = 2;
  static constexpr int kChunkRows = kColumns + (kCopies ? kRows : 0);
  static constexpr int kSumPitch = kColumns + 4;
  static constexpr int kSumBytes = kDepthWarps * kRows * kSumPitch * 4;
  static_assert(kRowWarps * kColumnWarps * kDepthWarps == kPhaseWarps);

  // Rows of a norm's parameters.
  static constexpr int kParameters = kCopies ? 0 : P == Prologue::norm ? 2 : 1;
  static int made_bytes(int depth) {
    return kParameters * depth * 4 + (kCopies ? 0 : kRows * padded_depth(depth) * 2);
  }
  static int stage_bytes(int shift) { return kChunkRows * ((8 << shift) + 8) * 2; }
  static int stages(int depth, int shift) { return depth <= 8 << shift ? 1 : 2; }
  static int shared_bytes(int depth, int shift) {
    return made_bytes(depth) + std::max(kSumBytes, stages(depth, shift) * stage_bytes(shift));
  }
  // The longest chunk that fits: 64, 128 or 256 numbers.
  static int chunk_shift(int depth) {
    int shift = 5;
    while (shift > 3 && (shared_bytes(depth, shift) > kMostSharedBytes || depth <= 4 << shift)) --shift;
    return shift;
  }
};

// A thread's fours of a row of up to kPhaseEntries: lane l has l, l + 32, ...
struct PhaseRow {
  Fours at[kPhaseEntries / 128];
  template <class Visit>
  __device__ static void each(int depth, Visit&& visit) {
#pragma unroll
    for (int j = 0; j < kPhaseEntries / 128; ++j)
      if (const int i = 4 * (static_cast<int>(threadIdx.x) % 32) + 128 * j; i < depth) visit(j, i);
  }
  __device__ void load(const float* from, int depth) {
    each(depth, [&](int j, int i) { at[j] = read_fours<true>(from + i, 4); });
  }
};

// Several sums over a warp at once, each as Team<32>::reduce adds.
template <int Count>
__device__ void add_over_lanes(float (&sums)[Count]) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
#pragma unroll
    for (int i = 0; i < Count; ++i) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], distance);
}
// Replaces numbers that all lanes have by f of them. Of four a lane computes one for all: f has a division.
template <int Count, class F>
__device__ void map_by_lanes(float (&numbers)[Count], F&& f) {
  if constexpr (Count == 4) {
    const int which = static_cast<int>(threadIdx.x) % Count;
    const float own = f(which < 2    ? (which == 0 ? numbers[0] : numbers[1])
                        : which == 2 ? numbers[2]
                                     : numbers[3]);
#pragma unroll
    for (int i = 0; i < Count; ++i) numbers[i] = __shfl_sync(0xffffffffu, own, i);
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) numbers[i] = f(numbers[i]);
  }
}

// Copies the gain and, for a norm itself, the shift of a norm to shared memory: [1 or 2, depth].
template <Prologue P>
__device__ void start_parameters(const PhaseLaunch& launched, float* to) {
  for (int i = 4 * static_cast<int>(threadIdx.x); i < launched.depth; i += 4 * kPhaseThreads) {
    constexpr Fours kOnes{1, 1, 1, 1};
    *reinterpret_cast<Fours*>(to + i) =
        launched.gain == nullptr ? kOnes : read_fours<true>(launched.gain + i, 4);
    if constexpr (P == Prologue::norm)
      *reinterpret_cast<Fours*>(to + launched.depth + i) =
          launched.shift == nullptr ? Fours{} : read_fours<true>(launched.shift + i, 4);
  }
}

// Makes the block's rows [Rows, padded depth] in shared memory, of which `rows` are there; the others are computed as
// the last is. `saves`: it also stores the statistics, or the sum. All rows of a warp are loaded before any is computed
// with, or two of three arrays.
template <Prologue P, int Rows>
__device__ void make_rows(const PhaseLaunch& launched, const float* parameters, bf16* made, std::int64_t row0,
                          int rows, bool saves) {
  constexpr bool kNorm = P == Prologue::norm;
  constexpr int kOwn = Rows / kPhaseWarps, kTogether = kNorm ? kOwn : 2;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            depth = launched.depth, pitch = padded_depth(depth);
  const float count = static_cast<float>(depth);
  const std::int64_t corner = row0 * depth;
  const float *const of_x = launched.x + corner, *const of_dy = launched.dy + corner,
                     *const of_before = launched.before + corner;
  const RandomKey key = !kNorm && launched.dropout.on ? resolved(launched.key) : launched.key;
  for (int i = depth + lane; i < pitch; i += 32)
#pragma unroll
    for (int r = 0; r < kOwn; ++r) made[(warp * kOwn + r) * pitch + i] = static_cast<bf16>(0.0f);
#pragma unroll 1
  for (int first = 0; first < kOwn; first += kTogether) {
    const int row_first = warp * kOwn + first;
    PhaseRow x[kTogether], g[kNorm ? 1 : kTogether], before[kNorm ? 1 : kTogether];
#pragma unroll
    for (int r = 0; r < kTogether; ++r) {
      const int place = min(row_first + r, rows - 1) * depth;
      x[r].load(of_x + place, depth);
      if constexpr (!kNorm) {
        g[r].load(of_dy + place, depth);
        before[r].load(of_before + place, depth);
      }
    }
    bf16* const to = made + row_first * pitch;
    if constexpr (kNorm) {
      float mean[kTogether] = {}, rstd[kTogether] = {};
      PhaseRow::each(depth, [&](int j, int) {
#pragma unroll
        for (int r = 0; r < kTogether; ++r)
#pragma unroll
          for (int e = 0; e < 4; ++e) mean[r] += x[r].at[j].at[e];
      });
      add_over_lanes(mean);
      map_by_lanes(mean, [&](float sum) { return sum / count; });
      PhaseRow::each(depth, [&](int j, int) {
#pragma unroll
        for (int r = 0; r < kTogether; ++r)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& deviation = x[r].at[j].at[e];
            deviation -= mean[r];
            rstd[r] = fmaf(deviation, deviation, rstd[r]);
          }
      });
      add_over_lanes(rstd);
      map_by_lanes(rstd, [&](float squares) {
        return 1.0f / sqrtf(squares / count + static_cast<float>(launched.args.eps));
      });
#pragma unroll
      for (int r = 0; r < kTogether; ++r)
        if (saves && lane == r && row_first + r < rows) {
          launched.mean[row0 + row_first + r] = mean[r];
          launched.rstd[row0 + row_first + r] = rstd[r];
        }
      PhaseRow::each(depth, [&](int j, int i) {
        const Fours gain = read_fours<true>(parameters + i, 4),
                    shift = read_fours<true>(parameters + depth + i, 4);
#pragma unroll
        for (int r = 0; r < kTogether; ++r) {
          Fours four;
#pragma unroll
          for (int e = 0; e < 4; ++e)
            four.at[e] = fmaf(__fmul_rn(x[r].at[j].at[e], rstd[r]), gain.at[e], shift.at[e]);
          write_fours<true>(to + r * pitch + i, four, 4);
        }
      });
    } else {
      float mean[kTogether], rstd[kTogether], sums[2 * kTogether] = {};  // of g and of g n, row by row
#pragma unroll
      for (int r = 0; r < kTogether; ++r) {
        const std::int64_t row = row0 + min(row_first + r, rows - 1);
        mean[r] = launched.mean[row];
        rstd[r] = launched.rstd[row];
      }
      PhaseRow::each(depth, [&](int j, int i) {
        const Fours gain = read_fours<true>(parameters + i, 4);
#pragma unroll
        for (int r = 0; r < kTogether; ++r)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float &of_g = g[r].at[j].at[e], &n = x[r].at[j].at[e];
            of_g = __fmul_rn(of_g, gain.at[e]);
            n = __fmul_rn(n - mean[r], rstd[r]);
            sums[2 * r] += of_g;
            sums[2 * r + 1] = fmaf(of_g, n, sums[2 * r + 1]);
          }
      });
      add_over_lanes(sums);
      map_by_lanes(sums, [&](float sum) { return sum / count; });
#pragma unroll
      for (int r = 0; r < kTogether; ++r) {
        const bool stores = saves && row_first + r < rows;
        const std::int64_t place = corner + (row_first + r) * depth,
                           element = launched.t * launched.args.batch * depth + place;
        PhaseRow::each(depth, [&](int j, int i) {
          float factors[4];
          launched.dropout.get(factors, key, element + i);
          Fours whole, dropped;
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            whole.at[e] =
                fmaf(rstd[r], fmaf(-x[r].at[j].at[e], sums[2 * r + 1], g[r].at[j].at[e] - sums[2 * r]),
                     before[r].at[j].at[e]);
            dropped.at[e] = factors[e] * whole.at[e];
          }
          if (stores) write_fours<true>(launched.to + place + i, whole, 4);
          write_fours<true>(to + r * pitch + i, dropped, 4);
        });
      }
    }
  }
}

// Stores the rows that a warp made. Other warps' barriers stand between.
template <int Rows>
__device__ void save_rows(const PhaseLaunch& launched, const bf16* made, std::int64_t row0, int rows) {
  constexpr int kOwn = Rows / kPhaseWarps;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            depth = launched.depth;
  for (int r = warp * kOwn; r < min((warp + 1) * kOwn, rows); ++r)
    for (int i = 8 * lane; i < depth; i += 8 * 32)
      *reinterpret_cast<Neighbours<bf16, 8>*>(launched.made + (row0 + r) * depth + i) =
          *reinterpret_cast<const Neighbours<bf16, 8>*>(made + r * padded_depth(depth) + i);
}

// The heads of a block, row by row, each by a team of lanes: body(team, row of the block, head of the block). All
// threads of a warp call it together; a team without a head has one of 0 numbers.
template <int Rows, class Body>
__device__ void each_head_of_block(int d, int heads, int rows, Body&& body) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            lanes = HeadTeam::lanes_for(d), teams = 32 / lanes, items = rows * heads;
#pragma unroll 1
  for (int first = warp * teams; first < items; first += kPhaseWarps * teams) {
    const int wanted = first + lane / lanes, item = min(wanted, items - 1);
    body(HeadTeam{lanes, lane % lanes, wanted < items ? d : 0}, item / heads, item % heads);
  }
}

// Calls body(activation) with the activation's functions.
template <class Body>
__device__ void with_activation(bool gelu, Body&& body) {
  if (gelu)
    body(pointwise::Gelu{});
  else
    body(pointwise::Relu{});
}

template <Prologue P, Epilogue E>
__global__ void __launch_bounds__(kPhaseThreads, Phase<P, E>::kLeastBlocks)
    phase_kernel(const __grid_constant__ PhaseLaunch launched) {
  using Own = Phase<P, E>;
  constexpr int kRows = Own::kRows, kColumns = Own::kColumns, kHalf = kColumns / Own::kHalves;
  const UnitRecurrenceArgs& args = launched.args;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int depth = launched.depth, shift = launched.chunk_shift, chunk = 8 << shift, pitch = chunk + 8,
            chunks = (depth + chunk - 1) / chunk, of_half = launched.columns / Own::kHalves,
            across = (of_half + launched.width - 1) / launched.width;
  const std::int64_t row0 = blockIdx.x / static_cast<unsigned>(across) * kRows;
  const int column0 = static_cast<int>(blockIdx.x % static_cast<unsigned>(across)) * launched.width,
            width = min(launched.width, of_half - column0),
            rows = static_cast<int>(min(static_cast<std::int64_t>(kRows), args.batch - row0));

  float* const parameters = shared_memory();
  bf16* const made = reinterpret_cast<bf16*>(parameters + Own::kParameters * depth);
  bf16* const stages = made + (Own::kCopies ? 0 : kRows * padded_depth(depth));
  float* const sums = reinterpret_cast<float*>(stages);
  const auto stage = [&](int c) { return stages + c % 2 * Own::kChunkRows * pitch; };
  // Starts copies of the chunk's part of `count` rows of the depth, of which `there` are there; the others are zero.
  const auto start_rows = [&](bf16* to, int c, int count, const bf16* from, int there) {
    const int at = c * chunk + (thread & ((1 << shift) - 1)) * 8, step = kPhaseThreads >> shift;
    int row = thread >> shift;
    if (at >= depth) there = 0;
    to += row * pitch + at - c * chunk;
    from += static_cast<std::int64_t>(row) * depth + at;
    for (; row < count; row += step, to += step * pitch, from += step * depth)
      start_copy(to, row < there ? from : launched.weight, row < there);
  };
  const auto start_weights = [&](int c) {
#pragma unroll
    for (int half = 0; half < Own::kHalves; ++half)
      start_rows(stage(c) + half * kHalf * pitch, c, kHalf,
                 launched.weight + static_cast<std::int64_t>(half * of_half + column0) * depth, width);
  };
  const auto start_copied = [&](int c) {
    if constexpr (Own::kCopies)
      start_rows(stage(c) + kColumns * pitch, c, kRows, launched.copied + row0 * depth, rows);
  };
  for (int c = 0; c < min(chunks, 2); ++c) start_weights(c);
  if constexpr (!Own::kCopies) {
    start_parameters<P>(launched, parameters);
    __syncthreads();
  }
  wait_for_launch_ahead();
  for (int c = 0; c < min(chunks, 2); ++c) start_copied(c);
  // What the epilogue reads comes while the product is computed.
  const std::int64_t corner = row0 * launched.columns + column0;
  [[maybe_unused]] Fours residual;
  if constexpr (E == Epilogue::residual) {
    static_assert(kRows * kColumns / 4 == kPhaseThreads);
    const int r = thread / (kColumns / 4), n = thread % (kColumns / 4) * 4;
    if (r < rows && n < width)
      residual = read_fours<true>(launched.residual + corner + r * launched.columns + n, 4);
  }
  if constexpr (!Own::kCopies) make_rows<P, kRows>(launched, parameters, made, row0, rows, column0 == 0);

  const int row_warp = warp % Own::kRowWarps * 16,
            column_warp = warp / Own::kRowWarps % Own::kColumnWarps * 32,
            depth_warp = warp / (Own::kRowWarps * Own::kColumnWarps);
  float tile[4][4] = {};
#pragma unroll 1
  for (int c = 0; c < chunks; ++c) {
    finish_copies();
    __syncthreads();
    if (c > 0 && c + 1 < chunks) start_weights(c + 1), start_copied(c + 1);
    const bf16* const weights =
        stage(c) + (column_warp + lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
    const bf16* const of_rows =
        (Own::kCopies ? stage(c) + (kColumns + row_warp + lane % 16) * pitch
                      : made + (row_warp + lane % 16) * padded_depth(depth) + c * chunk) +
        lane / 16 * 8;
    const int steps = (min(chunk, depth - c * chunk) + 15) / 16;
#pragma unroll 4
    for (int step = depth_warp; step < steps; step += Own::kDepthWarps) {
      std::uint32_t a[4], b[2][4];
      load_matrices(a, of_rows + 16 * step);
#pragma unroll
      for (int h = 0; h < 2; ++h) load_matrices(b[h], weights + 16 * h * pitch + 16 * step);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        multiply_matrices(tile[2 * h], a, b[h][0], b[h][1]);
        multiply_matrices(tile[2 * h + 1], a, b[h][2], b[h][3]);
      }
    }
  }
  __syncthreads();  // the sums take the place of the chunks
  begin_next_launch();
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[(depth_warp * kRows + row_warp + lane / 4 + i / 2 * 8) * Own::kSumPitch + column_warp + 8 * n +
           lane % 4 * 2 + i % 2] = tile[n][i];
  __syncthreads();

  if constexpr (!Own::kCopies)
    if (column0 == 0) save_rows<kRows>(launched, made, row0, rows);

  const RandomKey key =
      E == Epilogue::residual && launched.dropout.on ? resolved(launched.key) : launched.key;
  const std::int64_t of_step =
      launched.t * args.batch * launched.columns + corner;  // in an array of all steps
  for (int i = thread; i < kRows * kColumns / 4; i += kPhaseThreads) {
    const int r = i / (kColumns / 4), n = i % (kColumns / 4) * 4, half = n / kHalf,
              in_half = n - half * kHalf;
    if (r >= rows || in_half >= width) continue;
    float* const place = sums + r * Own::kSumPitch + n;
    Fours four = *reinterpret_cast<const Fours*>(place);
#pragma unroll
    for (int w = 1; w < Own::kDepthWarps; ++w) {
      const Fours more = *reinterpret_cast<const Fours*>(place + w * kRows * Own::kSumPitch);
#pragma unroll
      for (int e = 0; e < 4; ++e) four.at[e] += more.at[e];
    }
    const int column = half * of_half + in_half, at = r * launched.columns + column;  // from the corner
    if (launched.bias != nullptr) {
      const Fours bias = read_fours<true>(launched.bias + column0 + column, 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) four.at[e] += bias.at[e];
    }
    if constexpr (E == Epilogue::plain) {
      write_fours<true>(launched.y + corner + at, four, 4);
    } else if constexpr (E == Epilogue::residual) {
      float factors[4];
      launched.dropout.get(factors, key, of_step + at);
#pragma unroll
      for (int e = 0; e < 4; ++e) four.at[e] = fmaf(factors[e], four.at[e], residual.at[e]);
      write_fours<true>(launched.y + corner + at, four, 4);
    } else if constexpr (Own::kWide) {
      bf16* const u = static_cast<bf16*>(args.u) + of_step + at;
      // Forward the activation is in the place of one step, backward in that of all.
      bf16* const act = static_cast<bf16*>(args.act) + (E == Epilogue::activation ? corner : of_step) + at;
      Fours activated;
      if constexpr (E == Epilogue::activation) {
        with_activation(args.gelu, [&](auto activation) {
#pragma unroll
          for (int e = 0; e < 4; ++e) activated.at[e] = activation.forward(four.at[e]);
        });
        write_fours<true>(u, four, 4);
      } else {
        const Neighbours<bf16, 4> stored = *reinterpret_cast<const Neighbours<bf16, 4>*>(u);
        with_activation(args.gelu, [&](auto activation) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float x = static_cast<float>(stored.at[e]);
            activated.at[e] = activation.forward(x);
            four.at[e] = activation.vjp(four.at[e], x);
          }
        });
        write_fours<true>(static_cast<bf16*>(args.du) + of_step + at, four, 4);
      }
      write_fours<true>(act, activated, 4);
    } else {
      *reinterpret_cast<Fours*>(place) = four;
      if constexpr (E == Epilogue::key_value_gate)
        if (launched.t + 1 == args.time) {
          float* const all = static_cast<float*>(half == 0 ? args.key : args.value);
          write_fours<true>(all + (launched.t * args.batch + row0 + r) * args.dim + column0 + in_half, four,
                            4);
        }
    }
  }
  if constexpr (Own::kGate) {
    if (E == Epilogue::key_value_gate && launched.t + 1 == args.time) return;
    __syncthreads();
    const int d = static_cast<int>(args.dim / args.heads), first_head = column0 / d;
    // Forward the gate is that of the next step.
    const Step step{args, launched.t + (E == Epilogue::key_value_gate ? 1 : 0), launched.dropout};
    each_head_of_block<kRows>(d, width / d, rows, [&](const HeadTeam& team, int r, int head) {
      const float* const of_head = sums + r * Own::kSumPitch + head * d;
      const std::int64_t row = row0 + r;
      if constexpr (E == Epilogue::key_value_gate) {
        gate_of_head<bf16>(
            args, step, HeadOfRow<true>(args, step, team, row, first_head + head, d, of_head, kHalf), true);
      } else {
        bf16* const dkv = step.at<bf16>(args.dkv, row - args.batch, 2 * args.dim) + (first_head + head) * d;
        gate_backward_of_head(args, step, HeadOfRow<true>(args, step, team, row, first_head + head, d),
                              of_head, dkv, dkv + args.dim);
      }
    });
  }
}

}  // namespace eddy::cuda
