// Blocked attention on tensor cores, forward: in bf16, and in f32 with products in TF32.
// source: the online softmax of M. Milakov, N. Gimelshein, 2018, in the blocks of T. Dao et al.,
// FlashAttention, 2022, with the work of a warp split by queries as in T. Dao, FlashAttention-2, 2023.
//
// q, k, v and the result are bf16 or f32; scores, maxima, sums and accumulators of the result f32. The probabilities
// are rounded to bf16 or TF32 for their product with v, but not for their sum; the tables of positions are rounded
// too, and q, k and v of f32.
//
// Mapping: a block of 4 warps for each 64 queries of each head of each sequence; it walks over tiles of N
// keys that its queries see. A warp has 16 whole rows: maxima and sums need no other warp. The longest rows
// of a causal band start first. cuda/attention/attention_pairs.cuh says what a thread has. The values
// of a tile are copied while its scores are computed, the keys of the next tile while its values are
// multiplied.
//
// Shared memory: q, later the skewed products in its place; keys; values; with positions a window of them. In bf16 and
// in TF32:
//   H     keys   bytes    with positions   keys   bytes    with positions
//   32    64     27,648   37,888           64     35,840   54,272
//   64    64     35,840   54,272           64     52,224   87,040
//   128   64     52,224   87,040           32     67,584   not taken
//
// In TF32 products are half as fast on tensor cores and their operands take twice the bytes, so the limits below are
// the same. What TF32 adds is rounding: four instructions a number, each in its tile once and each probability once.
//
// Work: 4 H operations per visible pair, and H (2 + 32 / N) more with positions. With 64 queries to a block
// and tiles of 64 keys a warp does 4 * 16 * 64 H operations for 4 * 64 H bytes from shared memory: 16 to a
// byte. A multiprocessor reads 128 bytes a clock from it, so at most 2,048 operations a clock: all of a GPU
// of 8.0, half of what one of 9.0 has for its own wgmma. The exponentials: 16 a clock, so the 64 of a row
// take as long as 8,192 of the row's 4 H 64 operations: at H = 64 half of the products' time.
//
// Bytes moved: q and the result once, k and v once for each 64 queries, mostly from the second-level cache,
// where the least is once in all: 64 operations to a byte of the cache.
//
// To be measured: 32 queries to a warp (half the reads of shared memory for twice the registers); results
// written through shared memory, 16 bytes to a thread instead of 4; one exact kernel for heads of 96; one
// draw of four Philox words for each pair of dropout.
#include "cuda/attention/attention_tensor_core.cuh"
#include "cuda/attention/attention_tensor_core.h"

namespace eddy::cuda {
namespace {

template <class T, int H>
struct TensorForwardTile {
  static constexpr int kColumns = kTf32<T> && H > 64 ? 32 : 64;
  static constexpr int kQ = std::max(tensor_tile_bytes<T>(kTileRows, H), skew_bytes(kColumns));
  static constexpr int kKeys = tensor_tile_bytes<T>(kColumns, H);
  static constexpr int kWindow = tensor_tile_bytes<T>(kTileRows + kColumns, H);
  static constexpr int kShared = kQ + 2 * kKeys;
  static_assert(kShared + (kTakesPositions<T, H> ? kWindow : 0) <= kMostSharedBytes);
};

template <class T, int H>
__global__ void __launch_bounds__(kTensorThreads) tensor_forward_kernel(TensorForward launched) {
  using Tile = TensorForwardTile<T, H>;
  constexpr int N = Tile::kColumns;
  const AttentionArgs& args = launched.args;
  float* const skewed = shared_memory();
  T* const q = reinterpret_cast<T*>(skewed);
  T* const keys = q + Tile::kQ / sizeof(T);
  T* const values = keys + Tile::kKeys / sizeof(T);
  T* const window = values + Tile::kKeys / sizeof(T);  // only with positions

  const std::int64_t tiles = divide_up(args.queries, kTileRows), item = blockIdx.x / tiles;
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * kTileRows;
  const std::int64_t last = min(first + kTileRows, args.queries) - 1;
  const Head<T> head(args, item / args.heads, item % args.heads);
  const int width = static_cast<int>(args.head_size);
  const float factor = head.factor * kLog2OfE;  // scores in units of log 2
  const RowsOfKeys<T> own_keys{head.keys(), launched.k_aligned},
      own_values{head.values(), launched.v_aligned};
  const std::int64_t first_key = max(std::int64_t{0}, first + head.offset - args.most);
  const std::int64_t end_key = min(args.keys, last + head.offset - args.least + 1);

  const auto start_keys = [&](std::int64_t key) {
    start_rows<H, N>(own_keys, key, args.keys, width, keys);
    round_positions<H, kTileRows + N>(args, first + head.offset - key - (N - 1), window);
  };
  start_rows<H, kTileRows>(Rows<T>{{head.queries(), args.q_strides.time}, launched.q_aligned}, first,
                           args.queries, width, q);
  start_keys(first_key);
  finish_copies();
  round_tile<H, kTileRows>(q);
  __syncthreads();
  const RegisterRows<H, T> left(ReadRows<H, T>{q + warp() * 16 * tensor_row<T>(H)});

  float mixed[H / 8][4] = {};
  RunningSoftmax softmax;
  const std::int64_t own_query = first + warp() * 16;  // the warp's first
  for (std::int64_t key = first_key; key < end_key; key += N) {
    finish_copies();
    round_tile<H, N>(keys);
    __syncthreads();  // the keys have arrived; the previous values have been read
    start_rows<H, N>(own_values, key, args.keys, width, values);
    float scores[N / 8][4] = {};
    add_row_products<H, N>(left, keys, scores);
    if (kTakesPositions<T, H> && args.positions != nullptr) {
      float* const part = skew_part<N>(skewed);
      diagonal_products<H, N>(left, window + warp() * 16 * tensor_row<T>(H),
                              [part](int row, int column, float x) { part[row * skew_row(N) + column] = x; });
      __syncwarp();
      add_skewed<N>(part, scores);
      __syncwarp();
    }
    const std::int64_t base = own_query + head.offset - key;  // distance of the warp's first pair
    if (args.bias != nullptr) add_bias<N>(head, base, 1, scores);
    const std::uint32_t seen =
        Limits(16, args.keys - key, args.least - base, args.most - base).template bits<N>();
    const std::uint32_t kept = kept_bits<N>(head, own_query, key);
    float correction[2];
    if (softmax.weigh<N>(scores, seen, kept, factor, correction)) scale_rows(mixed, correction);
    finish_copies();
    round_tile<H, N>(values);
    __syncthreads();  // the values have arrived; the keys and positions have been read
    if (key + N < end_key) start_keys(key + N);
    add_row_mixes<H, N>(scores, values, mixed);
  }

  softmax.store<H>(head, own_query, mixed);
}

}  // namespace

void tensor_core_forward(const AttentionArgs& args) {
  for_tensor_type(args.dtype, args.head_size, [&](auto* type, auto size) {
    using T = StoredIn<decltype(type)>;
    constexpr int H = decltype(size)::value;
    using Tile = TensorForwardTile<T, H>;
    launch_shared("attention on tensor cores", tensor_forward_kernel<T, H>,
                  args.batch * args.heads * divide_up(args.queries, kTileRows), kTensorThreads,
                  Tile::kShared + (args.positions != nullptr ? Tile::kWindow : 0), tensor_forward(args));
  });
}

}  // namespace eddy::cuda
