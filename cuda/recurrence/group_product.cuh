// Matrix products of the fused recurrences: a block of a group multiplies the group's rows by its own columns
// of the weights, which stay in its shared memory. T is what products read, f32 or bf16; sums are f32.
//
// A product takes 32 rows at a time. They are staged in shared memory in slices of `dim` entries; then each
// warp multiplies tiles of 16 rows x 8 columns of the block's share, in f32 by plain multiply-adds, in bf16
// on tensor cores.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/core/grid_barrier.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/core/warp_matrix.cuh"
#include "tensor/base/dtype.h"

namespace eddy::cuda {

inline constexpr int kWarps = kThreads / 32;
inline constexpr int kRows = 32;         // rows staged at a time
inline constexpr int kItems = 4;         // tiles that a warp sums at a time
inline constexpr int kLongestRow = 512;  // entries a warp can hold: kRowEights times 8 a lane
inline constexpr int kRowEights = kLongestRow / 256;

template <class T>
struct alignas(16) Eight {
  T at[8];
};

template <class T>
__device__ Eight<T> zeros() {
  Eight<T> eight;
#pragma unroll
  for (int j = 0; j < 8; ++j) eight.at[j] = static_cast<T>(0.0f);
  return eight;
}
template <class T, class From>
__device__ Eight<T> converted(const Eight<From>& from) {
  Eight<T> eight;
#pragma unroll
  for (int j = 0; j < 8; ++j) eight.at[j] = static_cast<T>(static_cast<float>(from.at[j]));
  return eight;
}
template <class T>
__device__ Eight<T> read_eight(const T* from) {
  return *reinterpret_cast<const Eight<T>*>(from);
}
template <class T>
__device__ void write_eight(T* to, const Eight<T>& eight) {
  *reinterpret_cast<Eight<T>*>(to) = eight;
}

// Two neighbours, the first at an even index.
template <class T>
__device__ void write_two(T* to, float value, float next) {
  struct alignas(2 * sizeof(T)) Two {
    T at[2];
  };
  *reinterpret_cast<Two*>(to) = {{static_cast<T>(value), static_cast<T>(next)}};
}

// A lane's entries of a row of `dim`: eight from 8 lane on, eight from 8 lane + 256 on, ...
struct OfLane {
  Eight<float> at[kRowEights];
};
// Calls body(eight, k) for each eight; k is the index of its first entry.
template <class Body>
__device__ void for_each_eight(int dim, OfLane& entries, Body&& body) {
#pragma unroll
  for (int j = 0; j < kRowEights; ++j) {
    const int k = 8 * (static_cast<int>(threadIdx.x) % 32) + 256 * j;
    if (k < dim) body(entries.at[j], k);
  }
}

// ---- products of staged rows and the block's share of a weight

// Staged rows and weights are stored as matrices of 8 x 8, 64 elements each, as load_matrices reads them.
// Returns where the 8 entries from k on, a multiple of 8, of a staged row are, in a slice of `width` columns.
// Rows are permuted within a matrix so that the eights of one row, which are written at once, are in
// different banks.
__device__ inline int place(int row, int k, int width) {
  const int matrix = (row / 16 * (width / 16) + k / 16) * 4 + k % 16 / 8 * 2 + row % 16 / 8;
  return matrix * 64 + ((row ^ (k / 8)) & 7) * 8;
}

// This block's columns of a weight, from 8 first on: entry k of column c, counted from there, is in matrix
// c / 8 (depth / 8) + k / 8, at row c % 8, column k % 8.
template <class T>
struct Tiles {
  const T* at;
  int first, count, depth;
};

__host__ __device__ inline int most_tiles(int width, int blocks) {
  return (width / 8 + blocks - 1) / blocks;
}

// Loads this block's share of a weight with `width` columns in total to `free`, and moves `free` past it.
// Entry k of column c is weight[c of_column + k of_entry].
template <class T>
__device__ Tiles<T> load_tiles(T*& free, int rank, int blocks, const void* weight, int width, int depth,
                               int of_column, int of_entry) {
  const int all = width / 8, first = all * rank / blocks, count = all * (rank + 1) / blocks - first;
  for (int i = static_cast<int>(threadIdx.x); i < count * 8 * depth; i += kThreads) {
    const int matrix = i / 64, column = (first + matrix / (depth / 8)) * 8 + i % 64 / 8,
              k = matrix % (depth / 8) * 8 + i % 8;
    free[i] = static_cast<T>(
        static_cast<const float*>(weight)[std::int64_t{column} * of_column + std::int64_t{k} * of_entry]);
  }
  const Tiles<T> tiles{free, first, count, depth};
  free += most_tiles(width, blocks) * 8 * depth;
  return tiles;
}

// sums += 16 staged rows x 8 columns over `width` entries, by a warp. A thread's numbers are those of
// multiply_matrices: rows g, g, g + 8, g + 8, columns 2 t, 2 t + 1, 2 t, 2 t + 1.
__device__ inline void multiply(float (&sums)[4], const bf16* staged, const bf16* tile, int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 16, k_of_lane = lane / 16 * 8;
  float odd[4] = {};  // a second sum, so that a product does not wait for the one before
  for (int k = 0; k < width; k += 32) {
    std::uint32_t a[4], b[4];
    load_matrices(b, tile + k * 8 + lane * 8);
    load_matrices(a, staged + place(row, k + k_of_lane, width));
    multiply_matrices(sums, a, b[0], b[1]);
    load_matrices(a, staged + place(row, k + 16 + k_of_lane, width));
    multiply_matrices(odd, a, b[2], b[3]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] += odd[i];
}
__device__ inline void multiply(float (&sums)[4], const float* staged, const float* tile, int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  for (int k = 0; k < width; k += 8) {
    const auto a0 = read_eight(staged + place(g, k, width)), a1 = read_eight(staged + place(g + 8, k, width)),
               b0 = read_eight(tile + k * 8 + 2 * t * 8), b1 = read_eight(tile + k * 8 + (2 * t + 1) * 8);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      sums[0] += a0.at[j] * b0.at[j];
      sums[1] += a0.at[j] * b1.at[j];
      sums[2] += a1.at[j] * b0.at[j];
      sums[3] += a1.at[j] * b1.at[j];
    }
  }
}

// One block of a group, with the rows of the batch that belong to the group.
template <class T>
class Worker {
 public:
  // `staged`: room for kRows rows of `dim` elements. The group has sequences first .. last - 1, with one row
  // each until start_step sets another number.
  __device__ Worker(const BlockGroup& group, int blocks, T* staged, int dim, int first, int last)
      : begin(first),
        end(last),
        group_(group),
        staged_(staged),
        blocks_(blocks),
        dim_(dim),
        first_(first),
        last_(last) {}

  // Sets the number of rows of each of the group's sequences.
  __device__ void start_step(int rows) {
    begin = first_ * rows;
    end = last_ * rows;
  }
  __device__ void sync_group() { group_.sync(); }
  __device__ int rank() const { return group_.rank; }

  // Calls stage(first, rows, k, width) to stage entries k .. k + width of the rows from `first` on, then
  // finish(row, column, value, next) for two neighbours of every row's product with this block's columns.
  template <class Stage, class Finish>
  __device__ void product(const Tiles<T>& weight, Stage&& stage, Finish&& finish) {
    const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4,
              t = static_cast<int>(threadIdx.x) % 4;
    for (int first = begin; first < end; first += kRows) {
      const int rows = min(kRows, end - first), row_tiles = (rows + 15) / 16,
                items = weight.count * row_tiles;
      // A block without columns stages too: a stage may store what the group computes once for all.
      for (int done = 0; done == 0 || done < items; done += kWarps * kItems) {
        float sums[kItems][4] = {};
        for (int k = 0; k < weight.depth; k += dim_) {
          const int width = min(dim_, weight.depth - k);
          __syncthreads();  // the previous slice has been read
          stage(first, rows, k, width);
          __syncthreads();
#pragma unroll
          for (int j = 0; j < kItems; ++j) {
            const int item = done + warp + j * kWarps;
            if (item < items)
              multiply(sums[j], staged_ + item % row_tiles * 16 * width,
                       weight.at + (item / row_tiles * weight.depth + k) * 8, width);
          }
        }
#pragma unroll
        for (int j = 0; j < kItems; ++j) {
          const int item = done + warp + j * kWarps;
          if (item >= items) continue;
          const int row = item % row_tiles * 16 + g, column = (weight.first + item / row_tiles) * 8 + 2 * t;
          if (row < rows) finish(first + row, column, sums[j][0], sums[j][1]);
          if (row + 8 < rows) finish(first + row + 8, column, sums[j][2], sums[j][3]);
        }
      }
    }
  }

  // Stages `width` entries of rows; from(row) is where the entries of a row of the batch start.
  template <class From>
  __device__ void stage_rows(int first, int rows, int width, From&& from) {
    stage_rows(first, rows, width, from, [](int) -> T* { return nullptr; });
  }
  // The same, and one block of the group also stores each row, as staged, to keep(row), unless that is null.
  template <class From, class Keep>
  __device__ void stage_rows(int first, int rows, int width, From&& from, Keep&& keep) {
    const int eights = width / 8, all = (rows + 15) / 16 * 16 * eights;
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < all; i += kThreads) {
      const int row = i / eights, k = i % eights * 8;
      const Eight<T> eight = row < rows ? converted<T>(read_eight(from(first + row) + k)) : zeros<T>();
      write_eight(staged_ + place(row, k, width), eight);
      if (row >= rows) continue;
      T* const kept = keep(first + row);
      if (kept != nullptr && stores(first + row)) write_eight(kept + k, eight);
    }
  }

  // Stages whole rows, a warp for each: body(row of the batch, whether this block stores its results,
  // entries) fills a lane's entries.
  template <class Body>
  __device__ void stage_by_warp(int first, int rows, Body&& body) {
    for (int row = static_cast<int>(threadIdx.x) / 32; row < (rows + 15) / 16 * 16; row += kWarps) {
      OfLane entries;
#pragma unroll
      for (Eight<float>& eight : entries.at) eight = zeros<float>();
      if (row < rows) body(first + row, stores(first + row), entries);
      for_each_eight(dim_, entries, [&](const Eight<float>& eight, int k) {
        write_eight(staged_ + place(row, k, dim_), converted<T>(eight));
      });
    }
  }

  // Calls body(item), by a warp, for the items first .. last - 1.
  template <class Body>
  __device__ void for_each_item(int first, int last, Body&& body) const {
    for (int item = first + rank() * kWarps + static_cast<int>(threadIdx.x) / 32; item < last;
         item += blocks_ * kWarps)
      body(item);
  }

  int begin, end;

 private:
  // Whether this block is the one of its group that stores the results of a row.
  __device__ bool stores(int row) const {
    return (row - begin) % blocks_ == rank();
  }

  BlockGroup group_;
  T* staged_;
  int blocks_, dim_, first_, last_;
};

}  // namespace eddy::cuda
