// Swizzled tiles of bf16 in shared memory for products of a warpgroup (cuda/core/warpgroup_matrix.cuh), and the
// descriptors of the operands in them.
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

#include "cuda/core/shared_launch.cuh"
#include "cuda/core/warpgroup_matrix.cuh"
#include "tensor/base/host_device.h"

namespace eddy::cuda {

inline constexpr int kGroupRows = 64;  // of a warpgroup
inline constexpr int kTileAlignment = 1024;
inline constexpr int kMostHopperBytes = 227 * 1024;  // shared memory of a block on 9.0

// Returns this thread's warpgroup, in a form that tells the compiler that it is the same for a whole warp.
__device__ inline int warpgroup() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
}

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

// An operand with the rows of a tile across: a row of the tile is a row of B.
template <int H, int Count>
struct AcrossOperand {
  std::uint64_t start;
  __device__ explicit AcrossOperand(const bf16* tile)
      : start(descriptor<H>(tile, Count * Panel<H>::kRowBytes, 8 * Panel<H>::kRowBytes)) {}
  // Rows 16 k .. 16 k + 15 with all H columns.
  __device__ std::uint64_t rows(int k) const { return after(start, 16 * k * Panel<H>::kRowBytes); }
};

}  // namespace eddy::cuda
