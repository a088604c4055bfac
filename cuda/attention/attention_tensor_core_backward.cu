// Blocked attention on tensor cores, backward, in bf16 and in f32 with products in TF32: dq, dk and dv. The formulas
// and the final sums of parts are in cuda/attention/attention_backward.cu; cuda/attention/attention_pairs.cuh says what
// a thread has.
//
// q, k, v, the result and their gradients are bf16 or f32, all sums f32. Probabilities, dropped or not, and the
// gradients of the scores are rounded to bf16 or TF32 as operands, and so are the tables of positions; of f32 also q,
// k, v and do, but not where do . o is made.
//
// There are two kernels. Each keeps the sums of its own rows in registers and computes the scores: no
// atomics, and the same bits every time. One kernel for all three gradients would save two products of seven,
// but must write dq in one part for each tile of keys: 8 H bytes written and read for 64 keys of a query
// against the 256 H operations saved, 32 to a byte, where a GPU of 9.0 has some 200.
//
// Mapping:
//   tensor_queries_kernel   a block for each 64 queries of a head, 16 to a warp: the deltas, dq, each row's
//                           share of dhead_scale, and, if it fits, the gradient of the bias
//                           (cuda/attention/attention_tensor_core_bias.cuh)
//   tensor_keys_kernel      a block for each 64 keys of a key head, 16 to a warp, over the heads that share
//                           it: dk and dv. Scores are transposed, keys in rows, so that both products over
//                           queries take them from registers. A block whose keys want no gradient does
//                           nothing.
//
// Tiles of the other side hold N = 64 rows, at H = 128 32; in TF32 half as many at H = 64 and 128. One half of a tile
// is copied while the last product of the previous tile is computed.
//
// Shared memory: four tiles (two of 64 rows, two of N), log_sum and delta of N rows (keys' kernel), with
// positions a window of 64 + N of them and the skewed products. In bf16 and in TF32:
//   H     N     bytes    with positions   N     bytes    with positions
//   32    64    20,992   48,640           64    37,376   73,216
//   64    64    37,376   73,216           32    52,480   87,808
//   128   32    52,480   87,808           16    84,608   not taken
// The gradient of the bias adds 16 bytes a distance: 8,192 for a band of 512. At H = 128 three blocks fit on
// a multiprocessor of 9.0 with up to 1,500 distances, as without the bias.
//
// Registers (nvcc 13.0, sm_90), in bf16 and in TF32. Only the keys' kernel in bf16 at H = 128 spills, 68 bytes:
//   H     dq     dq with the bias    dk and dv    dq     dq with the bias    dk and dv
//   32    162    168                 222          165    159                 222
//   64    168    168                 251          150    154                 227
//   128   157    158                 255          164    160                 245
//
// Work: 6 H operations for dq and 8 H for dk and dv per visible pair, with positions 2 H (2 + 32 / N) and 4 H
// more. For 16 rows and 16 numbers of another 16 a warp reads 512 bytes for 8,192 operations, and the rows
// again for each product: 13 operations to a byte (N = 64) or 11 (32). A multiprocessor reads 128 bytes a
// clock, so some 1,600 operations a clock at most, where one of 8.0 has 2,048 and one of 9.0 4,096.
//
// Bytes moved: q, k, v, o, do and the gradients of q, k and v once; k and v once more for each 64 queries, q
// and do for each 64 keys, mostly from the second-level cache.
//
// To be measured: copying whole tiles a tile ahead (two more tiles of memory); 32 rows to a warp; rows kept
// in registers at H = 64; one draw of four Philox words for each pair of dropout.
#include "cuda/attention/attention_tensor_core.cuh"
#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/attention_tensor_core_backward.cuh"
#include "cuda/attention/attention_tensor_core_bias.cuh"

namespace eddy::cuda {
namespace {

template <class T, int H>
struct TensorBackwardTile {
  static constexpr int kOthers = kTf32<T> ? std::min(64, 2048 / H) : std::min(64, 4096 / H);  // N
  static constexpr int kRows = tensor_tile_bytes<T>(kTileRows, H);
  static constexpr int kOther = tensor_tile_bytes<T>(kOthers, H);
  static constexpr int kStatistics = 2 * 4 * kOthers;
  static constexpr int kWindow = tensor_tile_bytes<T>(kTileRows + kOthers, H);
  static constexpr int kShared = 2 * kRows + 2 * kOther + kStatistics;
  static constexpr int kForPositions = kWindow + skew_bytes(kOthers);
  static_assert(kShared + (kTakesPositions<T, H> ? kForPositions : 0) <= kMostSharedBytes);
};

// ---- dq, and the rows' shares of dhead_scale

// SumsBias: the gradient of the bias as well (cuda/attention/attention_tensor_core_bias.cuh). At H = 128 nvcc
// would give that kernel too many registers for three blocks on 9.0; 0 leaves the choice to nvcc.
template <class T, int H, bool SumsBias>
__global__ void __launch_bounds__(kTensorThreads, SumsBias && !kTf32<T> && H == 128 ? 3 : 0)
    tensor_queries_kernel(TensorBackward launched) {
  using Tile = TensorBackwardTile<T, H>;
  constexpr int N = Tile::kOthers;
  const AttentionArgs& args = launched.args.forward;
  T* const q = reinterpret_cast<T*>(shared_memory());
  T* const doutput = q + Tile::kRows / sizeof(T);
  T* const keys = doutput + Tile::kRows / sizeof(T);
  T* const values = keys + Tile::kOther / sizeof(T);
  T* const window = values + Tile::kOther / sizeof(T);  // only with positions, as the next
  float* const part = skew_part<N>(reinterpret_cast<float*>(window + Tile::kWindow / sizeof(T)));
  const bool positions = kTakesPositions<T, H> && args.positions != nullptr;

  const std::int64_t tiles = divide_up(args.queries, kTileRows), item = blockIdx.x / tiles;
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * kTileRows;
  const std::int64_t last = min(first + kTileRows, args.queries) - 1;
  const Head<T> head(args, item / args.heads, item % args.heads);
  const int width = static_cast<int>(args.head_size);
  const std::int64_t first_key = max(std::int64_t{0}, first + head.offset - args.most);
  const std::int64_t end_key = min(args.keys, last + head.offset - args.least + 1);

  const auto start_keys = [&](std::int64_t key) {
    start_rows<H, N>(launched.keys(head), key, args.keys, width, keys);
    round_positions<H, kTileRows + N>(args, first + head.offset - key - (N - 1), window);
  };
  const auto start_values = [&](std::int64_t key) {
    start_rows<H, N>(launched.values(head), key, args.keys, width, values);
  };
  start_rows<H, kTileRows>(launched.queries(head), first, args.queries, width, q);
  start_rows<H, kTileRows>(launched.doutputs(head), first, args.queries, width, doutput);
  start_keys(first_key);
  start_values(first_key);

  const std::int64_t own_query = first + warp() * 16;  // the warp's first
  const ReadRows<H, T> own_q{q + warp() * 16 * tensor_row<T>(H)},
      own_doutput{doutput + warp() * 16 * tensor_row<T>(H)};
  const T* const own_window = window + warp() * 16 * tensor_row<T>(H);
  float log_sums[2], deltas[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    log_sums[half] = launched.log_sum(head, own_query + own_row() + 8 * half);
  make_deltas<H>(launched, head, own_query, deltas);
  settle_tile<H, kTileRows>(q);
  settle_tile<H, kTileRows>(doutput);
  float dq[H / 8][4] = {}, shares[2] = {};
  BiasTables<SumsBias, kTensorThreads> dbias(launched);

  for (std::int64_t key = first_key; key < end_key; key += N) {
    finish_copies();
    round_tile<H, N>(keys);
    round_tile<H, N>(values);
    __syncthreads();  // keys, positions and values have arrived
    float scores[N / 8][4] = {}, dweights[N / 8][4] = {};
    add_row_products<H, N>(own_q, keys, scores);
    if (positions) {
      diagonal_products<H, N>(own_q, own_window,
                              [part](int row, int column, float x) { part[row * skew_row(N) + column] = x; });
      __syncwarp();
      add_skewed<N>(part, scores);
      __syncwarp();
    }
    add_row_products<H, N>(own_doutput, values, dweights);
    __syncthreads();  // the values have been read
    if (key + N < end_key) start_values(key + N);

    const std::int64_t base = own_query + head.offset - key;  // distance of the warp's first pair
    if (args.bias != nullptr) add_bias<N>(head, base, 1, scores);
    const std::uint32_t seen =
        Limits(args.queries - own_query, args.keys - key, args.least - base, args.most - base)
            .template bits<N>();
    const std::uint32_t kept = kept_bits<N>(head, own_query, key);
    score_gradients<N>(head, launched.args.dhead_scale != nullptr, seen, kept, log_sums, deltas, scores,
                       dweights, shares);
    dbias.add(BlockDiagonals<N>(dweights), args, base);
    add_row_mixes<H, N>(dweights, keys, dq);
    if (positions) {
#pragma unroll
      for (int pair = 0; pair < N / 2; ++pair)
        part[pair_row(pair) * skew_row(N) + pair_column(pair)] = dweights[pair / 4][pair % 4];
      __syncwarp();
      add_diagonal_mixes<H, N>(part, own_window, dq);
    }
    __syncthreads();  // keys, positions and the skewing memory have been read
    if (key + N < end_key) start_keys(key + N);
  }
  finish_copies();  // the first ones, when no key is visible

  store_query_gradients<H>(launched, head, own_query, dq, shares);
  dbias.store();
}

// ---- dk and dv

template <class T, int H>
__global__ void __launch_bounds__(kTensorThreads) tensor_keys_kernel(TensorBackward launched) {
  using Tile = TensorBackwardTile<T, H>;
  constexpr int N = Tile::kOthers;
  const AttentionArgs& args = launched.args.forward;
  T* const keys = reinterpret_cast<T*>(shared_memory());
  T* const values = keys + Tile::kRows / sizeof(T);
  T* const q = values + Tile::kRows / sizeof(T);
  T* const doutput = q + Tile::kOther / sizeof(T);
  float* const log_sums = reinterpret_cast<float*>(doutput + Tile::kOther / sizeof(T));
  float* const deltas = log_sums + N;
  T* const window = reinterpret_cast<T*>(deltas + N);  // only with positions, as the next
  float* const part = skew_part<N>(reinterpret_cast<float*>(window + Tile::kWindow / sizeof(T)));
  const bool positions = kTakesPositions<T, H> && args.positions != nullptr;

  const std::int64_t tiles = divide_up(args.keys, kTileRows), item = blockIdx.x / tiles;
  const std::int64_t key = blockIdx.x % tiles * kTileRows, last_key = min(key + kTileRows, args.keys) - 1;
  const std::int64_t batch = item / args.kv_heads, kv_head = item % args.kv_heads,
                     group = args.heads / args.kv_heads;
  if (!wants_keys(launched.args, key, last_key)) return;
  const int width = static_cast<int>(args.head_size);
  const std::int64_t own_key = key + warp() * 16;  // the warp's first
  const ReadRows<H, T> own_keys{keys + warp() * 16 * tensor_row<T>(H)},
      own_values{values + warp() * 16 * tensor_row<T>(H)};
  {
    const Head<T> head(args, batch, kv_head * group);
    start_rows<H, kTileRows>(launched.keys(head), key, args.keys, width, keys);
    start_rows<H, kTileRows>(launched.values(head), key, args.keys, width, values);
    settle_tile<H, kTileRows>(keys);
    settle_tile<H, kTileRows>(values);
  }
  float dk[H / 8][4] = {}, dv[H / 8][4] = {};

  for (std::int64_t member = 0; member < group; ++member) {
    const Head<T> head(args, batch, kv_head * group + member);
    const std::int64_t begin = max(std::int64_t{0}, key - head.offset + args.least);
    const std::int64_t end = min(args.queries, last_key - head.offset + args.most + 1);
    const auto start_queries = [&](std::int64_t query) {
      start_rows<H, N>(launched.queries(head), query, args.queries, width, q);
      round_positions<H, kTileRows + N>(args, query + head.offset - key - (kTileRows - 1), window);
    };
    const auto start_doutputs = [&](std::int64_t query) {
      start_rows<H, N>(launched.doutputs(head), query, args.queries, width, doutput);
    };
    if (begin < end) {
      start_queries(begin);
      start_doutputs(begin);
    }
    for (std::int64_t query = begin; query < end; query += N) {
      for (int i = static_cast<int>(threadIdx.x); i < N; i += kTensorThreads) {
        launched.statistics(head, query + i, log_sums[i], deltas[i]);
        deltas[i] = scaled_delta(head.factor, deltas[i]);
      }
      finish_copies();
      round_tile<H, N>(q);
      round_tile<H, N>(doutput);
      __syncthreads();  // queries, positions, gradients and statistics have arrived
      float scores[N / 8][4] = {}, dweights[N / 8][4] = {};
      add_row_products<H, N>(own_keys, q, scores);
      if (positions) {
#pragma unroll 1
        for (int start = 0; start < N; start += 16)  // 16 queries as rows, the warp's keys as columns
          diagonal_products<H, 16>(
              ReadRows<H, T>{q + start * tensor_row<T>(H)},
              window + (start - warp() * 16 + kTileRows - 16) * tensor_row<T>(H),
              [part, start](int row, int column, float x) { part[column * skew_row(N) + start + row] = x; });
        __syncwarp();
        add_skewed<N>(part, scores);
        __syncwarp();
      }
      add_row_products<H, N>(own_values, doutput, dweights);

      const std::int64_t base = query + head.offset - own_key;  // distance of the warp's first pair
      if (args.bias != nullptr) add_bias<N>(head, base, -1, scores);
      const std::uint32_t seen =
          Limits(args.keys - own_key, args.queries - query, base - args.most, base - args.least)
              .template bits<N>();
      const std::uint32_t kept = kept_bits<N, true>(head, query, own_key);
      weights_and_gradients<N>(head, head.factor, seen, kept, log_sums, deltas, scores, dweights);
      add_row_mixes<H, N>(scores, doutput, dv);
      __syncthreads();  // gradients and statistics have been read
      if (query + N < end) start_doutputs(query + N);
      add_row_mixes<H, N>(dweights, q, dk);
      __syncthreads();  // queries and positions have been read
      if (query + N < end) start_queries(query + N);
    }
  }

  finish_copies();  // keys and values, when no query sees them
  store_key_gradients<T, H>(launched, batch, kv_head, own_key, dk, dv);
}

}  // namespace

bool tensor_core_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials) {
  bool sums_bias = false;
  for_tensor_type(args.dtype, args.forward.head_size, [&](auto* type, auto size) {
    using T = StoredIn<decltype(type)>;
    constexpr int H = decltype(size)::value;
    using Tile = TensorBackwardTile<T, H>;
    sums_bias = launch_queries("attention_dq on tensor cores", tensor_queries_kernel<T, H, false>,
                               tensor_queries_kernel<T, H, true>, args, partials, kTileRows, kTensorThreads,
                               Tile::kShared + (args.forward.positions != nullptr ? Tile::kForPositions : 0),
                               kMostSharedBytes);
  });
  return sums_bias;
}

void tensor_core_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials) {
  const AttentionArgs& forward = args.forward;
  for_tensor_type(args.dtype, forward.head_size, [&](auto* type, auto size) {
    using T = StoredIn<decltype(type)>;
    constexpr int H = decltype(size)::value;
    using Tile = TensorBackwardTile<T, H>;
    launch_shared("attention_dk_dv on tensor cores", tensor_keys_kernel<T, H>,
                  forward.batch * forward.kv_heads * divide_up(forward.keys, kTileRows), kTensorThreads,
                  Tile::kShared + (forward.positions != nullptr ? Tile::kForPositions : 0),
                  tensor_backward(args, partials));
  });
}

}  // namespace eddy::cuda
