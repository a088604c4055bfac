// What the attention kernels with wgmma share: swizzled tiles of bf16 in shared memory, descriptors of the
// operands in them, and products of tiles by a warpgroup.
//
// A block has 1 or 2 warpgroups; each works on 64 rows of scores and N = 64 columns. A thread has
// the rows and columns of a warp's 16 rows that cuda/attention/attention_pairs.cuh gives it, since
// wgmma distributes its accumulators and its left operand over a warp as mma.sync does. So masks, tables,
// softmax and results are the functions of that file, and products with relative positions still use
// mma.sync.
#pragma once

#include "cuda/attention/attention_tensor_core.cuh"
#include "cuda/core/swizzled_tiles.cuh"

namespace eddy::cuda {
namespace {

constexpr int kOtherRows = 64;  // N

// A block of so many warpgroups.
template <int Groups>
struct Block {
  static constexpr int kThreads = 128 * Groups, kWarps = 4 * Groups;
  static constexpr int kRows = kGroupRows * Groups;
  // Entries of the bias that a tile of the other side can need, and bytes for two tiles.
  static constexpr int kBiasWindow = kRows + kOtherRows, kBiasBytes = 2 * 4 * kBiasWindow;
};

// A walk over tiles of N rows of the other side, counted from 0. A warpgroup needs own_first .. own_end - 1
// of them: those of a band, which has no gaps.
template <int N>
struct Walk {
  std::int64_t begin;  // row of tile 0
  int tiles, own_first, own_end;

  // Over rows begin .. end - 1, with own_begin .. own_end - 1 among them.
  __device__ Walk(std::int64_t from, std::int64_t end, std::int64_t own_from, std::int64_t own_to)
      : begin(from),
        tiles(static_cast<int>(divide_up(max(std::int64_t{0}, end - from), N))),
        own_first(static_cast<int>((own_from - from) / N)),
        own_end(own_from < own_to ? static_cast<int>(divide_up(own_to - from, N)) : 0) {}
  __device__ std::int64_t row(int tile) const { return begin + std::int64_t{tile} * N; }
  __device__ bool needs(int tile) const { return tile >= own_first && tile < own_end; }
};

// The walk over the keys that a block's queries from `first` on see.
template <int N, int Rows>
__device__ Walk<N> walk_keys(const Head<bf16>& head, std::int64_t first) {
  const AttentionArgs& args = head.args;
  const auto begin = [&](std::int64_t query) {
    return max(std::int64_t{0}, query + head.offset - args.most);
  };
  const auto end = [&](std::int64_t query, int count) {
    const std::int64_t last = min(query + count, args.queries) - 1;
    return last < query ? std::int64_t{0} : min(args.keys, last + head.offset - args.least + 1);
  };
  const std::int64_t own = first + (Rows > kGroupRows ? warpgroup() * kGroupRows : 0);
  return {begin(first), end(first, Rows), begin(own), end(own, kGroupRows)};
}

// The walk over the queries that see a block's keys from `first` on.
template <int N, int Rows>
__device__ Walk<N> walk_queries(const Head<bf16>& head, std::int64_t first) {
  const AttentionArgs& args = head.args;
  const auto begin = [&](std::int64_t key) { return max(std::int64_t{0}, key - head.offset + args.least); };
  const auto end = [&](std::int64_t key, int count) {
    const std::int64_t last = min(key + count, args.keys) - 1;
    return last < key ? std::int64_t{0} : min(args.queries, last - head.offset + args.most + 1);
  };
  const std::int64_t own = first + (Rows > kGroupRows ? warpgroup() * kGroupRows : 0);
  return {begin(first), end(first, Rows), begin(own), end(own, kGroupRows)};
}

// ---- tiles

// As start_rows, into a swizzled tile, from rows(); `pieces` is kept from tile to tile of a walk. The tile is readable
// after finish_copies, publish_shared and a barrier.
template <int Count, int H, int Threads, class MakeRows>
__device__ void start_swizzled(PieceOfRows<H, Threads>& pieces, const MakeRows& rows, std::int64_t first,
                               std::int64_t end, int width, bf16* to) {
  static_assert(PieceOfRows<H, Threads>::kAtOnce % 8 == 0);  // such rows have their pieces in one order
  fill_rows<Count, Panel<H>::kColumns>(pieces, rows, first, end, width, [to](int row, int piece) {
    return piece_of<H, Count>(to, row, piece);
  });
}
// The same once.
template <int H, int Count, int Threads, class From>
__device__ void start_swizzled(const From& from, std::int64_t first, std::int64_t end, int width, bf16* to) {
  PieceOfRows<H, Threads> pieces;
  start_swizzled<Count>(
      pieces, [&] { return from; }, first, end, width, to);
}

// Loads the operand A of the warp's 16 rows, from row `first` of a tile on, for mma.sync and wgmma.
template <int H, int Count>
struct SwizzledRows {
  bf16* tile;
  int first;
  __device__ void load(int k, std::uint32_t (&to)[4]) const {
    load_matrices(to, piece_of<H, Count>(tile, first + lane() % 16, 2 * k + lane() / 16));
  }
};

// ---- bias

// A thread's entry of the bias of the distances from `lowest` on; one without a visible pair may be anything. It is
// read before products start and put into shared memory after that, since it arrives late.
template <class Block>
__device__ float read_bias(const Head<bf16>& head, std::int64_t lowest) {
  static_assert(Block::kBiasWindow <= Block::kThreads);
  const AttentionArgs& args = head.args;
  if (args.bias == nullptr) return 0;
  const float* const bias = static_cast<const float*>(args.bias) + head.head * args.bias_stride;
  const int entry = static_cast<int>(lowest) + static_cast<int>(threadIdx.x);
  return bias[max(0, min(entry, static_cast<int>(args.distances - 1)))];
}
template <class Block>
__device__ void write_bias(const AttentionArgs& args, float entry, float* to) {
  if (args.bias != nullptr && threadIdx.x < Block::kBiasWindow) to[threadIdx.x] = entry;
}

// scores += bias_at_first[row - column], or with KeysInRows bias_at_first[column - row], for a warp's pairs.
template <int N, bool KeysInRows = false>
__device__ void add_bias_window(const float* bias_at_first, float (&scores)[N / 8][4]) {
  constexpr int kSign = KeysInRows ? -1 : 1;
  const float* const own = bias_at_first + kSign * (own_row() - own_column());
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[n][e] += own[kSign * (e / 2 * 8 - 8 * n - e % 2)];
}

// ---- products, which these functions start; commit_products and wait_products complete them

// sums = the warpgroup's rows, in registers, . rows of a tile.
template <int H>
__device__ void start_row_products(RegisterRows<H>& left, const bf16* right,
                                   float (&sums)[kOtherRows / 8][4]) {
  const RowsOperand<H, kOtherRows> other(right);
  order_registers(sums, left.parts);
#pragma unroll
  for (int k = 0; k < H / 16; ++k)
    multiply_warpgroup<kOtherRows, false>(sums, left.parts[k], other.columns(k), k > 0);
}

// sums = the warpgroup's rows of a tile . rows of another tile.
template <int H, int N = kOtherRows, int Count>
__device__ void start_row_products(const SwizzledRows<H, Count>& left, const bf16* right,
                                   float (&sums)[N / 8][4]) {
  const int first = Count > kGroupRows ? left.first / kGroupRows * kGroupRows : 0;
  const RowsOperand<H, Count> own(left.tile, first);
  const RowsOperand<H, N> other(right);
  order_registers(sums);
#pragma unroll
  for (int k = 0; k < H / 16; ++k) multiply_warpgroup<N>(sums, own.columns(k), other.columns(k), k > 0);
}

// Weights [64 x N], rounded to bf16, as a left operand.
template <int N>
struct Rounded {
  std::uint32_t parts[N / 16][4];
  __device__ void set(const float (&weights)[N / 8][4]) {
#pragma unroll
    for (int k = 0; k < N / 16; ++k) round_left(parts[k], weights[2 * k], weights[2 * k + 1]);
  }
};

// sums += weights . rows of a tile.
template <int H, int N>
__device__ void start_row_mixes(Rounded<N>& weights, const bf16* right, float (&sums)[H / 8][4]) {
  const AcrossOperand<H, N> other(right);
  order_registers(sums, weights.parts);
#pragma unroll
  for (int k = 0; k < N / 16; ++k) multiply_warpgroup<H, true>(sums, weights.parts[k], other.rows(k), true);
}

}  // namespace
}  // namespace eddy::cuda
