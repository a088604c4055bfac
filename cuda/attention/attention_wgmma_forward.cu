// Blocked attention in bf16 with wgmma, forward, for sm_90a: as
// cuda/attention/attention_tensor_core_forward.cu, with the same roundings. Layouts are in
// cuda/attention/attention_wgmma.cuh, the order of the instructions in cuda/core/warpgroup_matrix.cuh.
//
// Mapping: a block of 1 warpgroup for each 64 queries of each head of each sequence, or, with positions and at
// H = 128, of 2 for each 128. It walks over tiles of 64 keys that its queries see; a warpgroup skips tiles that
// only the other one sees. Blocks do not wait for one another; two warpgroups share the copies of a tile. The
// queries stay in registers as the left operand, scores come out in registers, and rounded they are the left
// operand of the second product: shared memory is read for keys and values alone, once for 64 queries.
//
// Overlap: the products of a warpgroup are asynchronous. The values of a tile are multiplied while the
// exponentials of the next tile are computed, and one warpgroup multiplies while the other computes. Keys and
// values have two tiles each: those of the next step are copied during a whole step. One barrier to a tile:
//
//   exponentials of tile j         P V of tile j - 1 is in flight
//   wait for P V; barrier          keys j + 1 and values j have arrived; keys j and values j - 1 are read
//   start copies                   of keys j + 2 and values j + 1
//   start products                 scores of tile j + 1, then P V of tile j
//   wait for the scores
//
// For that ptxas must find products and commits in straight-line code: where a branch may skip products it
// waits for all of them at the next wait. So tiles that only the other warpgroup sees have loops of their
// own, before and after, and the exponentials are in a branch that is always taken: as plain arithmetic they
// are moved after the wait for P V. Both were seen in the machine code of nvcc 13.0.
//
// Shared memory: q; two tiles of keys and of values; the bias that two tiles need; with positions a ring of
// them and the skewed products (cuda/attention/attention_wgmma_positions.cuh); 1,024 for alignment. Registers
// are those of nvcc 13.0; warpgroups of a multiprocessor are what both allow:
//   H     bytes     with positions    registers    warpgroups
//   32    22,528    72,192            128          4
//   64    43,008    113,152           128          4
//   128   100,864   195,072           247          2
// With positions their products come first, and they need the registers that P V has: it is waited for before.
// Positions as products (cuda/attention/position_products.h) need two tiles of scores in place of the ring, 40,960,
// 61,440 and 137,728 bytes in all, leave blocks as they are without positions, and no product is waited for.
//
// Work: 4 H operations per visible pair. A band of 512 sees 512 of the 576 keys of the tiles of 64 queries,
// 89 %. A multiprocessor multiplies 4,096 operations a clock: at H = 128 1,024 clocks for a tile of keys and
// the 128 queries. In parallel run the exponentials, 16 a clock, so 512 clocks; the instructions of a warp, with two
// warps to a scheduler; and 64 KiB that the products read from shared memory and 32 KiB that copies write, 768 clocks.
// At H = 64 the products halve and the exponentials do not.
//
// Bytes moved: q and the result once, k and v once for each 64 or 128 queries, mostly from the second-level
// cache: 64 or 128 operations to a byte.
//
// To be measured: 3 warpgroups; tiles of 128 keys. Loads by TMA: attention_wgmma_tma.cu.
#include "cuda/attention/attention_distances.cuh"
#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/attention_wgmma.cuh"
#include "cuda/attention/attention_wgmma_positions.cuh"

namespace eddy::cuda {
namespace {

template <int H, Positions How>
struct WgmmaForwardTile {
  static constexpr bool kRing = How == Positions::ring, kProducts = How == Positions::products;
  static constexpr int kGroups = H <= 64 && !kRing ? 1 : 2;
  // Of a multiprocessor. The scores of positions leave room for three warpgroups at H = 64.
  static constexpr int kBlocks = H <= 64 && kProducts ? 3 : (H <= 64 ? 4 : 2) / kGroups;
  using Block = eddy::cuda::Block<kGroups>;
  using Ring = PositionRing<H, Block::kThreads>;
  using Distances = DistanceTile<Block::kRows, kOtherRows, Block::kThreads>;
  static constexpr int kOther = kOtherRows * H;  // numbers in a tile
  static constexpr int kShared =
      kTileAlignment + swizzled_tile_bytes(Block::kRows + 4 * kOtherRows, H) + Block::kBiasBytes;
  static constexpr int kBytes = kShared + (kRing       ? Ring::kBytes + skew_bytes_of(Block::kWarps, 32)
                                           : kProducts ? 2 * Distances::kBytes
                                                       : 0);
  static_assert(kBytes <= kMostHopperBytes);
  // At H = 64 queries in registers would not leave 128 registers to a thread, for two blocks to a
  // multiprocessor; and the exponentials take longer there than the products, whatever these read.
  using Queries = std::conditional_t<H == 64, SwizzledRows<H, Block::kRows>, RegisterRows<H>>;
};

template <int H, Positions How, class Launch>
__global__ void __launch_bounds__(WgmmaForwardTile<H, How>::Block::kThreads,
                                  WgmmaForwardTile<H, How>::kBlocks) wgmma_forward_kernel(Launch launched) {
  using Tile = WgmmaForwardTile<H, How>;
  using Block = typename Tile::Block;
  using Pieces = PieceOfRows<H, Block::kThreads>;
  constexpr int N = kOtherRows, kBiasWindow = Block::kBiasWindow;
  const AttentionArgs& args = launched.args;
  bf16* const q = first_tile();
  bf16* const keys = q + Block::kRows * H;  // two tiles
  bf16* const values = keys + 2 * Tile::kOther;
  float* const bias = reinterpret_cast<float*>(values + 2 * Tile::kOther);  // for two tiles
  const typename Tile::Ring ring{
      reinterpret_cast<bf16*>(bias + 2 * kBiasWindow)};  // only with positions in tiles, as the next
  float* const part = skew_of_warp<32>(reinterpret_cast<float*>(ring.rows + Tile::Ring::kBytes / 2));
  const auto distances = [bias](int tile) {  // only with positions as products
    return typename Tile::Distances{reinterpret_cast<bf16*>(bias + 2 * kBiasWindow) +
                                    tile % 2 * Tile::Distances::kNumbers};
  };

  const std::int64_t tiles = divide_up(args.queries, Block::kRows), item = blockIdx.x / tiles;
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * Block::kRows;
  const Head<bf16> head(args, item / args.heads, item % args.heads);
  const int width = static_cast<int>(args.head_size);
  const Walk<N> walk = walk_keys<N, Block::kRows>(head, first);

  const auto lowest = [&](int tile) {
    return first + head.offset - walk.row(tile) - (N - 1);
  };  // the lowest distance of a tile
  Pieces key_pieces, value_pieces;
  const auto start_keys = [&](int tile) {
    start_swizzled<N>(
        key_pieces,
        [&] {
          return RowsOfKeys<bf16>{head.keys(), launched.k_aligned};
        },
        walk.row(tile), args.keys, width, keys + tile % 2 * Tile::kOther);
    if constexpr (Tile::kProducts)
      distances(tile).start(ScoreRows(launched.scores, head), static_cast<int>(first),
                            static_cast<int>(lowest(tile)));
  };
  const auto start_values = [&](int tile) {
    start_swizzled<N>(
        value_pieces,
        [&] {
          return RowsOfKeys<bf16>{head.values(), launched.v_aligned};
        },
        walk.row(tile), args.keys, width, values + tile % 2 * Tile::kOther);
  };
  float bias_entry = 0;
  const auto start_bias = [&](int tile) { bias_entry = read_bias<Block>(head, lowest(tile)); };
  const auto finish_bias = [&](int tile) {
    write_bias<Block>(args, bias_entry, bias + tile % 2 * kBiasWindow);
  };
  const auto fill_chunk = [&](int chunk) {  // of positions
    if constexpr (Tile::kRing) ring.fill(args, chunk, lowest(0) + chunk * kChunkRows);
  };
  start_swizzled<H, Block::kRows, Block::kThreads>(
      Rows<bf16>{{head.queries(), args.q_strides.time}, launched.q_aligned}, first, args.queries, width, q);
  start_keys(0);
  start_bias(0);
  finish_bias(0);
#pragma unroll 1
  for (int chunk = walk.tiles > 1 ? -1 : 0; chunk <= Tile::kGroups; ++chunk) fill_chunk(chunk);
  finish_copies();
  publish_shared();
  __syncthreads();
  typename Tile::Queries left(SwizzledRows<H, Block::kRows>{q, warpgroup() * kGroupRows + warp() % 4 * 16});

  float scores[N / 8][4], mixed[H / 8][4] = {};
  Rounded<N> weights;
  RunningSoftmax softmax;
  const float factor = head.factor * kLog2OfE;         // scores in units of log 2
  const std::int64_t own_query = first + warp() * 16;  // the warp's first
  start_values(0);
  if (walk.tiles > 1) {
    start_keys(1);
    start_bias(1);
    finish_bias(1);
  }
  const auto fetch = [&](int tile) {
    finish_copies();
    publish_shared();
    // The next keys and these values have arrived; these keys and the previous values have been read.
    __syncthreads();
    if (tile + 1 < walk.tiles) start_values(tile + 1);
    if (tile + 2 < walk.tiles) {
      start_keys(tile + 2);
      start_bias(tile + 2);
    }
  };
  // What the tile after the next one needs and stores must write. Its bias, and the last chunk of positions of this
  // tile, have been read.
  const auto finish_fetch = [&](int tile) {
    if (tile + 2 >= walk.tiles) return;
    finish_bias(tile + 2);
    fill_chunk(-(tile + 2));
  };
  const auto pass = [&](int tile) {  // for a tile that only the other warpgroup sees
    fetch(tile);
    finish_fetch(tile);
  };
  constexpr bool kAll = Tile::kGroups == 1;  // no other warpgroup sees more
  const int own_first = kAll ? 0 : min(walk.own_first, walk.tiles),
            own_end = kAll ? walk.tiles : min(walk.own_end, walk.tiles);
  int tile = 0;
  for (; tile < own_first; ++tile) pass(tile);
  if (tile < own_end) {
    start_row_products<H>(left, keys + tile % 2 * Tile::kOther, scores);
    commit_products();
    wait_products<0>(scores);
    for (; tile < own_end; ++tile) {
      const std::int64_t key = walk.row(tile);
      float correction[2];
      bool rises = false;
      const auto finish_mixes = [&] {
        wait_products<0>(mixed);
        hold_registers(weights.parts);  // those of the previous tile were in flight
      };
      if constexpr (Tile::kRing) finish_mixes();  // products with positions need the registers
      if (args.head_size > 0) {                   // always true, see the head of this file
        if constexpr (Tile::kProducts)
          distances(tile).add(warp() * 16, static_cast<int>(lowest(tile)), scores);
        if constexpr (Tile::kRing) add_query_positions<H, 32>(left, ring, -tile, warp(), part, scores, [] {});
        const std::int64_t base = own_query + head.offset - key;  // distance of the warp's first pair
        if (args.bias != nullptr)
          add_bias_window<N>(bias + tile % 2 * kBiasWindow + warp() * 16 + N - 1, scores);
        const std::uint32_t seen =
            Limits(16, args.keys - key, args.least - base, args.most - base).template bits<N>();
        const std::uint32_t kept = kept_bits<N>(head, own_query, key);
        rises = softmax.weigh<N>(scores, seen, kept, factor, correction);
      }
      if constexpr (!Tile::kRing) finish_mixes();
      fetch(tile);
      weights.set(scores);
      if (rises) scale_rows(mixed, correction);
      // After the last tile these are scores of other keys, which nobody reads.
      start_row_products<H>(left, keys + (tile + 1) % 2 * Tile::kOther, scores);
      commit_products();
      start_row_mixes<H, N>(weights, values + tile % 2 * Tile::kOther, mixed);
      commit_products();
      finish_fetch(tile);
      wait_products<1>(scores);
    }
    wait_products<0>(mixed);
    hold_registers(weights.parts);
  }
  for (; tile < walk.tiles; ++tile) pass(tile);
  finish_copies();  // the first values, when no key is visible
  softmax.store<H>(head, own_query, mixed);
}

}  // namespace

void wgmma_forward(const AttentionArgs& args, bool products) {
  for_tensor_size(args.head_size, [&](auto size) {
    constexpr int H = decltype(size)::value;
    const auto launch = [&](auto positions, const auto& launched) {
      constexpr Positions kHow = decltype(positions)::value;
      using Tile = WgmmaForwardTile<H, kHow>;
      launch_shared("attention with wgmma", wgmma_forward_kernel<H, kHow, std::decay_t<decltype(launched)>>,
                    args.batch * args.heads * divide_up(args.queries, Tile::Block::kRows),
                    Tile::Block::kThreads, Tile::kBytes, launched);
    };
    if (products) {
      const PositionProducts positions(args);
      launch(AsProducts{}, WithScores<TensorForward>{tensor_forward(args), positions.scores(), {}});
    } else if (args.positions != nullptr) {
      launch(InTiles{}, tensor_forward(args));
    } else {
      launch(NoPositions{}, tensor_forward(args));
    }
  });
}

}  // namespace eddy::cuda
