// What the attention kernels on tensor cores share: tiles of bf16 in shared memory and the products of tiles.
//
// A block of 128 threads has 4 warps; a warp works on 16 rows of scores and N columns. With g = lane / 4 and
// t = lane % 4 a thread has the pairs
//
//   numbers[n][e] = (row g + 8 (e / 2), column 8 n + 2 t + e % 2)
//
// as the operand C of cuda/core/warp_matrix.cuh, and the same two rows and pairs of columns of a result [16 x
// H]. Two neighbouring tiles of scores, rounded to bf16, are an operand A of the next product, so they never
// pass through shared memory. H is head_size rounded up to a kernel's size and filled with zeros.
//
// Tiles of vectors are in rows of H + 8 numbers. H / 8 is even, so a row is an odd number of 16-byte pieces,
// and the 8 rows that ldmatrix reads together are in different banks.
//
// Diagonal operands (see cuda/attention/attention.cuh): a warp multiplies its rows by the window of 16 + N
// rows that its rows and columns need, and the products are skewed into their places through shared memory.
// That is 1 + 16 / N times the work of a plain product; on plain kernels the factor is one.
#pragma once

#include <algorithm>

#include "cuda/attention/attention.cuh"
#include "cuda/core/team.cuh"
#include "cuda/core/warp_matrix.cuh"

namespace eddy::cuda {
namespace {

constexpr int kTensorThreads = 128;
constexpr int kTileRows = 64;  // 16 to a warp
constexpr float kLog2OfE = 1.44269504f, kLogOf2 = 0.693147181f;

__device__ inline int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ inline int warp() {
  return static_cast<int>(threadIdx.x) / 32;
}

// A thread's first row of its warp's 16, and its first column of 8.
__device__ inline int own_row() {
  return lane() / 4;
}
__device__ inline int own_column() {
  return lane() % 4 * 2;
}
// The row of pair number 4 n + e.
__device__ inline int pair_row(int pair) {
  return own_row() + (pair & 2) * 4;
}
__device__ inline int pair_column(int pair) {
  return pair / 4 * 8 + own_column() + (pair & 1);
}

// Numbers from one row of a tile to the next: of bf16, and of the f32 through which products are skewed.
EDDY_HOST_DEVICE constexpr int tensor_row(int width) {
  return width + 8;
}
EDDY_HOST_DEVICE constexpr int skew_row(int columns) {
  return columns + 4;
}
EDDY_HOST_DEVICE constexpr int tensor_tile_bytes(int rows, int width) {
  return 2 * rows * tensor_row(width);
}
EDDY_HOST_DEVICE constexpr int skew_bytes(int columns) {
  return 4 * kTileRows * skew_row(columns);
}

// Rows of bf16 in global memory, and how they may be read.
template <class From>
struct Readable : From {
  bool aligned;  // every row starts at a multiple of 16 bytes
};
using Rows = Readable<MatrixRows<bf16>>;
using RowsOfKeys = Readable<KeyRows<const bf16>>;

// Where a thread finds its piece of 16 bytes of rows that lie in one tensor: H / 8 threads have a row, and all threads
// kAtOnce rows. A walk over tiles keeps it, since the addresses would otherwise be most of a kernel's instructions.
template <int H, int Threads>
struct PieceOfRows {
  static constexpr int kPieces = H / 8, kAtOnce = Threads / kPieces;
  static_assert(Threads % kPieces == 0 && kAtOnce % 8 == 0);

  const bf16* start = nullptr;  // row 0, if it were there, plus the thread's own row and piece
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
    const bf16* row_0;
    std::int64_t step;
    const bool found = from.in_one(first, count, row_0, step, begin, end);
    start = row_0 + own() * step + 8 * piece();
    stride = static_cast<int>(step);
    return found;
  }
};

// Starts filling a tile with rows first .. first + Count - 1 of rows(); place(row, piece) returns where 8 numbers of a
// row go, and rows that are a multiple of 8 apart are RowStep numbers a row apart. Rows outside [0, end) and entries
// from `width` on, a multiple of 16, become zeros. The tile is readable after finish_copies and a barrier.
template <int Count, int RowStep, int H, int Threads, class MakeRows, class Place>
__device__ void fill_rows(PieceOfRows<H, Threads>& pieces, const MakeRows& rows, std::int64_t first_row,
                          std::int64_t end_row, int width, Place&& place) {
  constexpr int kAtOnce = PieceOfRows<H, Threads>::kAtOnce;
  static_assert(Count % kAtOnce == 0);
  const int own = pieces.own(), column = 8 * pieces.piece(), first = static_cast<int>(first_row),
            end = column < width ? static_cast<int>(end_row) : 0;
  bf16* const to = place(own, pieces.piece());
  if (pieces.reach(rows, first, Count)) {
    const bf16* source = pieces.start + std::int64_t{first} * pieces.stride;
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
    const bf16* const source = there ? from.at(at) + column : from.any_row();
    if (from.aligned) {
      start_copy(to + row * RowStep, source, there);
    } else {
      struct alignas(16) Piece {
        bf16 at[8];
      } piece{};
      if (there)
#pragma unroll
        for (int e = 0; e < 8; ++e) piece.at[e] = source[e];
      *reinterpret_cast<Piece*>(to + row * RowStep) = piece;
    }
  }
}
template <int Count, int H, class MakeRows>
__device__ void start_rows(PieceOfRows<H, kTensorThreads>& pieces, const MakeRows& rows, std::int64_t first,
                           std::int64_t end, int width, bf16* to) {
  fill_rows<Count, tensor_row(H)>(pieces, rows, first, end, width,
                                  [to](int row, int piece) { return to + row * tensor_row(H) + 8 * piece; });
}
// The same once.
template <int H, int Count, class From>
__device__ void start_rows(const From& from, std::int64_t first, std::int64_t end, int width, bf16* to) {
  PieceOfRows<H, kTensorThreads> pieces;
  start_rows<Count>(
      pieces, [&] { return from; }, first, end, width, to);
}

// The same from the table of positions, which is in f32, rounded to bf16; nothing without one. It needs no
// finish_copies.
template <int H, int Count, int Threads = kTensorThreads>
__device__ void round_positions(const AttentionArgs& args, std::int64_t first, bf16* to) {
  if (args.positions == nullptr) return;
  constexpr int kPairs = H / 2;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < Count * kPairs; i += Threads) {
    const int row = i / kPairs, column = i % kPairs * 2;
    const std::int64_t at = first + row;
    const bool there = at >= 0 && at < args.distances && column < args.head_size;
    const float* const source =
        static_cast<const float*>(args.positions) + at * args.positions_stride + column;
    *reinterpret_cast<std::uint32_t*>(to + row * tensor_row(H) + column) =
        there ? pack(source[0], source[1]) : 0u;
  }
}

// ---- operands from tiles

// Loads A from the 16 x 16 numbers at `at`, row by row, or from their transpose.
template <int H>
__device__ void load_left(std::uint32_t (&to)[4], const bf16* at) {
  load_matrices(to, at + lane() % 16 * tensor_row(H) + lane() / 16 * 8);
}
template <int H>
__device__ void load_left_transposed(std::uint32_t (&to)[4], const bf16* at) {
  load_matrices_transposed(to, at + (lane() % 8 + lane() / 16 * 8) * tensor_row(H) + lane() / 8 % 2 * 8);
}
// Loads two operands B, of 8 columns each, from 16 x 16 numbers. A row of the tile is a column of B, or, with
// `across`, a row. Registers 0 and 1 are the first.
template <int H>
__device__ void load_right(std::uint32_t (&to)[4], const bf16* at) {
  load_matrices(to, at + (lane() % 8 + lane() / 16 * 8) * tensor_row(H) + lane() / 8 % 2 * 8);
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

// The operand A of the warp's 16 rows of a tile: loaded again for every product, or kept in registers.
template <int H>
struct ReadRows {
  const bf16* rows;
  __device__ void load(int k, std::uint32_t (&to)[4]) const { load_left<H>(to, rows + 16 * k); }
};
template <int H>
struct RegisterRows {
  std::uint32_t parts[H / 16][4];
  template <class From>
  __device__ explicit RegisterRows(const From& rows) {
#pragma unroll
    for (int k = 0; k < H / 16; ++k) rows.load(k, parts[k]);
  }
  __device__ void load(int k, std::uint32_t (&to)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = parts[k][i];
  }
};

// ---- products

// sums += the warp's rows . rows 0 .. N - 1 of a tile.
template <int H, int N, class Left>
__device__ void add_row_products(const Left& left, const bf16* right, float (&sums)[N / 8][4]) {
#pragma unroll
  for (int k = 0; k < H / 16; ++k) {
    std::uint32_t a[4];
    left.load(k, a);
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      std::uint32_t b[4];
      load_right<H>(b, right + 16 * n * tensor_row(H) + 16 * k);
      multiply_matrices(sums[2 * n], a, b[0], b[1]);
      multiply_matrices(sums[2 * n + 1], a, b[2], b[3]);
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

// Calls put(row, column, product) for the pairs of the warp's 16 rows and N columns; pair (r, c) uses row r +
// N - 1 - c of `window`, which has 16 + N rows. Each pair is passed to one thread, which need not be its
// owner.
template <int H, int N, class Left, class Put>
__device__ void diagonal_products(const Left& left, const bf16* window, Put&& put) {
#pragma unroll 1
  for (int from = 0; from < 16 + N; from += 16) {
    float sums[2][4] = {};
    add_row_products<H, 16>(left, window + from * tensor_row(H), sums);
#pragma unroll
    for (int pair = 0; pair < 8; ++pair) {
      const int row = pair_row(pair), column = row + N - 1 - (from + pair_column(pair));
      if (column >= 0 && column < N) put(row, column, sums[pair / 4][pair % 4]);
    }
  }
}

// sums += for each of the warp's rows r the sum over columns c of weights[r][c] times row r + N - 1 - c of
// `window`. The weights are in the warp's part of the skewing memory.
template <int H, int N>
__device__ void add_diagonal_mixes(const float* weights, const bf16* window, float (&sums)[H / 8][4]) {
#pragma unroll 1
  for (int from = 0; from < 16 + N; from += 16) {
    float skewed[2][4];
#pragma unroll
    for (int pair = 0; pair < 8; ++pair) {
      const int row = pair_row(pair), column = row + N - 1 - (from + pair_column(pair));
      skewed[pair / 4][pair % 4] = column >= 0 && column < N ? weights[row * skew_row(N) + column] : 0.0f;
    }
    add_row_mixes<H, 16>(skewed, window + from * tensor_row(H), sums);
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

// ---- pairs

// One bit for each of a thread's N / 2 pairs, in order. A separate loop, because in unrolled ones it would be
// most of the code.
template <int N, class Test>
__device__ std::uint32_t pair_bits(Test&& test) {
  static_assert(N <= 64);
  std::uint32_t bits = 0;
#pragma unroll 1
  for (int pair = 0; pair < N / 2; ++pair)
    if (test(pair_row(pair), pair_column(pair))) bits |= 1u << pair;
  return bits;
}

// Which pairs of a tile exist, relative to a warp's row 0: those with row < rows, column < columns and
// least <= row - column <= most.
struct Limits {
  int rows, columns, least, most;

  // The arguments may be far outside a tile; sizes, and so distances, are far below 2^31.
  __device__ Limits(std::int64_t row_count, std::int64_t column_count, std::int64_t lowest,
                    std::int64_t highest)
      : rows(static_cast<int>(row_count)),
        columns(static_cast<int>(column_count)),
        least(static_cast<int>(lowest)),
        most(static_cast<int>(highest)) {}
  template <int N>
  __device__ std::uint32_t bits() const {
    if (rows >= 16 && columns >= N && least <= 1 - N && most >= 15) return 0xffffffffu;
    std::uint32_t bits = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A row's columns that are visible have no gap: a bit for each column, of which a thread has two of every eight.
      const int row = own_row() + 8 * half, low = max(0, row - most),
                high = min(min(columns, N) - 1, row - least);
      const std::uint64_t seen =
          row >= rows || high < low ? 0 : ~std::uint64_t{0} >> (63 - (high - low)) << low;
      bits |= nibbles(seen >> own_column() & 0x0303030303030303u) << 2 * half;
    }
    return bits;
  }

 private:
  // The low half of each of 8 bytes whose high halves are 0.
  __device__ static std::uint32_t nibbles(std::uint64_t bytes) {
    bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ffu;
    bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffffu;
    return static_cast<std::uint32_t>(bytes | bytes >> 16);
  }
};

__device__ inline bool has(std::uint32_t bits, int pair) {
  return (bits >> pair & 1u) != 0;
}
// Whether all pairs of a warp are seen and kept: then nothing is selected by them.
__device__ inline bool all_pairs(std::uint32_t seen, std::uint32_t kept) {
  return __all_sync(0xffffffffu, (seen & kept) == 0xffffffffu) != 0;
}

// kept_bits where keys 4 i .. 4 i + 3 of a query have the four words of one block of random numbers. Those words are
// needed by two neighbours of a row, or by four of a column with KeysInRows. Each makes the words of another block and
// all exchange what they keep of them.
template <int N, bool KeysInRows>
__device__ std::uint32_t kept_fours(const Head<bf16>& head, std::int64_t query, std::int64_t key) {
  const RandomKey& words = head.args.dropout_key;
  const std::uint32_t drop_below = head.args.drop_below;
  // Which of the blocks of every eight columns this lane makes: of row half `mine` between two neighbours; of pair
  // number `mine` between four.
  const int mine = KeysInRows ? own_row() % 4 : lane() % 2;
  const std::int64_t row = KeysInRows ? query + own_column() + mine % 2 : query + own_row() + 8 * mine,
                     first = KeysInRows ? key + own_row() / 4 * 4 + mine / 2 * 8 : key + own_column() / 4 * 4,
                     step = KeysInRows ? 8 * head.args.keys : 8;
  std::uint64_t block = static_cast<std::uint64_t>(head.row_at(row) * head.args.keys + first) / 4;
  std::uint32_t made = 0;  // 4 bits for every 8 columns
#pragma unroll 2
  for (int n = 0; n < N / 8; ++n) {
    const Philox4 four = words.words(block);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      made |= static_cast<std::uint32_t>(four.word[i] >> 8 >= drop_below) << (4 * n + i);
    block += static_cast<std::uint64_t>(step) / 4;
  }
  std::uint32_t kept = 0;
  if constexpr (KeysInRows) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair)
      kept |= (__shfl_sync(0xffffffffu, made, (lane() & ~12) | pair << 2) >> own_row() % 4 & 0x11111111u)
              << pair;
  } else {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, made, 1);
    const int word = own_column() % 4;  // 0 or 2
    kept = ((mine == 0 ? made : other) >> word & 0x33333333u) |
           ((mine == 0 ? other : made) >> word & 0x33333333u) << 2;
  }
  return kept;
}

// Which of a warp's pairs dropout keeps: queries in rows from `query` on and keys in columns from `key` on,
// or the other way round with KeysInRows.
template <int N, bool KeysInRows = false>
__device__ std::uint32_t kept_bits(const Head<bf16>& head, std::int64_t query, std::int64_t key) {
  if (head.args.drop_below == 0) return 0xffffffffu;
  if (head.args.keys % 4 == 0 && key % 4 == 0) return kept_fours<N, KeysInRows>(head, query, key);
  return pair_bits<N>([&head, query, key](int row, int column) {
    return head.keep(query + (KeysInRows ? column : row), key + (KeysInRows ? row : column)) != 0.0f;
  });
}

// scores += bias of the distance base + sign (row - column). A pair that is not visible may get any entry.
template <int N>
__device__ void add_bias(const Head<bf16>& head, std::int64_t base, int sign, float (&scores)[N / 8][4]) {
  const AttentionArgs& args = head.args;
  const float* const bias = static_cast<const float*>(args.bias) + head.head * args.bias_stride;
  constexpr std::int64_t kFar = 1 << 30;  // more than a table has entries; 32 bits save registers
  const int last = static_cast<int>(min(args.distances - 1, kFar)),
            from = static_cast<int>(max(-kFar, min(base, kFar)));
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      scores[n][e] += bias[max(0, min(from + sign * (pair_row(e) - pair_column(4 * n + e)), last))];
}

// Combines a value over the four threads that share a row.
template <class Combine>
__device__ float reduce_quad(float value, Combine combine) {
  value = combine(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return combine(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

struct Larger {  // ignores NaN, which shows up in the sum
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// numbers of row half h *= factors[h].
template <int Tiles>
__device__ void scale_rows(float (&numbers)[Tiles][4], const float (&factors)[2]) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) numbers[n][e] *= factors[e / 2];
}

// The online softmax over tiles of keys: for each of a thread's two rows a score, in units of log 2, and the
// thread's part of the sum of exponentials relative to it. It is the largest score so far or at most kSlack less:
// it rises seldom, so the results so far are seldom scaled. The exponentials and their sums stay far from what f32 and
// bf16 can hold, and the quotient is the same.
struct RunningSoftmax {
  static constexpr float kSlack = 8;
  float maximum[2] = {minus_infinity(), minus_infinity()}, sum[2] = {};

  // Turns scores into weights, without the factor of those that dropout keeps; `factor` scales the scores to units of
  // log 2. Returns, for a whole warp, whether the results so far shrink, by `correction`.
  template <int N>
  __device__ bool weigh(float (&scores)[N / 8][4], std::uint32_t seen, std::uint32_t kept, float factor,
                        float (&correction)[2]) {
    if (!(factor > 0)) {  // below, the largest score has the largest exponential
      const float factors[2] = {factor, factor};
      scale_rows(scores, factors);
      factor = 1;
    }
    return all_pairs(seen, kept) ? weigh_pairs<N, true>(scores, seen, kept, factor, correction)
                                 : weigh_pairs<N, false>(scores, seen, kept, factor, correction);
  }
  template <int N, bool All>
  __device__ bool weigh_pairs(float (&scores)[N / 8][4], std::uint32_t seen, std::uint32_t kept, float factor,
                              float (&correction)[2]) {
    float tops[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = minus_infinity();
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          if (!All && !has(seen, 4 * n + e)) scores[n][e] = minus_infinity();
          top = fmaxf(top, scores[n][e]);
        }
      tops[half] = reduce_quad(top, Larger{}) * factor;
    }
    const bool rises =
        __any_sync(0xffffffffu, tops[0] > maximum[0] + kSlack || tops[1] > maximum[1] + kSlack) != 0;
    if (rises) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float top = fmaxf(maximum[half], tops[half]);
        correction[half] = fast_exp2(maximum[half] - (top == minus_infinity() ? 0.0f : top));
        maximum[half] = top;
        sum[half] *= correction[half];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float shift = maximum[half] == minus_infinity() ? 0.0f : maximum[half];
      float added = 0;
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const float p = fast_exp2(fmaf(scores[n][e], factor, -shift));
          added += p;
          scores[n][e] = All || has(kept, 4 * n + e) ? p : 0.0f;
        }
      sum[half] += added;
    }
    return rises;
  }
  // Writes log_sum of the rows from `first` on, and their results.
  template <int H>
  __device__ void store(const Head<bf16>& head, std::int64_t first, float (&mixed)[H / 8][4]) const;
};

// Writes a thread's numbers of its two rows, rounded to bf16. Row r of the warp is row first + r and starts
// at row_at(first + r); it is skipped if that is null. Rows before `end` and entries before `width` exist.
template <int H, class RowAt>
__device__ void store_tensor_rows(const float (&sums)[H / 8][4], std::int64_t first, std::int64_t end,
                                  int width, RowAt&& row_at) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first + own_row() + 8 * half;
    if (row >= end) continue;
    bf16* const start = row_at(row);
    if (start == nullptr) continue;
    bf16* const place = start + own_column();
    const bool paired = reinterpret_cast<std::uintptr_t>(place) % 4 == 0;
#pragma unroll
    for (int h = 0; h < H / 8; ++h) {
      if (8 * h >= width) continue;
      if (paired) {
        *reinterpret_cast<std::uint32_t*>(place + 8 * h) = pack(sums[h][2 * half], sums[h][2 * half + 1]);
      } else {
        place[8 * h] = static_cast<bf16>(sums[h][2 * half]);
        place[8 * h + 1] = static_cast<bf16>(sums[h][2 * half + 1]);
      }
    }
  }
}

template <int H>
__device__ void RunningSoftmax::store(const Head<bf16>& head, std::int64_t first,
                                      float (&mixed)[H / 8][4]) const {
  const AttentionArgs& args = head.args;
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = reduce_quad(sum[half], Plus{});
    inverse[half] =
        total == 0.0f ? 0.0f : static_cast<float>(args.keep_scale) / total;  // 0: the query sees no key
    const std::int64_t query = first + own_row() + 8 * half;
    if (own_column() == 0 && query < args.queries)
      static_cast<float*>(args.log_sum)[head.row_at(query)] =
          total == 0.0f ? minus_infinity() : (maximum[half] + log2f(total)) * kLogOf2;
  }
  scale_rows(mixed, inverse);
  store_tensor_rows<H>(mixed, first, args.queries, static_cast<int>(args.head_size), [&](std::int64_t row) {
    return static_cast<bf16*>(args.output) + head.output_at(row);
  });
}

// ---- launches

inline bool rows_aligned(const void* data, const AttentionStrides& strides) {
  return aligned(data) && strides.batch % 8 == 0 && strides.time % 8 == 0 && strides.head % 8 == 0;
}

// Returns whether keys are aligned in both tensors.
inline bool keys_aligned(const AttentionArgs& args) {
  return rows_aligned(args.k, args.k_strides) &&
         (args.past == 0 || rows_aligned(args.past_k, args.past_k_strides));
}
inline bool values_aligned(const AttentionArgs& args) {
  return rows_aligned(args.v, args.v_strides) &&
         (args.past == 0 || rows_aligned(args.past_v, args.past_v_strides));
}

struct TensorForward {
  AttentionArgs args;
  bool q_aligned, k_aligned, v_aligned;
};
inline TensorForward tensor_forward(const AttentionArgs& args) {
  return {args, rows_aligned(args.q, args.q_strides), keys_aligned(args), values_aligned(args)};
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

}  // namespace
}  // namespace eddy::cuda
