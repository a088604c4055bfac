// Positions by distance in the kernels with wgmma: a ring of their rows in shared memory, the products of
// queries with them, and what they add to dq. The products use mma.sync: a warp needs other rows than its
// neighbours, 16 + N of them for 16 rows and N columns.
//
// The ring has 4 chunks of 64 positions, in rows of H + 8 numbers. A tile of 64 (128) x 64 pairs needs 2 (3) chunks,
// and the next tile one new one: it is read and rounded while the others are in use, so no barrier is spent on it.
// Where distances fall from tile to tile, tile t has chunks -t, 1 - t (and 2 - t), else t, t + 1 (and t + 2), modulo 4.
#pragma once

#include "cuda/attention/attention_skew.cuh"
#include "cuda/attention/attention_wgmma.cuh"

namespace eddy::cuda {
namespace {

constexpr int kChunkRows = 64, kChunks = 4;
constexpr int kRingBlocks = kChunks * kChunkRows / 16;

template <int H, int Threads>
struct PositionRing {
  static constexpr int kBytes = tensor_tile_bytes(kChunks * kChunkRows, H);
  bf16* rows;

  // Rows 16 block .. 16 block + 15 from the start of chunk `first` on.
  __device__ bf16* block(int first, int block) const {
    constexpr int kOfChunk = kChunkRows / 16;
    return rows + ((first * kOfChunk + block) & (kRingBlocks - 1)) * 16 * tensor_row(H);
  }
  // Fills a chunk with the positions from `distance` on. Those that do not exist become zeros.
  __device__ void fill(const AttentionArgs& args, int chunk, std::int64_t distance) const {
    constexpr int kFours = H / 4, kAtOnce = Threads / kFours, kTimes = kChunkRows / kAtOnce;
    const int row = static_cast<int>(threadIdx.x) / kFours,
              column = static_cast<int>(threadIdx.x) % kFours * 4;
    const int first = static_cast<int>(distance) + row,
              end = column < args.head_size ? static_cast<int>(args.distances) : 0;
    const std::int64_t stride = args.positions_stride;
    const float* const table = static_cast<const float*>(args.positions);
    const bool fours = reinterpret_cast<std::uintptr_t>(table) % 16 == 0 && stride % 4 == 0;
    const float* source = table + first * stride + column;
    bf16* const to = block(chunk, 0) + row * tensor_row(H) + column;
    constexpr int kPart = kTimes < 4 ? kTimes : 4;  // loads in flight; more need more registers
#pragma unroll 1
    for (int start = 0; start < kTimes; start += kPart) {
      Four read[kPart];
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        const int at = first + (start + i) * kAtOnce;
        read[i] = {};
        if (at >= 0 && at < end) {
          if (fours)
            read[i] = load_four(source);
          else
            for (int e = 0; e < 4; ++e) read[i].at[e] = source[e];
        }
        source += kAtOnce * stride;
      }
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        struct alignas(8) Rounded4 {
          std::uint32_t at[2];
        } const rounded{{pack(read[i].at[0], read[i].at[1]), pack(read[i].at[2], read[i].at[3])}};
        *reinterpret_cast<Rounded4*>(to + (start + i) * kAtOnce * tensor_row(H)) = rounded;
      }
    }
  }
};

// ---- a warp's part of shared memory

// Columns that go through it at once in the kernels of the backward pass.
template <int H>
constexpr int kSkewColumns = H <= 64 ? 64 : 32;

// The products of a warp's rows with N + 16 rows of the ring, from block `block` of chunk `first` on.
template <int H, int N, class Left, class Ring>
__device__ void make_position_products(const Left& left, const Ring& ring, int first, int block,
                                       float* part) {
  make_window_products<H, N>(
      left, [&](int i) { return ring.block(first, block + i); }, part);
}

// scores += the warp's rows . positions, with keys in columns: pair (r, c) uses row r + 63 - c of a window that starts
// with block `block` of chunk `first`; N of the 64 columns go through the part at once. Calls ready() before the first
// access to the scores.
template <int H, int N, class Left, class Ring, class Ready>
__device__ void add_query_positions(const Left& left, const Ring& ring, int first, int block, float* part,
                                    float (&scores)[kOtherRows / 8][4], Ready&& ready) {
#pragma unroll
  for (int column = 0; column < kOtherRows; column += N) {
    __syncwarp();  // what was in the part has been read
    make_position_products<H, N>(left, ring, first, block + (kOtherRows - N - column) / 16, part);
    __syncwarp();
    if (column == 0) ready();
    add_window_products<N>(part, scores + column / 8);
  }
}

// The same with the warp's keys in rows and N queries in columns: pair (r, c) uses row c + 15 - r.
template <int H, int N, class Ring, class Ready>
__device__ void add_key_positions(bf16* queries, const Ring& ring, int first, int block, float* part,
                                  float (&scores)[N / 8][4], Ready&& ready) {
  constexpr int kAtOnce = kSkewColumns<H> / 32;  // blocks of 16 queries for which the part has room
  const float* own[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int column = own_column() + e, row = column + 15 - own_row();
    own[e] = part + row / 8 * 2 * kSkewBlock + skew_place(column) + row % 8;
  }
#pragma unroll
  for (int start = 0; start < N / 16; start += kAtOnce) {
    __syncwarp();  // what was in the part has been read
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      make_position_products<H, 16>(SwizzledRows<H, N>{queries, 16 * (start + i)}, ring, first,
                                    block + start + i, part + i * 8 * kSkewBlock);
    __syncwarp();
    if (start == 0) ready();
#pragma unroll
    for (int n = 0; n < 2 * kAtOnce; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[2 * start + n][e] += own[e % 2][(n / 2 * 8 + (n % 2 - e / 2) * 2 + n % 2) * kSkewBlock];
  }
}

// ---- dq

// The gradients of a warp's scores, skewed: row r and column c are at row r and place r + 63 - c, as bf16 in blocks
// of 8 x 8. Places without a pair are 0.
__device__ inline void write_skewed(const Rounded<kOtherRows>& dscores, bf16* part) {
  struct alignas(16) Zeros {
    std::uint32_t at[4];
  };
  constexpr int kEnd = 16 * kOtherRows;  // the places 64 .. 79
  __syncwarp();                          // what was there has been read
#pragma unroll
  for (int start = 0; start <= kEnd; start += kEnd) *reinterpret_cast<Zeros*>(part + start + 8 * lane()) = {};
  __syncwarp();
  bf16* own[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int place = own_row() + kOtherRows - 1 - own_column() - e;
    own[e] = part + place / 8 * 2 * kSkewBlock + own_row() * 8 + place % 8;
  }
#pragma unroll
  for (int n = 0; n < kOtherRows / 8; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t two = dscores.parts[n / 2][n % 2 * 2 + half];
#pragma unroll
      for (int e = 0; e < 2; ++e)
        *reinterpret_cast<std::uint16_t*>(own[e] + ((half - n) * 2 + half) * kSkewBlock) =
            static_cast<std::uint16_t>(two >> 16 * e);
    }
  __syncwarp();
}

// dq += skewed gradients of scores . positions.
template <int H, class Ring>
__device__ void add_position_mixes(bf16* part, const Ring& ring, int first, int block,
                                   float (&dq)[H / 8][4]) {
#pragma unroll
  for (int i = 0; i < kOtherRows / 16 + 1; ++i) {
    std::uint32_t a[4];
    load_matrices(a, part + i * 4 * kSkewBlock + 8 * lane());
    const bf16* const rows = ring.block(first, block + i);
#pragma unroll
    for (int h = 0; h < H / 16; ++h) {
      std::uint32_t b[4];
      load_right_across<H>(b, rows + 16 * h);
      multiply_matrices(dq[2 * h], a, b[0], b[1]);
      multiply_matrices(dq[2 * h + 1], a, b[2], b[3]);
    }
  }
}

}  // namespace
}  // namespace eddy::cuda
