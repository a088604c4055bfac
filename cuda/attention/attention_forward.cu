// Blocked attention, forward: softmax(scores) v without storing the scores.
// source: the online softmax of M. Milakov, N. Gimelshein, 2018, in the blocks of T. Dao et al.,
// FlashAttention, 2022.
//
// Mapping: a block for each tile of queries of each head of each sequence; it walks over the key tiles that
// its queries see. cuda/attention/attention.cuh says which thread has which scores; a thread also has H / 16
// entries of the result rows y + 16 i. The 16 threads of a row all keep its maximum and sum. The longest rows
// of a causal band start first.
//
// Shared memory: the queries; one tile for keys, then positions, then values; the probabilities:
//   H     queries x keys   bytes
//   32    64 x 64          35,840
//   64    64 x 64          52,224
//   128   64 x 32          59,904
//   256   32 x 32          71,168
//
// Bytes moved: q once, the result and log_sum once, and k and v once for each tile of queries, mostly from
// the second-level cache, where the least is once in all.
#include "cuda/attention/attention.cuh"
#include "cuda/attention/attention_tensor_core.h"
#include "cuda/core/team.cuh"

namespace eddy::cuda {
namespace {

template <int H>
struct ForwardTile {
  static constexpr int kR = H <= 128 ? 4 : 2, kC = H <= 64 ? 4 : 2;
  static constexpr int kRows = kSide * kR, kColumns = kSide * kC;
  static constexpr int kShared =
      4 * (tile_numbers(kRows, H) + tile_numbers(kColumns, H) + tile_numbers(kRows, kColumns));
  static_assert(kShared <= kMostSharedBytes);
};

template <class T, int H>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(AttentionArgs args) {
  using Tile = ForwardTile<H>;
  constexpr int R = Tile::kR, C = Tile::kC, kRows = Tile::kRows, kColumns = Tile::kColumns;
  float* const q = shared_memory();
  float* const keys = q + tile_numbers(kRows, H);  // then positions, then values
  float* const weights = keys + tile_numbers(kColumns, H);

  const std::int64_t tiles = divide_up(args.queries, kRows), item = blockIdx.x / tiles;
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * kRows;
  const std::int64_t last = min(first + kRows, args.queries) - 1;
  const Head<T> head(args, item / args.heads, item % args.heads);
  load_rows<H, kRows>(head.queries(), args.q_strides.time, first, args.queries, args.head_size, q);

  float mixed[R][Part<H>::kEntries] = {};
  float maximum[R], sum[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    maximum[i] = minus_infinity();
    sum[i] = 0;
  }
  const std::int64_t first_key = max(std::int64_t{0}, first + head.offset - args.most);
  const std::int64_t end_key = min(args.keys, last + head.offset - args.least + 1);
  for (std::int64_t key = first_key; key < end_key; key += kColumns) {
    __syncthreads();  // the previous tile of values has been read
    load_rows<H, kColumns>(head.keys(), key, args.keys, args.head_size, keys);
    __syncthreads();
    float scores[R][C] = {};
    add_products<H>(q, keys, scores);
    write_keep<R, C>(head, first, weights, row_of(kColumns), 1,
                     [=](std::int64_t, int column) { return key + column; });
    const std::int64_t base = first + head.offset - key;  // distance of the tile's first pair
    if (args.positions != nullptr)
      for (int done = 0; done < kRows + kColumns - 1; done += kColumns) {
        __syncthreads();
        load_rows<H, kColumns>(static_cast<const float*>(args.positions), args.positions_stride,
                               base - (kColumns - 1) + done, args.distances, args.head_size, keys);
        __syncthreads();
        add_diagonal_products<H, kColumns>(q, keys, kColumns - 1 - done, scores);
      }

#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int row = thread_row() + kSide * i;
      const std::int64_t query = first + row;
      bool seen[C];
      float top = maximum[i];
#pragma unroll
      for (int j = 0; j < C; ++j) {
        const int column = thread_column() + kSide * j;
        seen[j] = head.sees(query, key + column);
        if (!seen[j]) continue;
        scores[i][j] = head.factor * (scores[i][j] + head.bias(base + row - column));
        top = fmaxf(top, scores[i][j]);
      }
      top = reduce_row(top, Larger{});
      const float correction = top == maximum[i] ? 1.0f : expf(maximum[i] - top);
      maximum[i] = top;
      float added = 0;
#pragma unroll
      for (int j = 0; j < C; ++j) {
        const int column = thread_column() + kSide * j;
        const float p = seen[j] ? expf(scores[i][j] - top) : 0.0f;
        added += p;
        float& weight = weights[row * row_of(kColumns) + column];
        weight = seen[j] && args.drop_below != 0 ? p * weight : p;
      }
      sum[i] = sum[i] * correction + reduce_row(added, Plus{});
#pragma unroll
      for (int entry = 0; entry < Part<H>::kEntries; ++entry) mixed[i][entry] *= correction;
    }
    __syncthreads();  // the keys have been read
    load_rows<H, kColumns>(head.values(), key, args.keys, args.head_size, keys);
    __syncthreads();
    add_mixed<H, kColumns>(weights, keys, mixed);
  }

#pragma unroll
  for (int i = 0; i < R; ++i) {
    const std::int64_t query = first + thread_row() + kSide * i;
    const float inverse = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];  // 0: the query sees no key
#pragma unroll
    for (int entry = 0; entry < Part<H>::kEntries; ++entry) mixed[i][entry] *= inverse;
    if (thread_column() == 0 && query < args.queries)
      static_cast<float*>(args.log_sum)[head.row_at(query)] =
          sum[i] == 0.0f ? minus_infinity() : maximum[i] + logf(sum[i]);
  }
  store_rows<H>(mixed, first, args.queries, args.head_size, static_cast<T*>(args.output) + head.output_at(0),
                head.output_stride());
}

}  // namespace

void attention_forward(const AttentionArgs& args) {
  const Kernel kernel = attention_kernel(args);
  const bool products = takes_position_products(args, kernel);
  if (kernel == Kernel::wgmma) {
    if (!wide_forward(args)) wgmma_forward(args, products);
    return;
  }
  if (kernel == Kernel::mma) return tensor_core_forward(args);
  for_type_and_size("attention", args.dtype, args.head_size, [&](auto* type, auto size) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int H = decltype(size)::value;
    using Tile = ForwardTile<H>;
    launch_shared("attention", forward_kernel<T, H>,
                  args.batch * args.heads * divide_up(args.queries, Tile::kRows), kThreads, Tile::kShared,
                  args);
  });
}

}  // namespace eddy::cuda
