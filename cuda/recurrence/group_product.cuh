// Matrix products of the fused recurrence: a block of a group multiplies the group's rows by its own columns
// of the weights, which stay in its shared memory. T is what products read, f32 or bf16; sums are f32.
//
// A product takes 32 rows at a time. They are staged in shared memory in slices of `dim` entries; then each
// warp multiplies tiles of 16 rows x 8 columns of the block's share, in f32 by plain multiply-adds, in bf16
// on tensor cores.
//
// The second-level cache answers after some 300 ns, so a thread issues all its loads of a slice before it
// waits for the first. Rows that are of T already are copied asynchronously; the others pass through
// registers, the rows of a warp together.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/core/grid_barrier.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/core/warp_matrix.cuh"
#include "tensor/base/dtype.h"

namespace eddy::cuda {

inline constexpr int kWarps = 16, kFusedThreads = 32 * kWarps;
inline constexpr int kRows = 32;  // rows staged at a time
inline constexpr int kRowsOfWarp = kRows / kWarps;
inline constexpr int kItems = 2;         // tiles that a warp sums at a time
inline constexpr int kLongestRow = 512;  // entries a warp can hold: kRowEights times 8 a lane
inline constexpr int kRowEights = kLongestRow / 256;

template <class T>
struct alignas(16) Eight {
  T at[8];
};
template <class T>
struct alignas(2 * sizeof(T)) Two {
  T at[2];
};

__device__ inline Eight<float> repeat_eight(float value) {
  return {{value, value, value, value, value, value, value, value}};
}
template <class T>
__device__ Two<T> converted(const Two<float>& from) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    Two<T> two;
    const std::uint32_t both = pack(from.at[0], from.at[1]);
    std::memcpy(&two, &both, sizeof two);
    return two;
  }
}
template <class T>
__device__ Eight<T> converted(const Eight<float>& from) {
  Eight<T> eight;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const Two<T> two = converted<T>(Two<float>{from.at[j], from.at[j + 1]});
    eight.at[j] = two.at[0];
    eight.at[j + 1] = two.at[1];
  }
  return eight;
}
template <class T>
__device__ Eight<T> read_eight(const T* from) {
  return *reinterpret_cast<const Eight<T>*>(from);
}
template <class T>
__device__ void write_eight(T* to, const Eight<float>& eight) {
  *reinterpret_cast<Eight<T>*>(to) = converted<T>(eight);
}
// Two neighbours, the first at an even index.
template <class T>
__device__ Two<T> read_two(const T* from) {
  return *reinterpret_cast<const Two<T>*>(from);
}
template <class T>
__device__ void write_two(T* to, const Two<float>& two) {
  *reinterpret_cast<Two<T>*>(to) = converted<T>(two);
}

// This thread's number in its block. The compiler takes it for a new number at each call; otherwise it would
// compute the addresses of all phases before the loop over the steps, and hold them in local memory.
__device__ inline unsigned thread_of_block() {
  unsigned thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  return thread;
}
__device__ inline int lane_of_warp() {
  return static_cast<int>(thread_of_block() % 32);
}
__device__ inline int warp_of_block() {
  return static_cast<int>(thread_of_block() / 32);
}

// Adds each of `Count` values over a warp; every lane gets the sums.
template <int Count>
__device__ void add_lanes(float (&sums)[Count]) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
#pragma unroll
    for (float& sum : sums) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
}

// The rows of the batch that a warp works on at once: which of them are there, and which of those this block
// stores.
struct WarpRows {
  int at[kRowsOfWarp];
  bool there[kRowsOfWarp], stored[kRowsOfWarp];
};
// A lane's entries of these rows: of each, eight from 8 lane on, eight from 8 lane + 256 on, ...
struct OfLane {
  Eight<float> at[kRowsOfWarp][kRowEights];
};
// Calls body(i, k) for each eight of a row of `dim`, its i-th in this lane, which begins at entry k.
template <class Body>
__device__ void for_each_eight(int dim, Body&& body) {
#pragma unroll
  for (int i = 0; i < kRowEights; ++i) {
    const int k = 8 * lane_of_warp() + 256 * i;
    if (k < dim) body(i, k);
  }
}
// Sets the entries of a warp's j-th row to read(row)(k), 0 where there is none. The loads are in flight
// together; read(row) has what they share.
template <class Read>
__device__ void load_row(const WarpRows& rows, int j, int dim, OfLane& entries, Read&& read) {
  const auto of_row = read(rows.at[j]);
#pragma unroll
  for (int i = 0; i < kRowEights; ++i) {
    const int k = 8 * lane_of_warp() + 256 * i;
    entries.at[j][i] = rows.there[j] && k < dim ? of_row(k) : repeat_eight(0);
  }
}
// Returns the entries of all rows of a warp, whose loads are in flight together.
template <class Read>
__device__ OfLane load_rows(const WarpRows& rows, int dim, Read&& read) {
  OfLane entries;
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j) load_row(rows, j, dim, entries, read);
  return entries;
}
// Calls body(row, k, entries) for each eight of the rows that this block stores.
template <class Body>
__device__ void for_each_stored(const WarpRows& rows, int dim, const OfLane& entries, Body&& body) {
#pragma unroll
  for (int j = 0; j < kRowsOfWarp; ++j)
    if (rows.stored[j]) for_each_eight(dim, [&](int i, int k) { body(rows.at[j], k, entries.at[j][i]); });
}

// ---- products of staged rows and the block's share of a weight

// The block's shared memory: kRows staged rows, then the weights.
template <class T>
__device__ T* shared_elements() {
  return reinterpret_cast<T*>(shared_memory());
}

// Staged rows and weights are stored as matrices of 8 x 8, 64 elements each, as load_matrices reads them: of 16 rows
// and 16 columns four, column by column. Returns where the 8 entries from k on, a multiple of 8, of a staged row are,
// in a slice of `width` columns. Rows are permuted within a matrix so that the eights of one row, which are written at
// once, are in different banks.
__device__ inline unsigned place(unsigned row, unsigned k, unsigned width) {
  const unsigned matrix = row / 16 * 16 * width + 16 * k + row % 16 / 8 * 64;
  return matrix + ((8 * row ^ k) & 56);
}

// This block's columns of a weight, from 8 first on: entry k of column c, counted from there, is in matrix
// c / 8 (depth / 8) + k / 8, at row c % 8, column k % 8. `at`: the first element's number in shared memory.
struct Tiles {
  int at, first, count, depth;
};

__host__ __device__ inline int most_tiles(int width, int blocks) {
  return (width / 8 + blocks - 1) / blocks;
}

// Loads this block's share of a weight with `width` columns in total to `free`, and moves `free` past it.
// Entry k of column c is weight[c of_column + k of_entry].
template <class T>
__device__ Tiles load_tiles(int& free, int rank, int blocks, const void* weight, int width, int depth,
                            int of_column, int of_entry) {
  const int all = width / 8, first = all * rank / blocks, count = all * (rank + 1) / blocks - first;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count * depth; i += kFusedThreads) {
    const int matrix = i / 8, column = (first + matrix / (depth / 8)) * 8 + i % 8,
              k = matrix % (depth / 8) * 8;
    const float* const from =
        static_cast<const float*>(weight) + std::int64_t{column} * of_column + std::int64_t{k} * of_entry;
    Eight<float> eight;
#pragma unroll
    for (int j = 0; j < 8; ++j) eight.at[j] = from[std::int64_t{j} * of_entry];
    write_eight(shared_elements<T>() + free + 8 * i, eight);
  }
  const Tiles tiles{free, first, count, depth};
  free += most_tiles(width, blocks) * 8 * depth;
  return tiles;
}

// sums += 16 staged rows x 8 columns over `width` entries, for `Items` tiles of columns `stride` elements
// apart, by a warp. A thread's numbers are those of multiply_matrices: rows g, g, g + 8, g + 8, columns 2 t,
// 2 t + 1, 2 t, 2 t + 1.
template <int Items>
__device__ void multiply(float (&sums)[kItems][4], const bf16* staged, const bf16* tiles, int stride,
                         int width) {
  const int lane = lane_of_warp(), row = lane % 16, k_of_lane = lane / 16 * 8;
  float odd[Items][4] = {};  // second sums, so that a product does not wait for the one before
#pragma unroll 2
  for (int k = 0; k < width; k += 32) {
    std::uint32_t a[2][4], b[Items][4];
    load_matrices(a[0], staged + place(row, k + k_of_lane, width));
    load_matrices(a[1], staged + place(row, k + 16 + k_of_lane, width));
#pragma unroll
    for (int j = 0; j < Items; ++j) load_matrices(b[j], tiles + j * stride + k * 8 + lane * 8);
#pragma unroll
    for (int j = 0; j < Items; ++j) multiply_matrices(sums[j], a[0], b[j][0], b[j][1]);
#pragma unroll
    for (int j = 0; j < Items; ++j) multiply_matrices(odd[j], a[1], b[j][2], b[j][3]);
  }
#pragma unroll
  for (int j = 0; j < Items; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[j][e] += odd[j][e];
}
template <int Items>
__device__ void multiply(float (&sums)[kItems][4], const float* staged, const float* tiles, int stride,
                         int width) {
  const int lane = lane_of_warp(), g = lane / 4, t = lane % 4;
  for (int k = 0; k < width; k += 8) {
    const Eight<float> a0 = read_eight(staged + place(g, k, width)),
                       a1 = read_eight(staged + place(g + 8, k, width));
#pragma unroll
    for (int j = 0; j < Items; ++j) {
      const float* const tile = tiles + j * stride + k * 8 + 2 * t * 8;
      const Eight<float> b0 = read_eight(tile), b1 = read_eight(tile + 8);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[j][0] += a0.at[i] * b0.at[i];
        sums[j][1] += a0.at[i] * b1.at[i];
        sums[j][2] += a1.at[i] * b0.at[i];
        sums[j][3] += a1.at[i] * b1.at[i];
      }
    }
  }
}

// One block of a group, with the rows of the batch that belong to the group.
template <class T>
class Worker {
 public:
  // The group has sequences first .. last - 1, with one row each until start_step sets another number.
  __device__ Worker(const BlockGroup& group, int blocks, int dim, int first, int last)
      : begin(first), end(last), group_(group), blocks_(blocks), dim_(dim), first_(first), last_(last) {}

  // Sets the number of rows of each of the group's sequences.
  __device__ void start_step(int rows) {
    begin = first_ * rows;
    end = last_ * rows;
  }
  // How much further on the group's rows lie in arrays with the rows of one step (Step::shift), of a step with `rows`
  // of the `block` that each sequence has room for. Groups are at different steps: without it those of a short step
  // would lie where another group has its own.
  __device__ std::int64_t shift(std::int64_t rows, std::int64_t block) const {
    return first_ * (block - rows);
  }
  __device__ void sync_group() { group_.sync(); }
  __device__ int rank() const { return group_.rank; }

  // Calls stage(first, rows, k, width) to stage entries k .. k + width of the rows from `first` on, then
  // finish(row, column, sums, fetched) for two neighbours of every row's product with this block's columns.
  // `fetched` is the result of fetch(row, column), which is called before the multiplication, so that its
  // loads are in flight meanwhile.
  template <class Stage, class Fetch, class Finish>
  __device__ void product(const Tiles& weight, Stage&& stage, Fetch&& fetch, Finish&& finish) {
    for (int first = begin; first < end; first += kRows) {
      // There are one or two tiles of 16 rows, so all items of a warp have the same rows.
      const int rows = min(kRows, end - first), two = rows > 16 ? 1 : 0, items = weight.count << two,
                tile_step = kWarps >> two;
      // A block without columns stages too: a stage may store what the group computes once for all.
      for (int done = 0; done == 0 || done < items; done += kWarps * kItems) {
        float sums[kItems][4] = {};
        decltype(fetch(0, 0)) fetched[kItems][2];
        for (int k = 0; k < weight.depth; k += dim_) {
          const int width = min(dim_, weight.depth - k);
          __syncthreads();  // the previous slice has been read
          stage(first, rows, k, width);
          __syncthreads();
          const Item item(weight, done, items, two);
          if (k == 0) {
#pragma unroll
            for (int j = 0; j < kItems; ++j)
#pragma unroll
              for (int half = 0; half < 2; ++half)
                if (j < item.count && item.row + 8 * half < rows)
                  fetched[j][half] = fetch(first + item.row + 8 * half, item.column + j * tile_step * 8);
          }
          const T *const from = shared_elements<T>() + (item.row & 16) * width,
                         *const tiles = shared_elements<T>() + weight.at + (item.tile * weight.depth + k) * 8;
          const int stride = tile_step * 8 * weight.depth;
          if (item.count > 1)
            multiply<kItems>(sums, from, tiles, stride, width);
          else if (item.count == 1)
            multiply<1>(sums, from, tiles, stride, width);
        }
        const Item item(weight, done, items, two);
#pragma unroll 1  // `finish` may be long
        for (int j = 0; j < kItems && j < item.count; ++j) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (item.row + 8 * half >= rows) continue;
            finish(first + item.row + 8 * half, item.column + j * tile_step * 8,
                   Two<float>{sums[0][2 * half], sums[0][2 * half + 1]}, fetched[0][half]);
          }
#pragma unroll
          for (int next = 1; next < kItems; ++next) {
            std::memcpy(sums[next - 1], sums[next], sizeof sums[next]);
            std::memcpy(fetched[next - 1], fetched[next], sizeof fetched[next]);
          }
        }
      }
    }
  }

  // Stages `width` entries of rows; from(row) is where the entries of a row of the batch start. Returns when
  // this thread's copies have arrived.
  template <class From>
  __device__ void stage_rows(int first, int rows, int width, From&& from) {
#pragma unroll
    for (int row = warp_of_block(); row < kRows; row += kWarps) {
      if (row >= (rows + 15) / 16 * 16) continue;
      const T* const entries = from(first + min(row, rows - 1));
      for_each_eight(width, [&](int, int k) {
        T* const to = shared_elements<T>() + place(row, k, width);
#pragma unroll
        for (int part = 0; part < 8; part += 16 / static_cast<int>(sizeof(T)))
          start_copy(to + part, entries + k + part, row < rows);
      });
    }
    finish_copies();
  }

  // The rows of this warp among those that are staged together.
  __device__ WarpRows rows_of_warp(int first, int rows) const {
    WarpRows of_warp;
#pragma unroll
    for (int j = 0; j < kRowsOfWarp; ++j) {
      const int row = warp_of_block() + j * kWarps;
      of_warp.at[j] = first + row;
      of_warp.there[j] = row < rows;
      of_warp.stored[j] = row < rows && (first + row - begin) % blocks_ == rank();
    }
    return of_warp;
  }

  // Stages a warp's rows.
  __device__ void stage(const OfLane& entries, int width) {
#pragma unroll
    for (int j = 0; j < kRowsOfWarp; ++j)
      for_each_eight(width, [&](int i, int k) {
        write_eight(shared_elements<T>() + place(warp_of_block() + j * kWarps, k, width), entries.at[j][i]);
      });
  }

  // Calls body(item), by a warp, for the items first .. last - 1.
  template <class Body>
  __device__ void for_each_item(int first, int last, Body&& body) const {
    for (int item = first + rank() * kWarps + warp_of_block(); item < last; item += blocks_ * kWarps)
      body(item);
  }
  // Calls body(rows), by a warp, for all rows of the group.
  template <class Body>
  __device__ void for_owned_rows(Body&& body) const {
    const int step = blocks_ * kWarps;
    for (int row = begin + rank() * kWarps + warp_of_block(); row < end; row += kRowsOfWarp * step) {
      WarpRows rows;
#pragma unroll
      for (int j = 0; j < kRowsOfWarp; ++j) {
        rows.at[j] = row + j * step;
        rows.there[j] = rows.stored[j] = rows.at[j] < end;
      }
      body(rows);
    }
  }

  int begin, end;

 private:
  // The items of this warp, from `done` on: their number, the tile of the first, its first row and column in
  // this thread.
  struct Item {
    int count, tile, row, column;

    __device__ Item(const Tiles& weight, int done, int items, int two) {
      const int warp = warp_of_block(), lane = lane_of_warp();
      count = (items - done - warp + kWarps - 1) / kWarps;
      tile = (done + warp) >> two;
      row = (warp & two) * 16 + lane / 4;
      column = (weight.first + tile) * 8 + lane % 4 * 2;
    }
  };

  BlockGroup group_;
  int blocks_, dim_, first_, last_;
};

}  // namespace eddy::cuda
