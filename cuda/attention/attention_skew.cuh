// Products of a warp's 16 rows with a window of 16 + N rows, of which each pair of row r and column c needs the one
// of row r + N - 1 - c: as diagonal_products of cuda/attention/attention_tensor_core.cuh, with other places in shared
// memory.
//
// A product reaches the owner of its pair through the warp's part of shared memory, which is in blocks of 8 x 8
// numbers. A pair that is 8 rows or columns on is in another block at the same place. So a thread has two addresses,
// for even and odd columns, and all else is constant: nothing is computed or compared for a pair. Within a block the
// rows are in an order (skew_place) in which neither the stores of two columns nor the loads along a diagonal have bank
// conflicts.
#pragma once

#include "cuda/attention/attention_tensor_core.cuh"

namespace eddy::cuda {
namespace {

// Bytes of a block for 16 x (16 + N) numbers to a warp; for N = 32 that is also enough for the gradients of 64
// columns in bf16.
EDDY_HOST_DEVICE constexpr int skew_bytes_of(int warps, int columns) {
  return warps * 16 * (16 + columns) * 4;
}
template <int N>
__device__ float* skew_of_warp(float* memory) {
  return memory + warp() * 16 * (16 + N);
}

constexpr int kSkewBlock = 64;  // numbers in 8 x 8
// Where a row of 8 numbers is in its block. Rows 0, 2, 4, 6, rows 1, 3, 5, 7, rows 0 .. 3 and rows 4 .. 7 are each in
// different quarters of the 32 banks.
__device__ inline int skew_place(int row) {
  return ((row / 2 + row % 2 * 2) % 4 + row / 4 * 4) * 8;
}

// Writes products [16 x 8 Tiles] into a warp's part: row r and column c into block (c / 8, r / 8).
template <int Tiles>
__device__ void write_skewed(const float (&products)[Tiles][4], float* part) {
  struct alignas(8) Two {
    float at[2];
  };
  float* const own = part + skew_place(own_row()) + own_column();
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Two two{{products[n][2 * half], products[n][2 * half + 1]}};
      *reinterpret_cast<Two*>(own + (2 * n + half) * kSkewBlock) = two;
    }
}

// Writes the products of a warp's rows with a window into its part. rows(i) returns where rows 16 i .. 16 i + 15 of the
// window start. The part must have been read, and __syncwarp must follow.
template <int H, int N, class Left, class RowsOfWindow>
__device__ void make_window_products(const Left& left, const RowsOfWindow& rows, float* part) {
  constexpr int kBlocks = N / 16 + 1;
  float products[2 * kBlocks][4] = {};
#pragma unroll
  for (int k = 0; k < H / 16; ++k) {
    std::uint32_t a[4];
    left.load(k, a);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      std::uint32_t b[4];
      load_right<H>(b, rows(i) + 16 * k);
      multiply_matrices(products[2 * i], a, b[0], b[1]);
      multiply_matrices(products[2 * i + 1], a, b[2], b[3]);
    }
  }
  write_skewed(products, part);
}

// sums += the products of the warp's pairs.
template <int N>
__device__ void add_window_products(const float* part, float (*sums)[4]) {
  const float* own[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int row = own_row() + N - 1 - own_column() - e;
    own[e] = part + row / 8 * 2 * kSkewBlock + skew_place(own_row()) + row % 8;
  }
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[n][e] += own[e % 2][((e / 2 - n) * 2 + e / 2) * kSkewBlock];
}

}  // namespace
}  // namespace eddy::cuda
