// Version 4 of the kernel in attention.cu: wgmma, compiled only for sm_90a.
//
// One block of 2 warpgroups of 4 warps for 128 queries, 64 for each warpgroup. One instruction of a warpgroup
// multiplies 64 x 16 by 16 x 64: 131,072 operations. The left operand is in registers; the tensor cores read
// the right one from shared memory themselves. So a tile of k or v is read once for 64 queries, where version
// 3 reads it four times: 64 operations per byte, twice what a multiprocessor of 9.0 needs.
//
// Three things are new (cuda/core/warpgroup_matrix.cuh has each instruction):
// - An operand in shared memory is described by a 64-bit descriptor: its start, the distance of its groups of
//   8 rows, and the swizzle of its 16-byte pieces. A row of a tile is H elements, 128 bytes, and piece c of
//   row r is stored at place c ^ (r % 8). So the pieces of one column of 8 rows lie in different banks,
//   without the padding of version 3. A bit of the instruction says whether rows of the tile are columns of
//   the operand (k) or its rows (v).
// - Products are asynchronous. The product with the values of one tile runs while the exponentials of the
//   next tile are computed. At H = 64 the exponentials, 16 a clock, take as long as both products.
// - Tensor cores read shared memory through a separate path (the async proxy), so copied data must be made
//   visible to it with a fence.
//
// There is one barrier for each tile. After it the keys of the next tile and the values of this one have
// arrived, and the previous buffers may be overwritten, so k and v have two buffers each.
//
// The exponentials are the remaining bound. The copies cost every thread addresses and registers; one warp
// could leave them to the copy engine.
#include "cuda/core/shared_launch.cuh"
#include "cuda/core/warpgroup_matrix.cuh"
#include "examples/kernels/attention.h"

using namespace eddy::cuda;

namespace eddy::example {
namespace {

constexpr int kQueries = 128, kKeys = 64, kThreads4 = 256;
constexpr int kTileBytes = kKeys * 2 * H;
constexpr int kSharedBytes = 1024 + kQueries * 2 * H + 4 * kTileBytes;  // 1,024 for alignment

__device__ bf16* piece_of(bf16* tile, int row, int piece) {
  return tile + row * H + (piece ^ row % 8) * 8;
}

template <int Count>
__device__ void start_tile(const bf16* from, int first, int time, bf16* to) {
  for (int i = static_cast<int>(threadIdx.x); i < Count * H / 8; i += kThreads4) {
    const int row = i / (H / 8), piece = i % (H / 8);
    const bool inside = first + row < time;
    start_copy(piece_of(to, row, piece), inside ? from + (first + row) * H + 8 * piece : from, inside);
  }
}

// Returns the descriptor of the operand that starts at byte `start` of a tile: swizzle of 128 bytes, groups
// of 8 rows 1,024 bytes apart.
__device__ std::uint64_t operand(const bf16* tile, int start) {
  const std::uint64_t address = shared_address(tile) + static_cast<unsigned>(start);
  return (address & 0x3ffff) >> 4 | std::uint64_t{1} << 16 | std::uint64_t{1024 >> 4} << 32 |
         std::uint64_t{1} << 62;
}

__device__ void start_scores(std::uint32_t (&q)[H / 16][4], const bf16* keys, float (&scores)[8][4]) {
  order_registers(scores, q);
#pragma unroll
  for (int k = 0; k < H / 16; ++k)  // 16 elements further in each row
    multiply_warpgroup<kKeys, false>(scores, q[k], operand(keys, 32 * k), k > 0);
  commit_products();
}

__global__ void __launch_bounds__(kThreads4) wgmma_kernel(Attention x) {
  bf16* const start = reinterpret_cast<bf16*>(shared_memory());
  bf16* const queries = start + (1024 - shared_address(start) % 1024) % 1024 / 2;
  bf16 *const keys = queries + kQueries * H, *const values = keys + 2 * kKeys * H;  // two buffers each
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4, blocks = (x.time + kQueries - 1) / kQueries;
  const int first = (blocks - 1 - static_cast<int>(blockIdx.x) % blocks) * kQueries;  // long rows first
  const std::int64_t head = std::int64_t{blockIdx.x / static_cast<unsigned>(blocks)} * x.time * H;
  const int tiles = (min(first + kQueries, x.time) + kKeys - 1) / kKeys;
  const auto tile_of = [](bf16* two, int tile) { return two + tile % 2 * kKeys * H; };

  start_tile<kQueries>(x.q + head, first, x.time, queries);
  start_tile<kKeys>(x.k + head, 0, x.time, keys);
  finish_copies();
  publish_shared();
  __syncthreads();
  std::uint32_t q[H / 16][4], weights[kKeys / 16][4];
  for (int k = 0; k < H / 16; ++k)
    load_matrices(q[k], piece_of(queries, 16 * warp + lane % 16, 2 * k + lane / 16));
  start_tile<kKeys>(x.v + head, 0, x.time, values);
  if (tiles > 1) start_tile<kKeys>(x.k + head, kKeys, x.time, tile_of(keys, 1));

  float scores[kKeys / 8][4], mixed[H / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  start_scores(q, keys, scores);
  wait_products<0>(scores);
  for (int tile = 0; tile < tiles; ++tile) {
    float shrink[2];
    // Always true. Without the branch nvcc moves the exponentials behind the wait for the product with the
    // values.
    if (x.time > 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // as in version 3, for 64 keys
        const int query = first + 16 * warp + g + 8 * half;
        float larger = top[half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const bool visible = tile * kKeys + 8 * n + 2 * t + e % 2 <= query;
            scores[n][e] = visible ? scores[n][e] * kScale2 : -INFINITY;
            larger = fmaxf(larger, scores[n][e]);
          }
        larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 1));
        larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 2));
        shrink[half] = fast_exp2(top[half] - larger);
        top[half] = larger;
        sum[half] *= shrink[half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[n][e] = fast_exp2(scores[n][e] - larger);
            sum[half] += scores[n][e];
          }
      }
    }
    wait_products<0>(mixed);  // the product of the previous tile
    finish_copies();
    publish_shared();
    // The next keys and these values have arrived; these keys and the previous values have been read.
    __syncthreads();
    if (tile + 1 < tiles)
      start_tile<kKeys>(x.v + head, (tile + 1) * kKeys, x.time, tile_of(values, tile + 1));
    if (tile + 2 < tiles) start_tile<kKeys>(x.k + head, (tile + 2) * kKeys, x.time, tile_of(keys, tile));
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[k][i] = pack(scores[2 * k + i / 2][i % 2 * 2], scores[2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int h = 0; h < H / 8; ++h)
#pragma unroll
      for (int e = 0; e < 4; ++e) mixed[h][e] *= shrink[e / 2];

    // After the last tile these are scores of stale keys, which are not used.
    start_scores(q, tile_of(keys, tile + 1), scores);
    order_registers(mixed, weights);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k)  // 16 rows further
      multiply_warpgroup<H, true>(mixed, weights[k], operand(tile_of(values, tile), 16 * 2 * H * k), true);
    commit_products();
    wait_products<1>(scores);
  }
  wait_products<0>(mixed);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = sum[half] + __shfl_xor_sync(0xffffffffu, sum[half], 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    const int query = first + 16 * warp + g + 8 * half;
    if (query >= x.time) continue;
#pragma unroll
    for (int h = 0; h < H / 8; ++h)
      *reinterpret_cast<std::uint32_t*>(x.y + head + query * H + 8 * h + 2 * t) =
          pack(mixed[h][2 * half] / total, mixed[h][2 * half + 1] / total);
  }
}

}  // namespace

void run_wgmma(const Attention& args, std::int64_t heads) {
  launch_shared("4 wgmma", wgmma_kernel, heads * ((args.time + kQueries - 1) / kQueries), kThreads4,
                kSharedBytes, args);
}

}  // namespace eddy::example
