// Blocked attention in bf16 on tensor cores, backward: the gradients of the tables by distance, bias and
// positions. The kernels for dq sum that of the bias (cuda/attention/attention_tensor_core_bias.cuh) unless
// that of positions is wanted too, dq is not wanted, or it does not fit; then this kernel does. It adds to the
// partial tables of the call. The formulas are in cuda/attention/attention_backward.cu;
// cuda/attention/attention_pairs.cuh says what a thread has.
//
// Mapping: a block of 4 warps for each 32 distances of a head and run of sequences, so that one block sums
// every entry of a part in a fixed order. It walks over tiles of 64 queries; a warp has 16 of them and all
// the distances. The pair of query j and distance d has key j + offset - d, so positions are the plain
// operand here, keys and values the diagonal ones. The gradients of the scores, rounded to bf16, pass through
// shared memory; of the table a warp has 16 distances and half of the head.
//
// Shared memory: two tiles of 64 rows, positions, windows of 96 keys and of 96 values (at H = 128 one for both in
// turn), and a part of each warp for the skewed products and then the gradients of the scores; blocks of a
// multiprocessor:
//   H     bytes     blocks
//   32    40,448    3
//   64    62,976    3
//   128   81,920    2
//
// Work: 2 H (1 + 2 * 1.5 + 1) operations per visible pair, without positions 6 H: skewing wastes a third.
//
// Bytes moved: q, do, k and v once for each 32 distances, mostly from the second-level cache, where the least
// is once in all.
//
// To be measured: 64 distances at H up to 64; tiles copied ahead.
#include "cuda/attention/attention_skew.cuh"
#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/attention_tensor_core_backward.cuh"
#include "cuda/core/team.cuh"

namespace eddy::cuda {
namespace {

constexpr int kDistances = 32;  // per block

template <int H>
struct TensorTablesTile {
  static constexpr int kRows = tensor_tile_bytes(kTileRows, H);
  static constexpr int kPositions = tensor_tile_bytes(kDistances, H);
  static constexpr int kWindow = tensor_tile_bytes(kTileRows + kDistances, H);
  // Up to H = 64 keys and values are in memory at once, at H = 128 values take the place of keys.
  static constexpr bool kBoth = H <= 64;
  static constexpr int kShared =
      2 * kRows + kPositions + (kBoth ? 2 : 1) * kWindow + skew_bytes_of(kTensorThreads / 32, kDistances);
  static_assert(2 * 16 * tensor_row(kDistances) <= skew_bytes_of(1, kDistances));
  static_assert(kShared <= kMostSharedBytes);
};

template <int H>
__global__ void __launch_bounds__(kTensorThreads, H <= 64 ? 3 : 2)
    tensor_tables_kernel(TensorBackward launched) {
  using Tile = TensorTablesTile<H>;
  constexpr int N = kDistances;
  const AttentionArgs& args = launched.args.forward;
  const AttentionTableRuns& tables = launched.partials.tables;
  bf16* const q = reinterpret_cast<bf16*>(shared_memory());
  bf16* const doutput = q + Tile::kRows / 2;
  bf16* const positions = doutput + Tile::kRows / 2;
  bf16* const window = positions + Tile::kPositions / 2;
  bf16* const value_window = window + (Tile::kBoth ? Tile::kWindow / 2 : 0);
  // For the skewed products, and then the gradients of the scores: a row for each query.
  float* const skewed = reinterpret_cast<float*>(value_window + Tile::kWindow / 2);
  float* const part = skew_of_warp<N>(skewed);
  const auto dscores = [skewed](int group) {  // of 16 queries
    return reinterpret_cast<bf16*>(skewed + group * 16 * (16 + N));
  };

  const std::int64_t tiles = divide_up(args.distances, N), item = blockIdx.x / tiles;
  const std::int64_t distance = blockIdx.x % tiles * N, last_distance = distance + N - 1;
  const std::int64_t h = item / tables.runs, run = item % tables.runs;
  const std::int64_t end_batch = min((run + 1) * tables.sequences, args.batch);
  const int width = static_cast<int>(args.head_size);
  round_positions<H, N>(args, distance, positions);

  const ReadRows<H> own_q{q + warp() * 16 * tensor_row(H)},
      own_doutput{doutput + warp() * 16 * tensor_row(H)};
  // sums += the warp's rows of `left` . rows of a window, on diagonals.
  const auto add_products = [part](const ReadRows<H>& left, const bf16* of, float(&sums)[N / 8][4]) {
    const bf16* const own_window = of + warp() * 16 * tensor_row(H);
    __syncwarp();  // the part has been read
    make_window_products<H, N>(
        left, [own_window](int i) { return own_window + 16 * i * tensor_row(H); }, part);
    __syncwarp();
    add_window_products<N>(part, sums);
  };
  float dpositions[H / 16][4] = {}, dbias[N / 8][2] = {};

  const bool met = distance <= args.most && last_distance >= args.least;
  for (std::int64_t batch = run * tables.sequences; met && batch < end_batch; ++batch) {
    const Head<bf16> head(args, batch, h);
    const float factor = head.factor * kLog2OfE;
    const std::int64_t begin = max(std::int64_t{0}, distance - head.offset);
    PieceOfRows<H, kTensorThreads> q_pieces, doutput_pieces, key_pieces, value_pieces;
    for (std::int64_t first = begin; first < args.queries; first += kTileRows) {
      __syncthreads();                                                  // the previous tile has been read
      const std::int64_t lowest = first + head.offset - last_distance;  // the first key that a pair has
      start_rows<kTileRows>(
          q_pieces, [&] { return launched.queries(head); }, first, args.queries, width, q);
      start_rows<kTileRows>(
          doutput_pieces, [&] { return launched.doutputs(head); }, first, args.queries, width, doutput);
      start_rows<kTileRows + N>(
          key_pieces, [&] { return launched.keys(head); }, lowest, args.keys, width, window);
      const auto start_values = [&] {
        start_rows<kTileRows + N>(
            value_pieces, [&] { return launched.values(head); }, lowest, args.keys, width, value_window);
      };
      if constexpr (Tile::kBoth) start_values();
      const std::int64_t own_query = first + warp() * 16, own_key = own_query + head.offset - distance;
      float log_sums[2], deltas[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        launched.statistics(head, own_query + own_row() + 8 * half, log_sums[half], deltas[half]);
      finish_copies();
      __syncthreads();
      float scores[N / 8][4] = {}, dweights[N / 8][4] = {};
      if (args.positions != nullptr) add_row_products<H, N>(own_q, positions, scores);
      add_products(own_q, window, scores);
      if constexpr (!Tile::kBoth) {
        __syncthreads();  // the keys have been read
        start_values();
        finish_copies();
        __syncthreads();
      }
      add_products(own_doutput, value_window, dweights);

      if (args.bias != nullptr) {
        const float* const bias = static_cast<const float*>(args.bias) + h * args.bias_stride;
#pragma unroll
        for (int n = 0; n < N / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            scores[n][e] += bias[min(distance + pair_column(4 * n + e), args.distances - 1)];
      }
      // Pairs are query own_query + row with key own_key + row - column.
      const Limits keys(args.queries - own_query, args.most - distance + 1, -own_key,
                        args.keys - 1 - own_key);
      const int first_column = static_cast<int>(max(std::int64_t{0}, args.least - distance));
      std::uint32_t seen = keys.bits<N>();
      if (first_column > 0)
        seen &= pair_bits<N>([first_column](int, int column) { return column >= first_column; });
      const std::uint32_t kept = args.drop_below == 0 ? 0xffffffffu : pair_bits<N>([&](int row, int column) {
        return head.keep(own_query + row, own_key + row - column) != 0.0f;
      });
      const float keep_scale = static_cast<float>(args.keep_scale);
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int half = e / 2;
          // A selection, not a branch, as in weights_and_gradients.
          const float p = fast_exp2(scores[n][e] * factor - log_sums[half]);
          const float of_seen =
              head.factor * p * ((has(kept, 4 * n + e) ? keep_scale * dweights[n][e] : 0.0f) - deltas[half]);
          const float dscore = has(seen, 4 * n + e) && deltas[half] != kNoGradient ? of_seen : 0.0f;
          dbias[n][e % 2] += dscore;
          scores[n][e] = dscore;
        }
      if (launched.args.dpositions == nullptr) continue;
      __syncwarp();  // the products have been read
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<std::uint32_t*>(dscores(warp()) + (own_row() + 8 * half) * tensor_row(N) + 8 * n +
                                            own_column()) =
              pack(scores[n][2 * half], scores[n][2 * half + 1]);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kTileRows / 16; ++k) {
        std::uint32_t a[4];
        load_left_transposed<N>(a, dscores(k) + warp() % 2 * 16);
#pragma unroll
        for (int piece = 0; piece < H / 32; ++piece) {
          std::uint32_t b[4];
          load_right_across<H>(b, q + 16 * k * tensor_row(H) + warp() / 2 * (H / 2) + 16 * piece);
          multiply_matrices(dpositions[2 * piece], a, b[0], b[1]);
          multiply_matrices(dpositions[2 * piece + 1], a, b[2], b[3]);
        }
      }
    }
  }

  const std::int64_t of_run = run * args.heads + h;
  if (launched.args.dpositions != nullptr) {
    float* const to = static_cast<float*>(launched.args.dpositions) + of_run * launched.args.dpositions_part;
#pragma unroll
    for (int pair = 0; pair < H / 4; ++pair) {
      const std::int64_t row = distance + warp() % 2 * 16 + pair_row(pair);
      const int column = warp() / 2 * (H / 2) + pair_column(pair);
      if (row < args.distances && column < width)
        to[row * launched.args.dpositions_stride + column] += dpositions[pair / 4][pair % 4];
    }
  }
  if (launched.args.dbias == nullptr) return;
  __syncthreads();  // the skewing memory has been read
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float sum = dbias[n][e];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
      if (own_row() == 0) skewed[warp() * N + 8 * n + own_column() + e] = sum;
    }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= N || distance + column >= args.distances) return;
  float sum = 0;
  for (int w = 0; w < kTensorThreads / 32; ++w) sum += skewed[w * N + column];
  static_cast<float*>(launched.args.dbias)[of_run * launched.args.dbias_stride + distance + column] += sum;
}

}  // namespace

void tensor_core_tables(const AttentionBackwardArgs& args, const AttentionPartials& partials) {
  const AttentionArgs& forward = args.forward;
  for_tensor_size(forward.head_size, [&](auto size) {
    constexpr int H = decltype(size)::value;
    launch_shared("attention_tables on tensor cores", tensor_tables_kernel<H>,
                  forward.heads * partials.tables.runs * divide_up(forward.distances, kDistances),
                  kTensorThreads, TensorTablesTile<H>::kShared, tensor_backward(args, partials));
  });
}

}  // namespace eddy::cuda
