// Sums over rows, for gradients: of blocks of rows, and of the partial sums that these and other kernels leave.
//
// Sums of blocks of rows, with the gradient of ReLU or GELU computed on the way where what it saved is given. The shape
// alone fixes the order of additions; what is summed is dz as it is stored.
//   mapping        a thread block for each block of 64 rows and tile of 16 groups of columns, a group being 16
//                  bytes of a row. Thread l of a group's 16 adds rows l, l + 16, ... ; then a thread for each
//                  column adds the 16 sums. Loads are 16 bytes where the rows are aligned.
//   shared memory  8 KiB in bf16, 4 KiB in f32, and padding against bank conflicts
//   bytes moved    x, and with an activation what it saved and dz, once, the least; and the sums
//
// Partial sums of several tensors.
//   mapping        a thread block of 32 columns x 32 rows per 32 columns of each tensor; thread row t adds
//                  rows t, t + 32, ..., then a tree adds the rows' sums. Few thread blocks run, but one
//                  launch replaces two to four.
//   shared memory  4 KiB (4,096 bytes)
//   bytes moved    the partial sums once
#include "ops/reduce/partial_sums.h"

#include "cuda/core/map.cuh"
#include "cuda/core/numbers.cuh"
#include "cuda/core/warp_matrix.cuh"
#include "ops/pointwise/pointwise_functors.h"
#include "tensor/base/error.h"

namespace eddy::cuda {
namespace {

// dz of one element, from dy and what the activation saved: of ReLU dy or 0 as it is.
template <bool IsGelu, class T>
__device__ auto gradient_of(T dy, T saved) {
  if constexpr (IsGelu)
    return pointwise::Gelu::vjp(static_cast<float>(dy), static_cast<float>(saved));
  else
    return static_cast<float>(saved) > 0 ? dy : T(0.0f);
}

template <class T>
struct RowBlockTile {
  static constexpr int kGroup = 16 / sizeof(T);  // columns of a thread
  static constexpr int kGroups = 16, kLanes = kThreads / kGroups;
  static constexpr int kColumns = kGroups * kGroup;
  // A row of shared memory has one column of each thread. With this stride the threads that add them, 32 / kGroup
  // groups in a warp, read from 32 banks.
  static constexpr int kStride = kThreads + 32 / kGroup;
  static_assert(kColumns <= kThreads);
};

struct RowBlockLaunch {
  RowBlockSumsArgs args;
  std::int64_t items;  // blocks of rows x tiles
  bool aligned;
};

template <class T, bool IsGelu>
__global__ void __launch_bounds__(kThreads) row_block_sums_kernel(RowBlockLaunch launched) {
  using Tile = RowBlockTile<T>;
  using Columns = Neighbours<T, Tile::kGroup>;
  __shared__ float sums[Tile::kGroup * Tile::kStride];
  const RowBlockSumsArgs& args = launched.args;
  const int thread = static_cast<int>(threadIdx.x), group = thread % Tile::kGroups,
            lane = thread / Tile::kGroups;
  const std::int64_t width = args.width, tiles = (width + Tile::kColumns - 1) / Tile::kColumns;
  const bool activates = IsGelu || args.saved != nullptr;
  for (std::int64_t item = blockIdx.x; item < launched.items; item += gridDim.x) {
    const std::int64_t block = item / tiles, first_column = item % tiles * Tile::kColumns;
    const std::int64_t first = block * kSummedRows, rows = min(kSummedRows, args.rows - first);
    const std::int64_t column = first_column + group * Tile::kGroup;
    const int columns =
        static_cast<int>(max(std::int64_t{0}, min(std::int64_t{Tile::kGroup}, width - column)));
    const std::int64_t start = first * width + column;
    const T* const x = static_cast<const T*>(args.x) + start;
    const T* const saved = activates ? static_cast<const T*>(args.saved) + start : x;
    T* const dz = activates ? static_cast<T*>(args.dz) + start : nullptr;
    float own[Tile::kGroup] = {};
    const bool whole = launched.aligned && columns == Tile::kGroup;
#pragma unroll 4
    for (std::int64_t row = lane; whole && row < rows; row += Tile::kLanes) {
      Columns of_row = *reinterpret_cast<const Columns*>(x + row * width);
      if (activates) {
        const Columns kept = *reinterpret_cast<const Columns*>(saved + row * width);
        Neighbours<decltype(gradient_of<IsGelu>(T(), T())), Tile::kGroup> gradients;
#pragma unroll
        for (int j = 0; j < Tile::kGroup; ++j)
          gradients.at[j] = gradient_of<IsGelu>(of_row.at[j], kept.at[j]);
        of_row = as_stored<T>(gradients);
        if constexpr (IsGelu)
          store_whole(dz + row * width, of_row);
        else
          *reinterpret_cast<Columns*>(dz + row * width) = of_row;
      }
#pragma unroll
      for (int j = 0; j < Tile::kGroup; ++j) own[j] += static_cast<float>(of_row.at[j]);
    }
    for (std::int64_t row = lane; !whole && row < rows; row += Tile::kLanes)
#pragma unroll
      for (int j = 0; j < Tile::kGroup; ++j) {
        if (j >= columns) continue;
        T one = x[row * width + j];
        if (activates) {
          one = static_cast<T>(gradient_of<IsGelu>(one, saved[row * width + j]));
          dz[row * width + j] = one;
        }
        own[j] += static_cast<float>(one);
      }
#pragma unroll
    for (int j = 0; j < Tile::kGroup; ++j) sums[j * Tile::kStride + thread] = own[j];
    __syncthreads();
    if (thread < Tile::kColumns && first_column + thread < width) {
      const float* const from = sums + thread % Tile::kGroup * Tile::kStride + thread / Tile::kGroup;
      float sum = 0;
#pragma unroll
      for (int l = 0; l < Tile::kLanes; ++l) sum += from[l * Tile::kGroups];
      args.sums[block * width + first_column + thread] = sum;
    }
    __syncthreads();  // the next item overwrites the shared sums
  }
}

constexpr int kPartialColumns = 32, kPartialThreads = 1024;

// Item i is tile i % tiles of tensor i / tiles.
__global__ void __launch_bounds__(kPartialThreads)
    partial_sums_kernel(const __grid_constant__ PartialSumsArgs args) {
  constexpr int kLanes = kPartialThreads / kPartialColumns;
  __shared__ float sums[kPartialThreads];
  const int column = static_cast<int>(threadIdx.x) % kPartialColumns,
            lane = static_cast<int>(threadIdx.x) / kPartialColumns;
  const std::int64_t tiles = (args.width + kPartialColumns - 1) / kPartialColumns;
  for (std::int64_t item = blockIdx.x; item < tiles * args.tensors; item += gridDim.x) {
    const int tensor = static_cast<int>(item / tiles);
    const std::int64_t at = item % tiles * kPartialColumns + column;
    const float* const from = static_cast<const float*>(args.partials[tensor]) + at;
    float sum = 0;
    if (at < args.width) {
#pragma unroll 4
      for (std::int64_t row = lane; row < args.blocks; row += kLanes) sum += from[row * args.width];
    }
    sums[threadIdx.x] = sum;
    for (int half = kLanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) sums[threadIdx.x] += sums[threadIdx.x + static_cast<unsigned>(half * kPartialColumns)];
    }
    if (lane == 0 && at < args.width) {
      float& to = static_cast<float*>(args.sums[tensor])[at];
      const float beta = args.beta[tensor];
      to = beta == 0.0f ? sums[threadIdx.x] : beta * to + sums[threadIdx.x];
    }
    __syncthreads();  // the next item overwrites the shared sums
  }
}

}  // namespace

void row_block_sums(const RowBlockSumsArgs& args) {
  for_activations("row_block_sums", args.dtype, [&](auto* type) {
    using T = StoredIn<decltype(type)>;
    using Tile = RowBlockTile<T>;
    const std::int64_t items =
        summed_blocks(args.rows) * ((args.width + Tile::kColumns - 1) / Tile::kColumns);
    const bool all =
        aligned(args.x) && aligned(args.saved) && aligned(args.dz) && args.width % Tile::kGroup == 0;
    auto* kernel = row_block_sums_kernel<T, false>;
    if constexpr (std::is_same_v<T, bf16>) {
      if (args.gelu) kernel = row_block_sums_kernel<T, true>;
    } else if (args.gelu) {
      throw DtypeError("row_block_sums: GELU in f32 (cuda has it in bf16)");
    }
    launch("row_block_sums", kernel, grid_for(items, 1, 64), kThreads, {args, items, all});
  });
}

void partial_sums(const PartialSumsArgs& args) {
  require_f32("partial_sums", args.dtype);
  const std::int64_t tiles = (args.width + kPartialColumns - 1) / kPartialColumns;
  launch("partial_sums", partial_sums_kernel, grid_for(tiles * args.tensors, 1, 2), kPartialThreads, args);
}

}  // namespace eddy::cuda
