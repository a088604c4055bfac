// What the attention kernels on tensor cores share: tiles in shared memory and the products of tiles, for tensors T of
// bf16, and of f32 where products are TF32.
//
// A block of 128 threads has 4 warps; a warp works on 16 rows of scores and N columns, of which a thread has the pairs
// that cuda/attention/attention_pairs.cuh gives it. Two neighbouring tiles of scores, rounded to bf16, or one, rounded
// to TF32, are an operand A of the next product, so they never pass through shared memory. H is head_size rounded up to
// a kernel's size and filled with zeros.
//
// Tiles of vectors are in rows of H numbers and 16 bytes. H numbers are an even number of 16-byte pieces, so a row is
// an odd one, and the 8 rows that ldmatrix reads together are in different banks. So are the numbers that a warp reads
// of eight rows of f32 (add_row_mixes).
//
// Numbers of f32 are rounded in their tile, by the thread that copied them, before the barrier that shows them to the
// others (round_tile): each would be rounded by all four warps otherwise, by four instructions each time.
//
// Diagonal operands (see cuda/attention/attention.cuh): a warp multiplies its rows by the window of 16 + N
// rows that its rows and columns need, and the products are skewed into their places through shared memory.
// That is 1 + 16 / N times the work of a plain product; on plain kernels the factor is one.
#pragma once

#include <algorithm>

#include "cuda/attention/attention_pairs.cuh"
#include "cuda/attention/attention_tensor_core.h"

namespace eddy::cuda {
namespace {

constexpr int kTensorThreads = 128;
constexpr int kTileRows = 64;  // 16 to a warp

// Whether products of tensors of T are TF32.
template <class T>
inline constexpr bool kTf32 = std::is_same_v<T, float>;
// Whether a kernel takes positions: beside tiles of f32 with long rows they do not fit the shared memory.
template <class T, int H>
inline constexpr bool kTakesPositions = !kTf32<T> || H <= kMostTf32PositionsHead;
// The columns of A in one product.
template <class T>
inline constexpr int kInner = kTf32<T> ? 8 : 16;

// Numbers from one row of a tile to the next: of T, and of the f32 through which products are skewed.
template <class T = bf16>
EDDY_HOST_DEVICE constexpr int tensor_row(int width) {
  return width + kGroup<T>;
}
EDDY_HOST_DEVICE constexpr int skew_row(int columns) {
  return columns + 4;
}
template <class T = bf16>
EDDY_HOST_DEVICE constexpr int tensor_tile_bytes(int rows, int width) {
  return static_cast<int>(sizeof(T)) * rows * tensor_row<T>(width);
}
EDDY_HOST_DEVICE constexpr int skew_bytes(int columns) {
  return 4 * kTileRows * skew_row(columns);
}

// Rows in global memory, and how they may be read.
template <class From>
struct Readable : From {
  bool aligned;  // every row starts at a multiple of 16 bytes
};
template <class T>
using Rows = Readable<MatrixRows<T>>;
template <class T>
using RowsOfKeys = Readable<KeyRows<const T>>;

// Where a thread finds its piece of 16 bytes of rows that lie in one tensor: kPieces threads have a row, and all
// threads kAtOnce rows. A walk over tiles keeps it, since the addresses would otherwise be most of a kernel's
// instructions.
template <int H, int Threads, class T = bf16>
struct PieceOfRows {
  static constexpr int kPieces = H / kGroup<T>, kAtOnce = Threads / kPieces;
  static_assert(Threads % kPieces == 0);

  const T* start = nullptr;  // row 0, if it were there, plus the thread's own row and piece
  int stride = 0;
  int begin = 0, end = 0;  // rows for which this holds

  __device__ static int own() { return static_cast<int>(threadIdx.x) / kPieces; }
  __device__ static int piece() { return static_cast<int>(threadIdx.x) % kPieces; }
  // Returns whether this holds for rows first .. first + count - 1, or can be made to.
  template <class MakeRows>
  __device__ bool reach(const MakeRows& rows, int first, int count) {
    if (first >= begin && first + count <= end) return true;
    const auto from = rows();
    if (!from.aligned) return false;
    const T* row_0;
    std::int64_t step;
    const bool found = from.in_one(first, count, row_0, step, begin, end);
    start = row_0 + own() * step + kGroup<T> * piece();
    stride = static_cast<int>(step);
    return found;
  }
};

// Starts filling a tile with rows first .. first + Count - 1 of rows(); place(row, piece) returns where the 16 bytes of
// a row go, and rows that are a multiple of kAtOnce apart are RowStep numbers a row apart. Rows outside [0, end) and
// entries from `width` on, a multiple of 16, become zeros. The tile is readable after finish_copies, round_tile and a
// barrier.
template <int Count, int RowStep, int H, int Threads, class T, class MakeRows, class Place>
__device__ void fill_rows(PieceOfRows<H, Threads, T>& pieces, const MakeRows& rows, std::int64_t first_row,
                          std::int64_t end_row, int width, Place&& place) {
  constexpr int kAtOnce = PieceOfRows<H, Threads, T>::kAtOnce;
  static_assert(Count % kAtOnce == 0);
  const int own = pieces.own(), column = kGroup<T> * pieces.piece(), first = static_cast<int>(first_row),
            end = column < width ? static_cast<int>(end_row) : 0;
  T* const to = place(own, pieces.piece());
  if (pieces.reach(rows, first, Count)) {
    const T* source = pieces.start + std::int64_t{first} * pieces.stride;
#pragma unroll
    for (int row = 0; row < Count; row += kAtOnce) {
      const int at = first + own + row;
      start_copy(to + row * RowStep, source, at >= 0 && at < end);
      source += std::int64_t{kAtOnce} * pieces.stride;
    }
    return;
  }
  const auto from = rows();
#pragma unroll 1
  for (int row = 0; row < Count; row += kAtOnce) {
    const int at = first + own + row;
    const bool there = at >= 0 && at < end;
    const T* const source = there ? from.at(at) + column : from.any_row();
    if (from.aligned) {
      start_copy(to + row * RowStep, source, there);
    } else {
      StoredGroup<T> piece{};
      if (there)
#pragma unroll
        for (int e = 0; e < kGroup<T>; ++e) piece.at[e] = source[e];
      *reinterpret_cast<StoredGroup<T>*>(to + row * RowStep) = piece;
    }
  }
}
template <int Count, int H, class T, class MakeRows>
__device__ void start_rows(PieceOfRows<H, kTensorThreads, T>& pieces, const MakeRows& rows,
                           std::int64_t first, std::int64_t end, int width, T* to) {
  fill_rows<Count, tensor_row<T>(H)>(pieces, rows, first, end, width, [to](int row, int piece) {
    return to + row * tensor_row<T>(H) + kGroup<T> * piece;
  });
}
// The same once.
template <int H, int Count, class T, class From>
__device__ void start_rows(const From& from, std::int64_t first, std::int64_t end, int width, T* to) {
  PieceOfRows<H, kTensorThreads, T> pieces;
  start_rows<Count>(
      pieces, [&] { return from; }, first, end, width, to);
}

// Rounds what this thread has put into a tile of Count rows by start_rows to TF32. Its copies must be finished. Does
// nothing to bf16.
template <int H, int Count, class T>
__device__ void round_tile(T* tile) {
  if constexpr (kTf32<T>) {
    using Pieces = PieceOfRows<H, kTensorThreads, T>;
    struct alignas(16) Rounded {
      std::uint32_t at[4];
    };
    float* const own = tile + Pieces::own() * tensor_row<T>(H) + kGroup<T> * Pieces::piece();
#pragma unroll
    for (int row = 0; row < Count; row += Pieces::kAtOnce) {
      float* const at = own + row * tensor_row<T>(H);
      const Four four = load_four(at);
      Rounded rounded;
#pragma unroll
      for (int e = 0; e < 4; ++e) rounded.at[e] = round_tf32(four.at[e]);
      *reinterpret_cast<Rounded*>(at) = rounded;
    }
  }
}

// The same, once the thread's copies are finished, which bf16 waits for later.
template <int H, int Count, class T>
__device__ void settle_tile(T* tile) {
  if constexpr (kTf32<T>) finish_copies();
  round_tile<H, Count>(tile);
}

// Fills a tile from the table of positions, which is in f32, rounded as products take it; does nothing without one. It
// needs no finish_copies.
template <int H, int Count, int Threads = kTensorThreads, class T>
__device__ void round_positions(const AttentionArgs& args, std::int64_t first, T* to) {
  if (args.positions == nullptr) return;
  constexpr int kPairs = H / 2;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < Count * kPairs; i += Threads) {
    const int row = i / kPairs, column = i % kPairs * 2;
    const std::int64_t at = first + row;
    const bool there = at >= 0 && at < args.distances && column < args.head_size;
    const float* const source =
        static_cast<const float*>(args.positions) + at * args.positions_stride + column;
    T* const place = to + row * tensor_row<T>(H) + column;
    if constexpr (kTf32<T>) {
      struct alignas(8) Rounded {
        std::uint32_t at[2];
      };
      *reinterpret_cast<Rounded*>(place) =
          there ? Rounded{{round_tf32(source[0]), round_tf32(source[1])}} : Rounded{};
    } else {
      *reinterpret_cast<std::uint32_t*>(place) = there ? pack(source[0], source[1]) : 0u;
    }
  }
}

// ---- operands from tiles

// Loads A from the 16 x kInner numbers at `at`, row by row, or, of bf16, from their transpose.
template <int H, class T>
__device__ void load_left(std::uint32_t (&to)[4], const T* at) {
  load_matrices(to, at + lane() % 16 * tensor_row<T>(H) + lane() / 16 * kGroup<T>);
}
template <int H>
__device__ void load_left_transposed(std::uint32_t (&to)[4], const bf16* at) {
  load_matrices_transposed(to, at + (lane() % 8 + lane() / 16 * 8) * tensor_row(H) + lane() / 8 % 2 * 8);
}
// Loads two operands B, of 8 columns each, from 16 x kInner numbers. A row of the tile is a column of B, or, of bf16
// with `across`, a row. Registers 0 and 1 are the first.
template <int H, class T>
__device__ void load_right(std::uint32_t (&to)[4], const T* at) {
  load_matrices(to, at + (lane() % 8 + lane() / 16 * 8) * tensor_row<T>(H) + lane() / 8 % 2 * kGroup<T>);
}
template <int H>
__device__ void load_right_across(std::uint32_t (&to)[4], const bf16* at) {
  load_matrices_transposed(to, at + lane() % 16 * tensor_row(H) + lane() / 16 * 8);
}

// Makes A of two neighbouring tiles of numbers, rounded to bf16.
__device__ inline void round_left(std::uint32_t (&to)[4], const float (&first)[4], const float (&second)[4]) {
  to[0] = pack(first[0], first[1]);
  to[1] = pack(first[2], first[3]);
  to[2] = pack(second[0], second[1]);
  to[3] = pack(second[2], second[3]);
}
// Makes A of one tile of numbers, rounded to TF32. Its columns are in another order, which those of B's rows must
// follow: columns t and t + 4 are 2 t and 2 t + 1 of the tile.
__device__ inline void round_left(std::uint32_t (&to)[4], const float (&tile)[4]) {
  to[0] = round_tf32(tile[0]);
  to[1] = round_tf32(tile[2]);
  to[2] = round_tf32(tile[1]);
  to[3] = round_tf32(tile[3]);
}

// The operand A of the warp's 16 rows of a tile: loaded again for every product, or kept in registers.
template <int H, class T = bf16>
struct ReadRows {
  const T* rows;
  __device__ void load(int k, std::uint32_t (&to)[4]) const { load_left<H>(to, rows + kInner<T> * k); }
};
template <int H, class T = bf16>
struct RegisterRows {
  std::uint32_t parts[H / kInner<T>][4];
  template <class From>
  __device__ explicit RegisterRows(const From& rows) {
#pragma unroll
    for (int k = 0; k < H / kInner<T>; ++k) rows.load(k, parts[k]);
  }
  __device__ void load(int k, std::uint32_t (&to)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = parts[k][i];
  }
};

// ---- products

// sums += a b, of operands of T.
template <class T>
__device__ void multiply(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kTf32<T>)
    multiply_tf32(sums, a, b0, b1);
  else
    multiply_matrices(sums, a, b0, b1);
}

// sums += the warp's rows . rows 0 .. N - 1 of a tile.
template <int H, int N, class Left, class T>
__device__ void add_row_products(const Left& left, const T* right, float (&sums)[N / 8][4]) {
#pragma unroll
  for (int k = 0; k < H / kInner<T>; ++k) {
    std::uint32_t a[4];
    left.load(k, a);
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      std::uint32_t b[4];
      load_right<H>(b, right + 16 * n * tensor_row<T>(H) + kInner<T> * k);
      multiply<T>(sums[2 * n], a, b[0], b[1]);
      multiply<T>(sums[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// sums += weights [16 x N], rounded to bf16, times rows 0 .. N - 1 of a tile.
template <int H, int N>
__device__ void add_row_mixes(const float (&weights)[N / 8][4], const bf16* right, float (&sums)[H / 8][4]) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
    std::uint32_t a[4];
    round_left(a, weights[2 * k], weights[2 * k + 1]);
#pragma unroll
    for (int h = 0; h < H / 16; ++h) {
      std::uint32_t b[4];
      load_right_across<H>(b, right + 16 * k * tensor_row(H) + 16 * h);
      multiply_matrices(sums[2 * h], a, b[0], b[1]);
      multiply_matrices(sums[2 * h + 1], a, b[2], b[3]);
    }
  }
}
// The same of f32, rounded to TF32. ldmatrix does not transpose numbers of 4 bytes, so a thread reads rows 2 t and
// 2 t + 1 itself, 16 bytes at a time: entry e of them is its part of product e of four. Column g of that product is
// column 4 g + e of the 32, which is where ResultColumns finds the sums.
template <int H, int N>
__device__ void add_row_mixes(const float (&weights)[N / 8][4], const float* right, float (&sums)[H / 8][4]) {
  struct alignas(16) Rounded {
    std::uint32_t at[4];
  };
  const auto read = [](const float* from) { return *reinterpret_cast<const Rounded*>(from); };
  const float* const own = right + own_column() * tensor_row<float>(H) + 4 * own_row();
#pragma unroll
  for (int k = 0; k < N / 8; ++k) {
    std::uint32_t a[4];
    round_left(a, weights[k]);
#pragma unroll
    for (int h = 0; h < H / 32; ++h) {
      const float* const rows = own + 8 * k * tensor_row<float>(H) + 32 * h;
      const Rounded b0 = read(rows), b1 = read(rows + tensor_row<float>(H));
#pragma unroll
      for (int e = 0; e < 4; ++e) multiply_tf32(sums[4 * h + e], a, b0.at[e], b1.at[e]);
    }
  }
}

// Calls put(row, column, product) for the pairs of the warp's 16 rows and N columns; pair (r, c) uses row r +
// N - 1 - c of `window`, which has 16 + N rows. Each pair is passed to one thread, which need not be its
// owner.
template <int H, int N, class Left, class T, class Put>
__device__ void diagonal_products(const Left& left, const T* window, Put&& put) {
#pragma unroll 1
  for (int from = 0; from < 16 + N; from += 16) {
    float sums[2][4] = {};
    add_row_products<H, 16>(left, window + from * tensor_row<T>(H), sums);
#pragma unroll
    for (int pair = 0; pair < 8; ++pair) {
      const int row = pair_row(pair), column = row + N - 1 - (from + pair_column(pair));
      if (column >= 0 && column < N) put(row, column, sums[pair / 4][pair % 4]);
    }
  }
}

// sums += for each of the warp's rows r the sum over columns c of weights[r][c] times row r + N - 1 - c of
// `window`. The weights are in the warp's part of the skewing memory.
template <int H, int N, class T>
__device__ void add_diagonal_mixes(const float* weights, const T* window, float (&sums)[H / 8][4]) {
#pragma unroll 1
  for (int from = 0; from < 16 + N; from += 16) {
    float skewed[2][4];
#pragma unroll
    for (int pair = 0; pair < 8; ++pair) {
      const int row = pair_row(pair), column = row + N - 1 - (from + pair_column(pair));
      skewed[pair / 4][pair % 4] = column >= 0 && column < N ? weights[row * skew_row(N) + column] : 0.0f;
    }
    add_row_mixes<H, 16>(skewed, window + from * tensor_row<T>(H), sums);
  }
}

// The warp's 16 rows of the skewing memory: put writes them, then, after __syncwarp, the owners of the pairs
// read them.
template <int N>
__device__ float* skew_part(float* memory) {
  return memory + warp() * 16 * skew_row(N);
}
template <int N>
__device__ void add_skewed(const float* part, float (&sums)[N / 8][4]) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[n][e] += part[pair_row(e) * skew_row(N) + pair_column(4 * n + e)];
}

// ---- launches

inline bool rows_aligned(Dtype dtype, const void* data, const AttentionStrides& strides) {
  const int group = dtype == Dtype::bf16 ? kGroup<bf16> : kGroup<float>;
  return aligned(data) && strides.batch % group == 0 && strides.time % group == 0 &&
         strides.head % group == 0;
}

// Returns whether keys are aligned in both tensors.
inline bool keys_aligned(const AttentionArgs& args) {
  return rows_aligned(args.dtype, args.k, args.k_strides) &&
         (args.past == 0 || rows_aligned(args.dtype, args.past_k, args.past_k_strides));
}
inline bool values_aligned(const AttentionArgs& args) {
  return rows_aligned(args.dtype, args.v, args.v_strides) &&
         (args.past == 0 || rows_aligned(args.dtype, args.past_v, args.past_v_strides));
}

struct TensorForward {
  AttentionArgs args;
  bool q_aligned, k_aligned, v_aligned;
};
inline TensorForward tensor_forward(const AttentionArgs& args) {
  return {args, rows_aligned(args.dtype, args.q, args.q_strides), keys_aligned(args), values_aligned(args)};
}

// Calls run with a constant for the kernel's head size.
template <class Run>
void for_tensor_size(std::int64_t head_size, Run&& run) {
  if (head_size <= 32)
    run(std::integral_constant<int, 32>{});
  else if (head_size <= 64)
    run(std::integral_constant<int, 64>{});
  else
    run(std::integral_constant<int, 128>{});
}
// Calls run(type, size) with a null pointer to the storage type as well.
template <class Run>
void for_tensor_type(Dtype dtype, std::int64_t head_size, Run&& run) {
  for_tensor_size(head_size, [&](auto size) {
    if (dtype == Dtype::bf16)
      run(static_cast<bf16*>(nullptr), size);
    else
      run(static_cast<float*>(nullptr), size);
  });
}

}  // namespace
}  // namespace eddy::cuda
