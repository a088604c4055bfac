// The two products of an MLP with GELU in their kernel (ops/product/gemm.h), with wgmma and loads by TMA, for
// GPUs of compute capability 9.0:
//
//   forward    [rows, depth] by [columns, depth]^T + bias  ->  z, act
//   backward   [rows, depth] by [depth, columns]           ->  dz = product gelu'(z), sums of dz over 64 rows
//
// Mapping: a block stays on its multiprocessor and takes one tile after another, of 128 rows and N = 256 columns, or
// 128 where wide tiles are too few. Two warpgroups multiply, 64 rows each. A ninth warp loads by TMA: 64 of the depth
// at a step, four steps ahead, also into the next tile. Each of the four places has two barriers: `full` ends a phase
// when its bytes are there, `empty` when each of the 8 warps has passed the products that read it.
//
// Why the activation does not stand behind the products: in the issue slots of a multiprocessor, GELU of a tile and its
// stores take 0.85 of the time that tensor cores need for a depth of 768, and its derivative and the sums 1.2 of it.
// One after the other that is no faster than a product and a pass over memory. So a warpgroup rounds a tile to bf16, 64
// registers of a thread in place of 128, starts the products of the next tile, and finishes the rounded one in groups
// of 32 columns while those run:
//
//   loading warp     wait for empty; announce the bytes; start the copies of 64 of the depth
//   warpgroups       for each step
//                      wait for full; start products
//                      wait for the products of the step before; arrive at their empty
//                      finish those groups of 32 columns of the tile before that are due: GELU, or dz and its sums
//                    wait for all products; add the bias; round to bf16
//
// A thread of a product has two neighbours of each 8 columns. Four lanes exchange, so that each has 8 neighbours of one
// of four such groups: loads and stores are 16 bytes, 64 in a row for four lanes.
//
// Sums of dz: a lane adds its two rows, eight lanes the rows of a warp by exchanging halves, and one thread for each
// column adds the four warps' of a warpgroup in their order. They are those of dz as it is stored, of the blocks of 64
// rows that row_block_sums makes, whose order of additions is another. Nothing depends on the width of tiles or on the
// number of blocks.
//
// Order of tiles: blocks take them by turns. Within as many columns as have weights of kTogetherBytes, all columns of a
// tile's rows come first, so that rows are read from memory once and these weights stay in the second-level cache.
//
// Shared memory, N = 256: four places of 49,152 bytes; backward 16,384 for the warps' sums; barriers, 80; 1,024 for
// alignment: 214,096 bytes, one block to a multiprocessor.
//
// Bytes moved: left, z and the result once, and the sums, the least; the weight once for each multiprocessor's rows at
// worst, from the second-level cache.
#include <algorithm>

#include "cuda/core/bulk_copy.cuh"
#include "cuda/core/numbers.cuh"
#include "cuda/core/swizzled_tiles.cuh"
#include "cuda/product/gelu_product.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/reduce/partial_sums.h"

namespace eddy::cuda {
namespace {

constexpr std::int64_t kTogetherBytes = std::int64_t{16} << 20;

struct GeluLaunch {
  TensorMap left, right;
  const bf16* bias;
  bf16* z;  // forward: null where it is not wanted
  bf16* result;
  float* sums;  // backward: null where they are not wanted
  int rows, columns, steps, row_tiles, tiles;
  int together;  // tiles of columns whose weights stay in the cache
};

// The block's shared memory.
template <int N, bool Backward>
struct GeluTile {
  static constexpr bool kBackward = Backward;
  static constexpr int kRows = static_cast<int>(kGeluTileRows), kColumns = N, kStep = 64, kStages = 4;
  static constexpr int kGroups = N / 32;
  static constexpr int kWarps = 8, kThreads = 32 * kWarps + 128;
  // Registers of a thread at the launch, as many as all have then, and of one that multiplies and one that loads: what
  // these take, those must give back, or they wait for ever.
  static constexpr int kAtLaunch = 65536 / kThreads / 8 * 8, kOfMultiplying = 240, kOfLoading = 24;
  static_assert(32 * kWarps * kOfMultiplying + 128 * kOfLoading <= kThreads * kAtLaunch);
  static constexpr int kLeft = kRows * kStep, kRight = N * kStep;  // numbers
  static constexpr int kSums = Backward ? 2 * kWarps * N : 0;      // of two tiles
  static constexpr int kBarriers = 2 * kStages + 2;
  static constexpr int kStepBytes = swizzled_tile_bytes(kRows, kStep) + swizzled_tile_bytes(N, kStep);
  static constexpr int kBytes =
      kTileAlignment + kStages * kStepBytes + 4 * kSums + static_cast<int>(sizeof(PhaseBarrier)) * kBarriers;
  static_assert(kBytes <= kMostHopperBytes);

  bf16* places;
  float* sums;
  PhaseBarrier* barriers;

  __device__ GeluTile()
      : places(first_tile()),
        sums(reinterpret_cast<float*>(places + kStages * (kLeft + kRight))),
        barriers(reinterpret_cast<PhaseBarrier*>(sums + kSums)) {}
  // Of the step number `step` that this block loads, over all its tiles.
  __device__ bf16* left(int step) const { return places + step % kStages * (kLeft + kRight); }
  __device__ bf16* right(int step) const { return left(step) + kLeft; }
  __device__ PhaseBarrier* full(int step) const { return barriers + step % kStages; }
  __device__ PhaseBarrier* empty(int step) const { return full(step) + kStages; }
  // The parity of the phase of a step's `full`; its `empty` of the step before it in this place has the other one.
  __device__ static int parity(int step) { return step / kStages & 1; }
  // The sums of a warp, of the tile number `turn` of this block, and the barrier of the warpgroup at which its warps
  // arrive when they are there.
  __device__ float* sums_of(int turn, int warp) const { return sums + (turn % 2 * kWarps + warp) * N; }
  __device__ PhaseBarrier* summed(int group) const { return barriers + 2 * kStages + group; }

  // By one thread.
  __device__ void init() const {
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(full(stage), 1);
      init_barrier(empty(stage), kWarps);
    }
    for (int group = 0; group < 2; ++group) init_barrier(summed(group), kWarps / 2);
    publish_barriers();
  }
};

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ inline void arrive_by_lane(PhaseBarrier* barrier) {
  __syncwarp();
  if (lane_of_warp() == 0) arrive(barrier);
}

// Where tile number `number` begins.
template <class Tile>
struct TileStart {
  int row, column;

  __device__ TileStart(const GeluLaunch& launched, int number) {
    const int column_tiles = launched.tiles / launched.row_tiles,
              before = number / (launched.together * launched.row_tiles) * launched.together,
              members = min(launched.together, column_tiles - before),
              own = number - before * launched.row_tiles;
    row = own / members * Tile::kRows;
    column = (before + own % members) * Tile::kColumns;
  }
};

// ---- the loading warp

// Starts the copies of a step, which is 64 of the depth, by one thread.
template <class Tile>
__device__ void start_copies(const GeluLaunch& launched, const Tile& tile, const TileStart<Tile>& start,
                             int depth, int step) {
  PhaseBarrier* const full = tile.full(step);
  arrive_expecting(full, Tile::kStepBytes);
  start_box_copy(tile.left(step), &launched.left, {depth, 0, start.row, 0}, full);
  bf16* const right = tile.right(step);
  if constexpr (Tile::kBackward) {
#pragma unroll
    for (int column = 0; column < Tile::kColumns; column += 64)
      start_box_copy(right + column * Tile::kStep, &launched.right, {start.column + column, 0, depth, 0},
                     full);
  } else {
    start_box_copy(right, &launched.right, {depth, 0, start.column, 0}, full);
  }
}

template <class Tile>
__device__ void load_steps(const GeluLaunch& launched, const Tile& tile) {
  int loaded = 0;
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < launched.tiles;
       number += static_cast<int>(gridDim.x)) {
    const TileStart<Tile> start(launched, number);
#pragma unroll 1
    for (int step = 0; step < launched.steps; ++step, ++loaded) {
      wait_phase(tile.empty(loaded), Tile::parity(loaded) ^ 1);
      if (lane_of_warp() == 0) start_copies(launched, tile, start, step * Tile::kStep, loaded);
      __syncwarp();
    }
  }
}

// ---- the warpgroups

// Starts the products of a step, which overwrite the sums at the first one.
template <class Tile>
__device__ void start_step(const Tile& tile, int group, int step, bool first,
                           float (&sums)[Tile::kColumns / 8][4]) {
  constexpr int N = Tile::kColumns, kStep = Tile::kStep;
  const RowsOperand<kStep, Tile::kRows> left(tile.left(step), group * kGroupRows);
  const AcrossOperand<N, kStep> across(tile.right(step));
  const RowsOperand<kStep, N> rows(tile.right(step));
  order_registers(sums);
#pragma unroll
  for (int k = 0; k < kStep / 16; ++k) {
    const bool add = k > 0 || !first;
    if constexpr (Tile::kBackward)
      multiply_warpgroup<N, false, true>(sums, left.columns(k), across.rows(k), add);
    else
      multiply_warpgroup<N, false, false>(sums, left.columns(k), rows.columns(k), add);
  }
}

// Lane t of four has the words of columns 2 t and 2 t + 1 of four groups of 8 columns; then those of all columns of
// group t, in their order.
__device__ inline void exchange_in_fours(std::uint32_t (&words)[4]) {
  const bool odd = (lane_of_warp() & 1) != 0, upper = (lane_of_warp() & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? words[i] : words[i + 1], 1);
    words[i] = odd ? other : words[i];
    words[i + 1] = odd ? words[i + 1] : other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? words[i] : words[i + 2], 2);
    words[i] = upper ? other : words[i];
    words[i + 2] = upper ? words[i + 2] : other;
  }
}

// A thread's 64 x N / 128 numbers of a tile that was multiplied, rounded to bf16, which are finished while the next one
// is. At first a tile without rows.
template <class Tile>
struct RoundedTile {
  static constexpr int N = Tile::kColumns;
  using Eight = StoredGroup<bf16>;

  std::uint32_t words[N / 8]
                     [2];       // of the groups that are left: two neighbours in each 8 columns, of two rows
  Eight saved[2];               // backward: z of the next group to be finished
  int first_row, first_column;  // of the warpgroup's rows and of the tile
  std::int64_t at;              // of this thread's first 8 neighbours in z and in the result

  __device__ explicit RoundedTile(const GeluLaunch& launched)
      : words{}, saved{}, first_row(launched.rows), first_column(0), at(0) {}

  // The first of a thread's two rows in its warpgroup, and of its 8 neighbours in a group of columns.
  __device__ static int own_row() { return static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane_of_warp() / 4; }
  __device__ static int own_column() { return 8 * (lane_of_warp() % 4); }
  __device__ bool is_there(const GeluLaunch& launched, int half, int group) const {
    return first_row + own_row() + 8 * half < launched.rows &&
           first_column + own_column() + 32 * group < launched.columns;
  }
  __device__ std::int64_t place(const GeluLaunch& launched, int half, int group) const {
    return at + std::int64_t{8 * half} * launched.columns + 32 * group;
  }
  __device__ void read_saved(const GeluLaunch& launched, int group, Eight (&to)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      to[half] = is_there(launched, half, group)
                     ? *reinterpret_cast<const Eight*>(launched.z + place(launched, half, group))
                     : Eight{};
  }

  // Takes the sums of the tile that begins at `start` once `wait` has waited for them. What it reads comes meanwhile.
  template <class Wait>
  __device__ void take(const GeluLaunch& launched, const TileStart<Tile>& start, int group, const Wait& wait,
                       float (&sums)[N / 8][4]) {
    struct alignas(4) Pair {
      bf16 at[2];
    };
    first_row = start.row + group * kGroupRows;
    first_column = start.column;
    at = std::int64_t{first_row + own_row()} * launched.columns + first_column + own_column();
    Pair bias[N / 8] = {};
    if constexpr (Tile::kBackward) {
      read_saved(launched, 0, saved);
    } else {
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
        if (const int own = first_column + 8 * n + own_column() / 4;
            launched.bias != nullptr && own < launched.columns)
          bias[n] = *reinterpret_cast<const Pair*>(launched.bias + own);
    }
    wait();
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float low = sums[n][2 * half], high = sums[n][2 * half + 1];
        words[n][half] = Tile::kBackward ? pack(low, high)
                                         : pack(low + static_cast<float>(bias[n].at[0]),
                                                high + static_cast<float>(bias[n].at[1]));
      }
  }

  // Finishes group number `group`, whose words are the first ones, and moves those of the next one there.
  __device__ void finish_group(const GeluLaunch& launched, const Tile& tile, int group, int turn) {
    [[maybe_unused]] Eight next[2];
    [[maybe_unused]] float sums[8] = {};
    if constexpr (Tile::kBackward)
      if (group + 1 < Tile::kGroups) read_saved(launched, group + 1, next);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t four[4] = {words[0][half], words[1][half], words[2][half], words[3][half]};
      exchange_in_fours(four);
      Eight rounded;
      std::memcpy(&rounded, four, sizeof rounded);
      Group<bf16> result;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float x = static_cast<float>(rounded.at[j]);
        if constexpr (Tile::kBackward)
          result.at[j] = pointwise::Gelu::vjp(x, static_cast<float>(saved[half].at[j]));
        else
          result.at[j] = pointwise::Gelu::forward(x);
      }
      const Eight whole = stored<bf16>(result);
      if (is_there(launched, half, group)) {
        const std::int64_t to = place(launched, half, group);
        if constexpr (!Tile::kBackward)
          if (launched.z != nullptr) store_whole(launched.z + to, rounded);
        store_whole(launched.result + to, whole);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[j] += static_cast<float>(whole.at[j]);
    }
    if constexpr (Tile::kBackward) {
      if (launched.sums != nullptr)
        add_rows(sums, tile.sums_of(turn, static_cast<int>(threadIdx.x) / 32) + 32 * group);
      saved[0] = next[0];
      saved[1] = next[1];
    }
#pragma unroll
    for (int n = 0; n + 4 < N / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) words[n][half] = words[n + 4][half];
  }

  // Writes the sums over a warp's 16 rows of 32 columns, of which each lane has 8 of two rows: eight lanes halve their
  // columns three times, and each has one in the end.
  __device__ static void add_rows(float (&sums)[8], float* to) {
    int own = own_column();
#pragma unroll
    for (int count = 4, distance = 4; count > 0; count /= 2, distance *= 2) {
      const bool upper = (lane_of_warp() & distance) != 0;
      if (upper) own += count;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const float other = __shfl_xor_sync(0xffffffffu, upper ? sums[i] : sums[i + count], distance);
        sums[i] = (upper ? sums[i + count] : sums[i]) + other;
      }
    }
    to[own] = sums[0];
  }

  // Behind the last group: adds the warps' sums.
  __device__ void finish(const GeluLaunch& launched, const Tile& tile, int group, int turn) const {
    if constexpr (Tile::kBackward) {
      if (launched.sums == nullptr) return;
      arrive_by_lane(tile.summed(group));
      wait_phase(tile.summed(group), turn & 1);
      if (first_row >= launched.rows) return;
      float* const to =
          launched.sums + std::int64_t{first_row / kGroupRows} * launched.columns + first_column;
      for (int own = static_cast<int>(threadIdx.x) % 128; own < N && first_column + own < launched.columns;
           own += 128) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += tile.sums_of(turn, 4 * group + i)[own];
        to[own] = sum;
      }
    }
  }
};

// A tile has at least one step, and no path leads around its products: else ptxas has every wait wait for all of them.
template <class Tile>
__device__ void multiply_tiles(const GeluLaunch& launched, const Tile& tile) {
  constexpr int N = Tile::kColumns;
  const int group = warpgroup();
  RoundedTile<Tile> before(launched);
  int used = 0, turn = 0;  // steps and tiles before
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < launched.tiles;
       number += static_cast<int>(gridDim.x), ++turn) {
    float sums[N / 8][4];
    int step = 0, part = 0, due = 0;  // due: of the parts, in units of 1 / steps
    do {
      wait_phase(tile.full(used), Tile::parity(used));
      start_step(tile, group, used, step == 0, sums);
      commit_products();
      wait_products<1>();
      if (step > 0) arrive_by_lane(tile.empty(used - 1));
#pragma unroll 1
      for (due += Tile::kGroups; due >= launched.steps; due -= launched.steps)
        before.finish_group(launched, tile, part++, turn);
      ++used;
    } while (++step < launched.steps);
    before.finish(launched, tile, group, turn);
    before.take(
        launched, TileStart<Tile>(launched, number), group, [&] { wait_products<0>(sums); }, sums);
    arrive_by_lane(tile.empty(used - 1));
  }
#pragma unroll 1
  for (int part = 0; part < Tile::kGroups; ++part) before.finish_group(launched, tile, part, turn);
  before.finish(launched, tile, group, turn);
}

template <int N, bool Backward>
__global__ void __launch_bounds__(GeluTile<N, Backward>::kThreads, 1)
    wgmma_tma_gelu_kernel(const __grid_constant__ GeluLaunch launched) {
  using Tile = GeluTile<N, Backward>;
  const Tile tile;
  if (threadIdx.x == 0) tile.init();
  __syncthreads();
  if (warpgroup() == Tile::kWarps / 4) {
    give_registers_back<Tile::kOfLoading>();
    if (__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0) == Tile::kWarps)
      load_steps(launched, tile);
  } else {
    take_registers<Tile::kOfMultiplying>();
    multiply_tiles(launched, tile);
  }
}

std::int64_t tiles_of(std::int64_t count, std::int64_t each) {
  return (count + each - 1) / each;
}

// The map of a matrix, of which a copy takes so many rows of 64 columns.
std::optional<TensorMap> map_of_matrix(const void* start, std::int64_t rows, std::int64_t columns,
                                       std::int64_t stride, int at_once) {
  return map_of({start, {columns, 1, rows, 1}, {stride, stride, rows * stride}, {64, 1, at_once, 1}});
}

template <int N, bool Backward>
bool launch_tiles(const GeluProductArgs& args, int most_blocks) {
  using Tile = GeluTile<N, Backward>;
  const auto left = map_of_matrix(args.left, args.rows, args.depth, args.left_stride, Tile::kRows);
  const auto right =
      Backward ? map_of_matrix(args.weight, args.depth, args.columns, args.weight_stride, Tile::kStep)
               : map_of_matrix(args.weight, args.columns, args.depth, args.weight_stride, N);
  const std::int64_t row_tiles = tiles_of(args.rows, Tile::kRows), column_tiles = tiles_of(args.columns, N),
                     tiles = row_tiles * column_tiles;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // numbers of tiles and rows are int
  if (!left || !right || tiles > kMost || args.rows > kMost || args.columns > kMost || args.depth > kMost)
    return false;
  const std::int64_t together =
      std::clamp<std::int64_t>(kTogetherBytes / (2 * N * args.depth), 1, column_tiles);
  launch_shared(Backward ? "product and gradient of GELU" : "product and GELU",
                wgmma_tma_gelu_kernel<N, Backward>, std::min<std::int64_t>(tiles, most_blocks),
                Tile::kThreads, Tile::kBytes,
                {*left, *right, static_cast<const bf16*>(args.bias), static_cast<bf16*>(args.z),
                 static_cast<bf16*>(args.result), args.sums, static_cast<int>(args.rows),
                 static_cast<int>(args.columns), static_cast<int>(tiles_of(args.depth, Tile::kStep)),
                 static_cast<int>(row_tiles), static_cast<int>(tiles), static_cast<int>(together)});
  return true;
}

}  // namespace

static_assert(kSummedRows == kGroupRows);

bool wgmma_gelu_product(const GeluProductArgs& args, bool backward, int most_blocks) {
  if (!takes_gelu_product(args)) return false;
  // Wide tiles read a third less of the second-level cache, where they are enough for all multiprocessors.
  const std::int64_t wide = tiles_of(args.rows, kGeluTileRows) * tiles_of(args.columns, 2 * kGeluTileColumns);
  if (args.columns > kGeluTileColumns && wide >= most_blocks)
    return backward ? launch_tiles<256, true>(args, most_blocks)
                    : launch_tiles<256, false>(args, most_blocks);
  return backward ? launch_tiles<128, true>(args, most_blocks) : launch_tiles<128, false>(args, most_blocks);
}

}  // namespace eddy::cuda
