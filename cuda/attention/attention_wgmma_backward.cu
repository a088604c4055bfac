// Blocked attention in bf16 with wgmma, backward, for sm_90a: dq, dk and dv as in
// cuda/attention/attention_tensor_core_backward.cu, with the same roundings and the same two kernels that
// share no sums. The formulas are in cuda/attention/attention_backward.cu, layouts in
// cuda/attention/attention_wgmma.cuh, the order of the instructions in cuda/core/warpgroup_matrix.cuh. The
// gradient of positions, and the products with positions here, use mma.sync.
//
// Mapping:
//   wgmma_queries_kernel   a block for each R queries of a head, 64 to a warpgroup, over tiles of 64 keys: the
//                          deltas, dq, each row's share of dhead_scale, and, if it fits, the gradient of the
//                          bias (cuda/attention/attention_tensor_core_bias.cuh) while the products for dq are
//                          in flight
//   wgmma_keys_kernel      a block for each R keys of a key head, 64 to a warpgroup, over tiles of N
//                          queries and the heads that share it: dk and dv. Scores are transposed, keys in
//                          rows, so that weights and gradients of scores are left operands in registers. A
//                          block whose keys want no gradient does nothing.
//
// A tile of the other side is in shared memory once and is read both ways: its rows as columns of B for the
// scores, and as rows of B for the sums. There are two buffers: the next tile is copied during a whole step,
// with one barrier each. A warpgroup waits for its own products; those of the other one fill the time.
//
// R is 128 at H = 128. Up to H = 64 registers and shared memory have room for 3 warpgroups (with positions for 2) to
// a multiprocessor, and each is a block: warpgroups of one block start and wait together, those of several do not,
// so one multiplies while another computes. Each then copies tiles of its own, which is twice the traffic.
//
// Shared memory: two tiles of R rows, four of N = 64, the statistics of 2 N rows (keys' kernel), the bias
// that two tiles need, with positions a ring of them and the skewed products
// (cuda/attention/attention_wgmma_positions.cuh); 1,024 for alignment. The gradient of the bias adds 4 bytes a
// distance and warp: up to 3,056 distances fit at H = 128, 112 with positions; up to H = 64 as many as leave room for
// two blocks. Registers of nvcc 13.0, without positions:
//   H     R     bytes     with positions    registers of dq    with the bias    of dk and dv    blocks
//   32    64    27,648    68,608            155                155              162             3
//   64    64    52,224    109,568           157                159              168             3
//   128   128   134,656   228,864           210                216              255             1
// Positions as products (cuda/attention/position_products.h) need two tiles of scores in place of the ring, 46,080,
// 70,656 and 171,520 bytes in all, and blocks are as without positions: registers are 164, 166, 235 of dq and 168, 167,
// 255 of dk and dv, of which the last spills 8 bytes. The kernel for dq writes the gradients of the scores over the
// scores in a tile, and from there into rows by distance, 16 bytes at a time but for 8 numbers of a row and tile; it
// writes zeros where no tile is.
//
// Work: 6 H operations for dq and 8 H for dk and dv per visible pair. At H = 128 a warpgroup's 64 x 64 pairs
// take 768 and 1,024 clocks of a multiprocessor's tensor cores. They read 80 and 96 KiB of shared memory, 640
// and 768 clocks, besides 128 for copies: for dq as long as the products. The gradient of the bias costs 100
// clocks of exchanges and its tables, where the kernel of the tables would compute all scores again.
//
// Bytes moved: q, k, v, o, do and the gradients of q, k and v once; k and v once more for each R
// queries, q and do for each R keys, mostly from the second-level cache.
//
// To be measured: scores of the next tile started before the sums of this one.
#include "cuda/attention/attention_distances.cuh"
#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/attention_tensor_core_backward.cuh"
#include "cuda/attention/attention_tensor_core_bias.cuh"
#include "cuda/attention/attention_wgmma.cuh"
#include "cuda/attention/attention_wgmma_positions.cuh"

namespace eddy::cuda {
namespace {

template <int H, Positions How>
struct WgmmaBackwardTile {
  static constexpr bool kRing = How == Positions::ring, kProducts = How == Positions::products;
  static constexpr int kGroups = H <= 64 ? 1 : 2;
  static constexpr int kBlocks = H > 64 ? 1 : kRing ? 2 : 3;  // of a multiprocessor
  using Block = eddy::cuda::Block<kGroups>;
  using Ring = PositionRing<H, Block::kThreads>;
  static constexpr int kOthers = kOtherRows;  // N
  // Scores of positions, in the kernel for dq and in that for dk and dv: two tiles of each.
  using QueryDistances = DistanceTile<Block::kRows, kOthers, Block::kThreads>;
  using KeyDistances = DistanceTile<kOthers, Block::kRows, Block::kThreads>;
  static constexpr int kOther = kOthers * H;  // numbers in a tile
  static constexpr int kStatistics = 2 * 2 * 4 * kOthers;
  static constexpr int kShared = kTileAlignment + swizzled_tile_bytes(2 * Block::kRows + 4 * kOthers, H) +
                                 kStatistics + Block::kBiasBytes;
  static constexpr int kForPositions = kRing ? Ring::kBytes + skew_bytes_of(Block::kWarps, kSkewColumns<H>)
                                       : kProducts
                                           ? 2 * std::max(QueryDistances::kBytes, KeyDistances::kBytes)
                                           : 0;
  static constexpr int kBytes = kShared + kForPositions;
  static_assert(kBytes <= kMostHopperBytes);
};

// ---- dq, and the rows' shares of dhead_scale

template <int H, bool SumsBias, Positions How, class Launch>
__global__ void __launch_bounds__(WgmmaBackwardTile<H, How>::Block::kThreads,
                                  WgmmaBackwardTile<H, How>::kBlocks) wgmma_queries_kernel(Launch launched) {
  using Tile = WgmmaBackwardTile<H, How>;
  using Block = typename Tile::Block;
  using Pieces = PieceOfRows<H, Block::kThreads>;
  constexpr int N = Tile::kOthers, kBlockRows = Block::kRows, kBiasWindow = Block::kBiasWindow;
  const AttentionArgs& args = launched.args.forward;
  bf16* const q = first_tile();
  bf16* const doutput = q + kBlockRows * H;
  bf16* const keys = doutput + kBlockRows * H;  // two tiles
  bf16* const values = keys + 2 * Tile::kOther;
  float* const bias = reinterpret_cast<float*>(values + 2 * Tile::kOther);  // for two tiles
  const typename Tile::Ring ring{
      reinterpret_cast<bf16*>(bias + 2 * kBiasWindow)};  // only with positions in tiles, as the next
  float* const part =
      skew_of_warp<kSkewColumns<H>>(reinterpret_cast<float*>(ring.rows + Tile::Ring::kBytes / 2));
  const auto distances = [bias](int number) {  // only with positions as products
    using Distances = typename Tile::QueryDistances;
    return Distances{reinterpret_cast<bf16*>(bias + 2 * kBiasWindow) + number % 2 * Distances::kNumbers};
  };

  const std::int64_t tiles = divide_up(args.queries, kBlockRows), item = blockIdx.x / tiles;
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * kBlockRows;
  const Head<bf16> head(args, item / args.heads, item % args.heads);
  const int width = static_cast<int>(args.head_size);
  const Walk<N> walk = walk_keys<N, kBlockRows>(head, first);

  const auto lowest = [&](int tile) {
    return first + head.offset - walk.row(tile) - (N - 1);
  };  // the lowest distance of a tile
  Pieces key_pieces, value_pieces;
  float bias_entry = 0;
  const auto start_tile = [&](int tile) {
    const int place = tile % 2 * Tile::kOther;
    start_swizzled<N>(
        key_pieces, [&] { return launched.keys(head); }, walk.row(tile), args.keys, width, keys + place);
    start_swizzled<N>(
        value_pieces, [&] { return launched.values(head); }, walk.row(tile), args.keys, width,
        values + place);
    bias_entry = read_bias<Block>(head, lowest(tile));
    if constexpr (Tile::kProducts)
      distances(tile).start(ScoreRows(launched.scores, head), static_cast<int>(first),
                            static_cast<int>(lowest(tile)));
  };
  const auto fill_chunk = [&](int chunk) {  // of positions
    if constexpr (Tile::kRing) ring.fill(args, chunk, lowest(0) + chunk * kChunkRows);
  };
  const auto finish_tile = [&](int tile) {  // the next one needs another chunk of positions
    write_bias<Block>(args, bias_entry, bias + tile % 2 * kBiasWindow);
    if (tile > 0) fill_chunk(-tile);
  };
  start_swizzled<H, kBlockRows, Block::kThreads>(launched.queries(head), first, args.queries, width, q);
  start_swizzled<H, kBlockRows, Block::kThreads>(launched.doutputs(head), first, args.queries, width,
                                                 doutput);
  start_tile(0);
  finish_tile(0);
#pragma unroll 1
  for (int chunk = 0; chunk <= Tile::kGroups; ++chunk) fill_chunk(chunk);

  const int own_rows = (Tile::kGroups > 1 ? warpgroup() * kGroupRows : 0) + warp() % 4 * 16;
  const std::int64_t own_query = first + own_rows;  // the warp's first
  const SwizzledRows<H, kBlockRows> own_q{q, own_rows}, own_doutput{doutput, own_rows};
  float log_sums[2], deltas[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    log_sums[half] = launched.log_sum(head, own_query + own_row() + 8 * half);
  make_deltas<H>(launched, head, own_query, deltas);
  float scores[N / 8][4], dweights[N / 8][4], dq[H / 8][4] = {}, shares[2] = {};
  Rounded<N> dscores;
  BiasTables<SumsBias, Block::kThreads> dbias(launched);
  if constexpr (Tile::kProducts) {
    const int own_first = Tile::kGroups == 1 ? 0 : min(walk.own_first, walk.tiles),
              own_end = Tile::kGroups == 1 ? walk.tiles : min(walk.own_end, walk.tiles);
    const bool any = own_first < own_end;
    clear_other_distances(ScoreRows(launched.dscores, head), static_cast<int>(own_query),
                          any ? static_cast<int>(lowest(own_end - 1)) + own_rows : 0,
                          any ? static_cast<int>(lowest(own_first)) + N + own_rows : 0);
  }

  for (int tile = 0; tile < walk.tiles; ++tile) {
    finish_copies();
    publish_shared();
    __syncthreads();  // keys, positions and values have arrived; the previous tile has been read
    if (tile + 1 < walk.tiles) start_tile(tile + 1);
    const auto finish_fetch = [&] {
      if (tile + 1 < walk.tiles) finish_tile(tile + 1);
    };
    if (Tile::kGroups == 1 || walk.needs(tile)) {
      const std::int64_t key = walk.row(tile);
      start_row_products<H>(own_q, keys + tile % 2 * Tile::kOther, scores);
      start_row_products<H>(own_doutput, values + tile % 2 * Tile::kOther, dweights);
      commit_products();
      const std::int64_t base = own_query + head.offset - key;  // distance of the warp's first pair
      const std::uint32_t seen =
          Limits(args.queries - own_query, args.keys - key, args.least - base, args.most - base)
              .template bits<N>();
      const std::uint32_t kept = kept_bits<N>(head, own_query, key);
      finish_fetch();
      const auto ready = [&] {
        wait_products<0>(scores);
        wait_products<0>(dweights);
      };
      if constexpr (Tile::kRing)
        add_query_positions<H, kSkewColumns<H>>(own_q, ring, -tile, own_rows / 16, part, scores, ready);
      else
        ready();
      if constexpr (Tile::kProducts) distances(tile).add(own_rows, static_cast<int>(lowest(tile)), scores);
      if (args.bias != nullptr) add_bias_window<N>(bias + tile % 2 * kBiasWindow + own_rows + N - 1, scores);
      score_gradients<N>(head, launched.args.dhead_scale != nullptr, seen, kept, log_sums, deltas, scores,
                         dweights, shares);
      dscores.set(dweights);
      start_row_mixes<H, N>(dscores, keys + tile % 2 * Tile::kOther, dq);
      commit_products();
      dbias.add(BlockDiagonals<N>(dweights), args, base);  // while the products are in flight
      bf16* const skewed = reinterpret_cast<bf16*>(part);
      if constexpr (Tile::kRing) write_skewed(dscores, skewed);
      if constexpr (Tile::kProducts)
        distances(tile).write(dscores, ScoreRows(launched.dscores, head), static_cast<int>(first), own_rows,
                              static_cast<int>(lowest(tile)));
      wait_products<0>(dq);
      if constexpr (Tile::kRing) add_position_mixes<H>(skewed, ring, -tile, own_rows / 16, dq);
    } else {
      finish_fetch();
    }
  }
  finish_copies();  // the first ones, when no key is visible
  store_query_gradients<H>(launched, head, own_query, dq, shares);
  dbias.store();
}

// ---- dk and dv

template <int H, Positions How, class Launch>
__global__ void __launch_bounds__(WgmmaBackwardTile<H, How>::Block::kThreads,
                                  WgmmaBackwardTile<H, How>::kBlocks) wgmma_keys_kernel(Launch launched) {
  using Tile = WgmmaBackwardTile<H, How>;
  using Block = typename Tile::Block;
  using Pieces = PieceOfRows<H, Block::kThreads>;
  constexpr int N = Tile::kOthers, kBlockRows = Block::kRows, kBiasWindow = Block::kBiasWindow;
  const AttentionArgs& args = launched.args.forward;
  bf16* const keys = first_tile();
  bf16* const values = keys + kBlockRows * H;
  bf16* const queries = values + kBlockRows * H;  // two tiles
  bf16* const doutputs = queries + 2 * Tile::kOther;
  float* const statistics = reinterpret_cast<float*>(doutputs + 2 * Tile::kOther);  // [2][2][N]
  float* const bias = statistics + 4 * N;                                           // for two tiles
  const typename Tile::Ring ring{
      reinterpret_cast<bf16*>(bias + 2 * kBiasWindow)};  // only with positions in tiles, as the next
  float* const part =
      skew_of_warp<kSkewColumns<H>>(reinterpret_cast<float*>(ring.rows + Tile::Ring::kBytes / 2));
  const auto distances = [bias](int number) {  // only with positions as products
    using Distances = typename Tile::KeyDistances;
    return Distances{reinterpret_cast<bf16*>(bias + 2 * kBiasWindow) + number % 2 * Distances::kNumbers};
  };

  const std::int64_t tiles = divide_up(args.keys, kBlockRows), item = blockIdx.x / tiles;
  const std::int64_t key = blockIdx.x % tiles * kBlockRows;
  if (!wants_keys(launched.args, key, min(key + kBlockRows, args.keys) - 1)) return;
  const std::int64_t batch = item / args.kv_heads, kv_head = item % args.kv_heads;
  const int width = static_cast<int>(args.head_size), group = static_cast<int>(args.heads / args.kv_heads);
  const Head<bf16> first_head(args, batch, kv_head * group);
  const Walk<N> walk = walk_queries<N, kBlockRows>(first_head, key);  // for each head of the group
  struct Step {
    int number, tile, head;  // the number, of all; the tile of the head; the head of the group
  };
  const int steps = group * walk.tiles;
  const auto after = [&](const Step& step) {
    const bool last = step.tile + 1 == walk.tiles;
    return Step{step.number + 1, last ? 0 : step.tile + 1, step.head + (last ? 1 : 0)};
  };
  const auto head_of = [&](const Step& step) {
    return Head<bf16>(args, batch, kv_head * group + step.head, kv_head);
  };
  Pieces query_pieces, doutput_pieces;  // of one head
  const auto lowest = [&](int tile) {   // the lowest distance of a tile
    return walk.row(tile) + first_head.offset - key - (kBlockRows - 1);
  };
  // A thread's statistic of a query: log_sum or delta. It is read and written as an entry of the bias is.
  static_assert(2 * N <= Block::kThreads);
  float statistic = 0, bias_entry = 0;
  const auto start_queries = [&](const Step& step) {
    const Head<bf16> head = head_of(step);
    const std::int64_t query = walk.row(step.tile);
    const int place = step.number % 2 * Tile::kOther;
    if (step.tile == 0) query_pieces = doutput_pieces = {};
    start_swizzled<N>(
        query_pieces, [&] { return launched.queries(head); }, query, args.queries, width, queries + place);
    start_swizzled<N>(
        doutput_pieces, [&] { return launched.doutputs(head); }, query, args.queries, width,
        doutputs + place);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < N)
      statistic = launched.log_sum(head, query + thread);
    else if (thread < 2 * N)
      statistic = scaled_delta(head.factor, launched.delta(head, query + thread - N));
    bias_entry = read_bias<Block>(head, lowest(step.tile));
    if constexpr (Tile::kProducts)
      distances(step.number)
          .start(ScoreRows(launched.scores, head), static_cast<int>(query),
                 static_cast<int>(lowest(step.tile)));
  };
  const auto fill_chunk = [&](int chunk) {  // of positions
    if constexpr (Tile::kRing) ring.fill(args, chunk, lowest(0) + chunk * kChunkRows);
  };
  const auto finish_queries = [&](const Step& step) {
    if (threadIdx.x < 2 * N) statistics[step.number % 2 * 2 * N + static_cast<int>(threadIdx.x)] = statistic;
    write_bias<Block>(args, bias_entry, bias + step.number % 2 * kBiasWindow);
    if (step.tile > 0) fill_chunk(step.tile + Tile::kGroups);
  };
  const auto fill_ring = [&] {  // for the first tile of a head
#pragma unroll 1
    for (int chunk = 0; chunk <= Tile::kGroups; ++chunk) fill_chunk(chunk);
  };
  start_swizzled<H, kBlockRows, Block::kThreads>(launched.keys(first_head), key, args.keys, width, keys);
  start_swizzled<H, kBlockRows, Block::kThreads>(launched.values(first_head), key, args.keys, width, values);
  if (steps > 0) {
    start_queries({});
    finish_queries({});
    fill_ring();
  }

  const int own_rows = (Tile::kGroups > 1 ? warpgroup() * kGroupRows : 0) + warp() % 4 * 16;
  const std::int64_t own_key = key + own_rows;  // the warp's first
  const SwizzledRows<H, kBlockRows> own_keys{keys, own_rows}, own_values{values, own_rows};
  float scores[N / 8][4], dweights[N / 8][4], dk[H / 8][4] = {}, dv[H / 8][4] = {};
  Rounded<N> weights, dscores;

  Step next = {};
  for (Step step = next; step.number < steps; step = next) {
    next = after(step);
    finish_copies();
    publish_shared();
    // Queries, positions, gradients and statistics have arrived; the previous ones have been read.
    __syncthreads();
    const bool fetch = next.number < steps;
    if (fetch) start_queries(next);
    if (Tile::kGroups == 1 || walk.needs(step.tile)) {
      const Head<bf16> head = head_of(step);
      const std::int64_t query = walk.row(step.tile);
      const int turn = step.number % 2;
      bf16 *const q = queries + turn * Tile::kOther, *const doutput = doutputs + turn * Tile::kOther;
      const float* const log_sums = statistics + turn * 2 * N;
      const std::int64_t base = query + head.offset - own_key;  // distance of the warp's first pair
      // Before the products: their accumulators leave no registers for Philox.
      const std::uint32_t seen =
          Limits(args.keys - own_key, args.queries - query, base - args.most, base - args.least)
              .template bits<N>();
      const std::uint32_t kept = kept_bits<N, true>(head, query, own_key);
      start_row_products<H, N>(own_keys, q, scores);
      start_row_products<H, N>(own_values, doutput, dweights);
      commit_products();
      if (fetch) finish_queries(next);
      const auto ready = [&] {
        wait_products<0>(scores);
        wait_products<0>(dweights);
      };
      if constexpr (Tile::kRing)
        add_key_positions<H, N>(q, ring, step.tile, (kBlockRows - 16 - own_rows) / 16, part, scores, ready);
      else
        ready();
      if constexpr (Tile::kProducts)
        distances(step.number).add_transposed(own_rows, static_cast<int>(lowest(step.tile)), scores);
      if (args.bias != nullptr)
        add_bias_window<N, true>(bias + turn * kBiasWindow + kBlockRows - 1 - own_rows, scores);
      weights_and_gradients<N>(head, head.factor, seen, kept, log_sums, log_sums + N, scores, dweights);
      weights.set(scores);
      dscores.set(dweights);
      start_row_mixes<H, N>(weights, doutput, dv);
      start_row_mixes<H, N>(dscores, q, dk);
      commit_products();
      wait_products<0>(dv);
      wait_products<0>(dk);
    } else if (fetch) {
      finish_queries(next);
    }
    if (Tile::kRing && fetch && next.tile == 0) {
      __syncthreads();  // the positions have been read
      fill_ring();
    }
  }
  finish_copies();  // keys and values, when no query sees them
  store_key_gradients<bf16, H>(launched, batch, kv_head, own_key, dk, dv);
}

}  // namespace

bool wgmma_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                   const PositionProducts* products) {
  const AttentionArgs& forward = args.forward;
  bool sums_bias = false;
  for_tensor_size(forward.head_size, [&](auto size) {
    constexpr int H = decltype(size)::value;
    const auto launch = [&](auto positions) {
      constexpr Positions kHow = decltype(positions)::value;
      using Tile = WgmmaBackwardTile<H, kHow>;
      sums_bias = launch_queries(
          "attention_dq with wgmma", wgmma_queries_kernel<H, false, kHow, TensorBackward>,
          wgmma_queries_kernel<H, true, kHow, TensorBackward>, args, partials, Tile::Block::kRows,
          Tile::Block::kThreads, Tile::kBytes, Tile::kGroups == 1 ? kMostHopperBytes / 2 : kMostHopperBytes);
    };
    if (products != nullptr) {
      using Launch = WithScores<TensorBackward>;
      using Tile = WgmmaBackwardTile<H, Positions::products>;
      const Tensor dscores = products->gradients();
      launch_shared("attention_dq with wgmma", wgmma_queries_kernel<H, false, Positions::products, Launch>,
                    forward.batch * forward.heads * divide_up(forward.queries, Tile::Block::kRows),
                    Tile::Block::kThreads, Tile::kBytes,
                    Launch{tensor_backward(args, partials),
                           products->scores(),
                           {dscores.mutable_data<bf16>(), products->scores().row}});
      products->add_gradients(args, dscores);
    } else if (forward.positions != nullptr) {
      launch(InTiles{});
    } else {
      launch(NoPositions{});
    }
  });
  return sums_bias;
}

void wgmma_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                const PositionProducts* products) {
  const AttentionArgs& forward = args.forward;
  for_tensor_size(forward.head_size, [&](auto size) {
    constexpr int H = decltype(size)::value;
    const auto launch = [&](auto positions, const auto& launched) {
      constexpr Positions kHow = decltype(positions)::value;
      using Tile = WgmmaBackwardTile<H, kHow>;
      launch_shared("attention_dk_dv with wgmma",
                    wgmma_keys_kernel<H, kHow, std::decay_t<decltype(launched)>>,
                    forward.batch * forward.kv_heads * divide_up(forward.keys, Tile::Block::kRows),
                    Tile::Block::kThreads, Tile::kBytes, launched);
    };
    const TensorBackward launched = tensor_backward(args, partials);
    if (products != nullptr)
      launch(AsProducts{}, WithScores<TensorBackward>{launched, products->scores(), {}});
    else if (forward.positions != nullptr)
      launch(InTiles{}, launched);
    else
      launch(NoPositions{}, launched);
  });
}

}  // namespace eddy::cuda
