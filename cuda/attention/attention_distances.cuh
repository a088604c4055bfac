// Tiles of the scores of positions that a product has made (cuda/attention/position_products.h), in the kernels with
// wgmma: reading them by pairs, and writing the gradients of the scores in their places.
//
// A tile has Rows queries and Columns keys. Row r needs the distances lowest + r .. lowest + r + Columns - 1, column c
// the distance lowest + r + Columns - 1 - c. A row of shared memory has them from the multiple of 8 before the first
// one on, so that all is copied 16 bytes at a time: Columns / 8 + 1 pieces, an odd number, so that rows are in
// different banks. Rows that are a multiple of 8 apart start at the same place of their first piece: a thread has one
// address for its pairs, two where keys are in rows, and all else is constant.
#pragma once

#include "cuda/attention/attention_wgmma.cuh"
#include "cuda/attention/position_products.h"

namespace eddy::cuda {
namespace {

// The scores of a head's queries, or their gradients: row i is query i.
struct ScoreRows {
  bf16* data;
  int row, queries;

  __device__ ScoreRows(const PositionScores& scores, const Head<bf16>& head)
      : data(scores.data + (head.head * head.args.batch + head.batch) * head.args.queries * scores.row),
        row(static_cast<int>(scores.row)),
        queries(static_cast<int>(head.args.queries)) {}
  __device__ bf16* at(int query, int distance) const { return data + std::int64_t{query} * row + distance; }
  __device__ bool has(int query, int distance) const {
    return query < queries && distance >= 0 && distance < row;
  }
};

// How a kernel with wgmma takes positions by distance.
enum class Positions { none, ring, products };
using NoPositions = std::integral_constant<Positions, Positions::none>;
using InTiles = std::integral_constant<Positions, Positions::ring>;
using AsProducts = std::integral_constant<Positions, Positions::products>;

// What a kernel with positions as products is launched with.
template <class Launch>
struct WithScores : Launch {
  PositionScores scores, dscores;  // dscores: of the kernel for dq
};

template <int Rows, int Columns, int Threads>
struct DistanceTile {
  static constexpr int kPieces = Columns / 8 + 1, kRow = 8 * kPieces, kNumbers = Rows * kRow,
                       kBytes = 2 * kNumbers;
  static_assert(kPieces % 2 == 1);
  struct alignas(16) Piece {
    std::uint32_t at[4];
  };
  bf16* numbers;

  // Starts filling the tile with the rows of queries from `first` on. Those that do not exist become zeros.
  __device__ void start(const ScoreRows& from, int first, int lowest) const {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < Rows * kPieces; i += Threads) {
      const int row = i / kPieces, piece = i % kPieces, distance = begin(lowest + row) + 8 * piece;
      const bool there = from.has(first + row, distance);
      start_copy(numbers + row * kRow + 8 * piece, there ? from.at(first + row, distance) : from.data, there);
    }
  }

  // scores += those of the warp's 16 queries, from row own_rows on.
  __device__ void add(int own_rows, int lowest, float (&scores)[Columns / 8][4]) const {
    const bf16* const own = own_pairs(own_rows, lowest);
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[n][e] += static_cast<float>(own[place(n, e)]);
  }
  // The same with the warp's 16 keys, from column own_columns on, in rows and the queries in columns.
  __device__ void add_transposed(int own_columns, int lowest, float (&scores)[Rows / 8][4]) const {
    const bf16* own[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int query = own_column() + e;
      own[e] = numbers + query * kRow + (lowest + query & 7) + Columns - 1 - own_columns - own_row();
    }
#pragma unroll
    for (int n = 0; n < Rows / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[n][e] += static_cast<float>(own[e % 2][8 * n * kRow - e / 2 * 8]);
  }

  // Puts the gradients of the warp's scores in their places, and writes them to `to`, in which row 0 of the tile is
  // query `first`. The warp's rows of the tile have been read by it.
  __device__ void write(const Rounded<Columns>& dscores, const ScoreRows& to, int first, int own_rows,
                        int lowest) const {
    bf16* const own = own_pairs(own_rows, lowest);
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        *reinterpret_cast<std::uint16_t*>(own + place(n, e)) =
            static_cast<std::uint16_t>(dscores.parts[n / 2][n % 2 * 2 + e / 2] >> 16 * (e % 2));
    __syncwarp();
    constexpr int kWhole = kPieces - 2;  // all numbers of these belong to the tile
#pragma unroll 1
    for (int i = lane(); i < 16 * kWhole; i += 32) {
      const int row = own_rows + i / kWhole, number = 8 * (1 + i % kWhole),
                distance = begin(lowest + row) + number;
      if (to.has(first + row, distance))
        *reinterpret_cast<Piece*>(to.at(first + row, distance)) =
            *reinterpret_cast<const Piece*>(numbers + row * kRow + number);
    }
    // Of the first and the last piece together 8 numbers; the others belong to the tiles beside this one.
#pragma unroll 1
    for (int i = lane(); i < 16 * 8; i += 32) {
      const int row = own_rows + i / 8, start = lowest + row & 7,
                number = i % 8 + (i % 8 < start ? Columns : 0), distance = begin(lowest + row) + number;
      if (to.has(first + row, distance)) *to.at(first + row, distance) = numbers[row * kRow + number];
    }
  }

  // The first number of a row's first piece.
  __device__ static int begin(int distance) {
    return distance & ~7;
  }

 private:
  // A thread's pairs of the warp's rows: number e of column group n is at own_pairs()[place(n, e)].
  __device__ bf16* own_pairs(int own_rows, int lowest) const {
    return numbers + (own_rows + own_row()) * kRow + (lowest + own_row() & 7) + Columns - 1 - own_column();
  }
  __device__ static constexpr int place(int n, int e) {
    return e / 2 * 8 * kRow - 8 * n - e % 2;
  }
};

// Writes zeros into the rows of the warp's 16 queries from `first` on, but for the distances low + r .. high + r - 1 of
// row r, which tiles write.
__device__ inline void clear_other_distances(const ScoreRows& to, int first, int low, int high) {
  struct alignas(16) Zeros {
    std::uint32_t at[4];
  };
#pragma unroll 1
  for (int r = 0; r < 16 && first + r < to.queries; ++r)
#pragma unroll 1
    for (int distance = 8 * lane(); distance < to.row; distance += 8 * 32) {
      const int begin = low + r - distance, end = high + r - distance;  // of the tiles, in this piece
      bf16* const piece = to.at(first + r, distance);
      if (begin >= 8 || end <= 0 || begin >= end) {
        *reinterpret_cast<Zeros*>(piece) = {};
        continue;
      }
      for (int i = 0; i < 8; ++i)
        if (i < begin || i >= end) piece[i] = static_cast<bf16>(0.0f);
    }
}

}  // namespace
}  // namespace eddy::cuda
