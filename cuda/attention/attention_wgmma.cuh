// What the attention kernels with wgmma share: swizzled tiles of bf16 in shared memory, descriptors of the
// operands in them, and products of tiles by a warpgroup.
//
// A block has 1 or 2 warpgroups; each works on 64 rows of scores and N = 64 columns. A thread has
// the rows and columns of a warp's 16 rows that cuda/attention/attention_pairs.cuh gives it, since
// wgmma distributes its accumulators and its left operand over a warp as mma.sync does. So masks, tables,
// softmax and results are the functions of that file, and products with relative positions still use
// mma.sync.
//
// A tile of R rows of H numbers is stored in panels of 64 columns (H = 32: of 32), one after the other. A row
// of a panel is 128 (64) bytes. Its 16-byte piece number c is stored at place
//
//   c XOR r % 8          128-byte swizzle of PTX
//   c XOR r / 2 % 4      64-byte swizzle
//
// One layout serves both ways of reading a tile. It relies on these facts of the PTX ISA, "Shared Memory
// Matrix Layout" and "Matrix Descriptor Format":
//   - An operand's address is start + offsets; then bits 4 .. 6 (4, 5) are XORed with bits 7 .. 9 (7, 8) of
//     the address in shared memory: Swizzle<3,4,3> (Swizzle<2,4,3>). With base offset 0 the pattern starts at
//     multiples of 1024 (512) bytes, so tiles do. The start may lie within a pattern: 16 columns on is 32
//     bytes on. The PTX ISA does not say so in words, but CUTLASS's descriptor iterators rely on it.
//   - K-major: rows of the tile are the operand's rows or columns. Rows of a group of 8 are 128 (64) bytes
//     apart, groups of 8 rows the stride offset; the leading offset is not used and 1.
//   - MN-major, the transposed B: rows of the tile are the 16 that are summed over. Groups of 8 rows are
//     the stride offset apart, panels the leading offset.
//   - Bits 0 .. 13 hold the start, 16 .. 29 the leading and 32 .. 45 the stride offset, in units of 16
//     bytes; 62 and 63 the swizzle: 1 for 128, 2 for 64 bytes.
// The swizzle puts the 128 bytes of 8 rows in one column of pieces into different banks: copies, ldmatrix and
// wgmma have no bank conflicts.
#pragma once

#include "cuda/attention/attention_tensor_core.cuh"
#include "cuda/core/warpgroup_matrix.cuh"

namespace eddy::cuda {
namespace {

constexpr int kGroupRows = 64;  // of a warpgroup
constexpr int kOtherRows = 64;  // N

// A block of so many warpgroups.
template <int Groups>
struct Block {
  static constexpr int kThreads = 128 * Groups, kWarps = 4 * Groups;
  static constexpr int kRows = kGroupRows * Groups;
  // Entries of the bias that a tile of the other side can need, and bytes for two tiles.
  static constexpr int kBiasWindow = kRows + kOtherRows, kBiasBytes = 2 * 4 * kBiasWindow;
};
constexpr int kTileAlignment = 1024;
constexpr int kMostHopperBytes = 227 * 1024;  // shared memory of a block on 9.0

// Returns this thread's warpgroup, in a form that tells the compiler that it is the same for a whole warp.
__device__ inline int warpgroup() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
}

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

template <int H>
struct Panel {
  static constexpr int kColumns = H < 64 ? H : 64;
  static constexpr int kRowBytes = 2 * kColumns;
  static constexpr int kPieces = kColumns / 8;  // of a row of a panel
};

EDDY_HOST_DEVICE constexpr int swizzled_tile_bytes(int rows, int width) {
  return 2 * rows * width;
}

// Returns where 8 numbers of a row of a tile start.
template <int H, int Count>
__device__ bf16* piece_of(bf16* tile, int row, int piece) {
  using P = Panel<H>;
  const int swizzled = P::kRowBytes == 128 ? piece % P::kPieces ^ row % 8 : piece % P::kPieces ^ row / 2 % 4;
  return tile + (piece / P::kPieces * Count + row) * P::kColumns + swizzled * 8;
}

// Returns the first tile of a block. The launch allocates kTileAlignment bytes more for the alignment.
__device__ inline bf16* first_tile() {
  bf16* const start = reinterpret_cast<bf16*>(shared_memory());
  const unsigned beyond = shared_address(start) % kTileAlignment;
  return start + (beyond == 0 ? 0 : kTileAlignment - beyond) / 2;
}

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

// ---- descriptors

// The descriptor of an operand that starts at the start of a tile. `after` adds bytes to the start: they do not carry
// into other fields, since shared memory is smaller than what the field can hold.
template <int H>
__device__ std::uint64_t descriptor(const bf16* tile, int leading_bytes, int stride_bytes) {
  const auto encode = [](unsigned bytes) { return static_cast<std::uint64_t>((bytes & 0x3ffff) >> 4); };
  return encode(shared_address(tile)) | encode(static_cast<unsigned>(leading_bytes)) << 16 |
         encode(static_cast<unsigned>(stride_bytes)) << 32 |
         static_cast<std::uint64_t>(Panel<H>::kRowBytes == 128 ? 1 : 2) << 62;
}
__device__ inline std::uint64_t after(std::uint64_t descriptor, int bytes) {
  return descriptor + static_cast<unsigned>(bytes >> 4);
}

// An operand of rows of a tile of Count rows: a row of the tile is a row of A or a column of B.
template <int H, int Count>
struct RowsOperand {
  std::uint64_t start;
  // From row `first` on, a multiple of 8.
  __device__ explicit RowsOperand(const bf16* tile, int first = 0)
      : start(descriptor<H>(tile + first * Panel<H>::kColumns, 16, 8 * Panel<H>::kRowBytes)) {}
  // Columns 16 k .. 16 k + 15.
  __device__ std::uint64_t columns(int k) const {
    constexpr int kSteps = Panel<H>::kColumns / 16;
    return after(start, k / kSteps * Count * Panel<H>::kRowBytes + k % kSteps * 32);
  }
};
template <int H, int Count>
__device__ std::uint64_t rows_operand(const bf16* tile, int first, int k) {
  return RowsOperand<H, Count>(tile, first).columns(k);
}

// An operand with the rows of a tile across: a row of the tile is a row of B.
template <int H, int Count>
struct AcrossOperand {
  std::uint64_t start;
  __device__ explicit AcrossOperand(const bf16* tile)
      : start(descriptor<H>(tile, Count * Panel<H>::kRowBytes, 8 * Panel<H>::kRowBytes)) {}
  // Rows 16 k .. 16 k + 15 with all H columns.
  __device__ std::uint64_t rows(int k) const { return after(start, 16 * k * Panel<H>::kRowBytes); }
};
template <int H, int Count>
__device__ std::uint64_t across_operand(const bf16* tile, int k) {
  return AcrossOperand<H, Count>(tile).rows(k);
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
