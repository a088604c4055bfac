// Blocked attention in bf16 with wgmma, backward, for sm_90a: dq, dk and dv by one kernel. The scores and the
// exponentials of a pair are computed once, where cuda/attention/attention_wgmma_backward.cu computes them for dq and
// again for dk and dv. The formulas are in cuda/attention/attention_backward.cu, layouts in
// cuda/attention/attention_wgmma.cuh, the order of the instructions in cuda/core/warpgroup_matrix.cuh.
//
// Mapping:
//   fused_start_kernel     a warp for each 16 queries: the deltas; and the counters become 0
//   wgmma_fused_kernel     as many blocks as the GPU holds, of two warpgroups. An item is a tile of 128 keys of a key
//                          head, 64 to a warpgroup, and walks over the tiles of queries that see them, and over the
//                          heads that share it. Of a head the last keys come first. Block b of n has items b, b + n,
//                          and so on
//   fused_finish_kernel    a warp for each 16 queries: dq from its f32 sums, and each row's share of dhead_scale
//
// A step of the walk, of 64 queries at H = 128 and of 2 x 64 up to H = 64:
//
//   barrier                            q and do of the step have arrived; the step before has been read
//   start copies                       of the next step
//   S = K Q^T, dP = V dO^T             keys in rows; meanwhile one thread passes on the turn of the step before,
//                                      and waits for the turn of this one
//   P, dS                              rounded: left operands in registers, and dS in shared memory as well
//   dV += P dO, dK += dS Q             in flight from here on
//   barrier                            both warpgroups' dS are there, and the turn has come
//   dQ = dS^T K                        over all 128 keys, which read dS across; at H = 128 a warpgroup has 64 of the
//                                      columns of dQ, up to H = 64 the 64 queries of one half
//   dq += dQ                           in global memory, in f32
//
// dq is the same to the bit on every run: a tile of queries has a counter, and its tiles of keys add to it from the
// last to the first that it sees (cuda/core/turns.cuh). So an item waits for later keys of its own head alone, which
// are items with lower numbers. It cannot wait for ever: of all unfinished items take the one with the lowest number.
// It waits for none, and its block, which is resident as all are, has finished those that it had before. Nor does it
// wait long. A walk begins at the first query that sees its keys, so that the keys 128 further on reach a tile of
// queries 128 / Q steps sooner if both began at once; and they began no later.
//
// Where the gradient of the bias is wanted and a table for each warp fits, each warp sums it as the kernel for dq does
// (cuda/attention/attention_tensor_core_bias.cuh), keys in rows, in a table that runs from the largest distance down.
//
// dhead_scale is scale sum(ds r), and r = q . k + bias: so a row's share is q . dq without the factor of the scores,
// and the bias's part is the product of a table by distance with the bias. Where it is wanted the factor is applied to
// finished sums. Heads that share keys have different factors, so such calls have as many key heads as heads.
//
// Shared memory: two tiles of 128 keys, four of Q queries, dS, the statistics of 2 Q queries, the bias of two tiles,
// 1,024 for alignment; the gradient of the bias adds 32 bytes a distance. Registers of nvcc 13.0:
//   H     Q     bytes      registers    with the bias
//   32    128   87,056     226          234
//   64    128   136,208    250          255
//   128   64    151,056    255          255              of which 80 and 32 bytes are spilled
//
// Work: 10 H operations per visible pair, where two kernels have 14. Bytes moved: k, v, dk and dv once, q and do once
// for each tile of keys, and dq read and written in f32 for each: 12 H bytes for each query and tile of keys, nearly
// all in the second-level cache, against 4 H bytes in either of the two kernels; then 6 H bytes for each query once.
//
// To be measured: scores of the next step started before the sums of this one; the last turn writes dq itself.
#include <algorithm>
#include <numeric>

#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/attention_tensor_core_backward.cuh"
#include "cuda/attention/attention_tensor_core_bias.cuh"
#include "cuda/attention/attention_wgmma.cuh"
#include "cuda/core/resident_launch.cuh"
#include "cuda/core/turns.cuh"

namespace eddy::cuda {
namespace {

constexpr int kFusedWarps = kFusedBackwardWarps;

template <int H>
struct FusedTile {
  static constexpr int N = kOtherRows, kKeys = kFusedBackwardKeys;
  static constexpr int kQueries = H > 64 ? N : 2 * N, kParts = kQueries / N;
  static constexpr int kColumns = H > 64 ? H / 2 : H;  // of dQ, that a warpgroup has of 64 queries
  struct Block : eddy::cuda::Block<2> {
    static constexpr int kBiasWindow = kKeys + kQueries;
  };
  static constexpr int kOther = kQueries * H;  // numbers in a tile of queries
  static constexpr int kBytes = kTileAlignment + swizzled_tile_bytes(2 * kKeys + 4 * kQueries, H) +
                                swizzled_tile_bytes(kKeys, kQueries) +
                                4 * (4 * kQueries + 2 * Block::kBiasWindow + 4);
  static_assert(kBytes <= kMostHopperBytes);
};

struct FusedLaunch : TensorBackward {
  float* dq;           // [batch, heads, tiles of queries, warpgroups, kColumns / 8, threads, 4]
  unsigned* counters;  // of turns: [batch, heads, tiles of queries]
  float* bias_shares;  // [batch, heads, tiles of keys, warps]: sum(ds bias)
  int items;

  __device__ bool wants_shares() const { return args.dhead_scale != nullptr; }
};

// The last tile of keys that a tile of queries sees; -1 if it sees none.
template <int H>
__device__ int last_tile_of_keys(const AttentionArgs& args, int tile) {
  using Tile = FusedTile<H>;
  const int queries = static_cast<int>(args.queries), keys = static_cast<int>(args.keys),
            offset = keys - queries, first = tile * Tile::kQueries,
            last = min(first + Tile::kQueries, queries) - 1,
            begin = max(0, first + offset - static_cast<int>(args.most)),
            end = min(keys, last + offset - static_cast<int>(args.least) + 1);
  return begin < end ? (end - 1) / Tile::kKeys : -1;
}

// The queries begin .. end - 1 that see one of the keys first .. first + count - 1.
struct SeenFrom {
  int begin, end;
  __device__ SeenFrom(const AttentionArgs& args, int first, int count) {
    const int keys = static_cast<int>(args.keys), queries = static_cast<int>(args.queries),
              offset = keys - queries, last = min(first + count, keys) - 1;
    begin = max(0, first - offset + static_cast<int>(args.least));
    end = last < first ? 0 : min(queries, last - offset + static_cast<int>(args.most) + 1);
  }
  __device__ bool any() const { return begin < end; }
  __device__ bool meets(int from, int count) const { return any() && from < end && from + count > begin; }
};

// Where a thread has its numbers of dq: those of eight columns follow each other by 128 threads.
template <int H>
__device__ Four* sums_of_queries(const FusedLaunch& launched, std::int64_t head_tile, int group) {
  return reinterpret_cast<Four*>(launched.dq) + (head_tile * 2 + group) * (FusedTile<H>::kColumns / 8 * 128) +
         threadIdx.x % 128;
}

// Writes a warp's gradients of scores, rows `own_rows` .. + 15 and a part of 64 columns, to a tile.
template <int Columns>
__device__ void write_dscores(const Rounded<kOtherRows>& dscores, bf16* tile, int own_rows, int part) {
#pragma unroll
  for (int k = 0; k < kOtherRows / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bf16* const piece = piece_of<Columns, FusedTile<128>::kKeys>(tile, own_rows + own_row() + i % 2 * 8,
                                                                   8 * part + 2 * k + i / 2);
      *reinterpret_cast<std::uint32_t*>(piece + own_column()) = dscores.parts[k][i];
    }
}

// Writes the gradient of the bias of an item, the warps' tables added in order, and makes them zeros; and what the bias
// adds to the shares of dhead_scale, if they are wanted. Tables run from the largest distance down.
__device__ void store_bias_slice(const FusedLaunch& launched, std::int64_t item, const Head<bf16>& head,
                                 float factor) {
  const AttentionArgs& args = launched.args.forward;
  const int entries = launched.bias.entries;
  float* const tables = shared_memory() + launched.bias.place;
  float* const to = launched.bias.data + item * entries;
  const float* const bias = static_cast<const float*>(args.bias) + head.head * args.bias_stride + args.least;
  float share = 0;
  for (int i = static_cast<int>(threadIdx.x); i < entries; i += 32 * kFusedWarps) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kFusedWarps; ++w) {
      float& entry = tables[w * entries + entries - 1 - i];
      sum += entry;
      entry = 0;
    }
    to[i] = factor * sum;
    if (launched.wants_shares()) share = fmaf(sum, bias[i], share);
  }
  if (!launched.wants_shares()) return;
  share = Team<32>::reduce(share, Plus{});
  if (lane() == 0) launched.bias_shares[item * kFusedWarps + warp()] = share;
}

template <int H, bool SumsBias>
__global__ void __launch_bounds__(32 * kFusedWarps, 1) wgmma_fused_kernel(FusedLaunch launched) {
  using Tile = FusedTile<H>;
  using Block = typename Tile::Block;
  using Pieces = PieceOfRows<H, Block::kThreads>;
  constexpr int N = Tile::N, kKeys = Tile::kKeys, kQueries = Tile::kQueries, kBiasWindow = Block::kBiasWindow;
  const AttentionArgs& args = launched.args.forward;
  bf16* const keys = first_tile();
  bf16* const values = keys + kKeys * H;
  bf16* const queries = values + kKeys * H;  // two tiles
  bf16* const doutputs = queries + 2 * Tile::kOther;
  bf16* const all_dscores = doutputs + 2 * Tile::kOther;                               // [kKeys][kQueries]
  float* const statistics = reinterpret_cast<float*>(all_dscores + kKeys * kQueries);  // [2][2][kQueries]
  float* const bias = statistics + 4 * kQueries;                                       // for two tiles
  int& passing = *reinterpret_cast<int*>(bias + 2 * kBiasWindow);  // of the first thread alone
  float* const table = shared_memory() + launched.bias.place + warp() * launched.bias.entries;

  const bool first_thread = threadIdx.x == 0;
  const int width = static_cast<int>(args.head_size), group = static_cast<int>(args.heads / args.kv_heads),
            key_tiles = static_cast<int>(divide_up(args.keys, kKeys)),
            query_tiles = static_cast<int>(divide_up(args.queries, kQueries));
  const int own_group = warpgroup(), own_rows = own_group * kGroupRows + warp() % 4 * 16;
  if constexpr (SumsBias)
    for (int i = lane(); i < launched.bias.entries; i += 32) table[i] = 0;
  Rounded<N> weights, dscores;
  __syncthreads();

#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < launched.items;
       number += static_cast<int>(gridDim.x)) {
    const int item = number / key_tiles, key_tile = key_tiles - 1 - number % key_tiles,
              key = key_tile * kKeys;
    const int batch = item / static_cast<int>(args.kv_heads),
              kv_head = item % static_cast<int>(args.kv_heads),
              offset = static_cast<int>(args.keys - args.queries);
    const bool wanted = wants_keys(launched.args, key, min(key + kKeys, static_cast<int>(args.keys)) - 1);
    const SeenFrom seen_from(args, key, kKeys);
    const int first_tile_of_queries = seen_from.begin / kQueries,
              tiles = seen_from.any() ? (seen_from.end - 1) / kQueries + 1 - first_tile_of_queries : 0;
    struct Step {
      int number, tile, head;  // the number, of all; the tile of queries; the head of the group
    };
    const int steps = group * tiles;
    const auto after = [&](const Step& step) {
      const bool last = step.tile + 1 == first_tile_of_queries + tiles;
      return Step{step.number + 1, last ? first_tile_of_queries : step.tile + 1, step.head + (last ? 1 : 0)};
    };
    const auto head_of = [&](const Step& step) {
      return Head<bf16>(args, batch, kv_head * group + step.head, kv_head);
    };
    const auto head_tile = [&](const Step& step) {
      return (batch * static_cast<int>(args.heads) + kv_head * group + step.head) * query_tiles + step.tile;
    };
    const auto outer_of = [&](const Head<bf16>& head) {
      return launched.wants_shares() ? 1.0f : head.factor;
    };

    Pieces query_pieces, doutput_pieces;  // of one head
    float statistic = 0, bias_entry = 0;
    static_assert(2 * kQueries <= Block::kThreads);
    const auto start_queries = [&](const Step& step) {
      const Head<bf16> head = head_of(step);
      const int query = step.tile * kQueries, place = step.number % 2 * Tile::kOther;
      if (step.tile == first_tile_of_queries) query_pieces = doutput_pieces = {};
      start_swizzled<kQueries>(
          query_pieces, [&] { return launched.queries(head); }, query, args.queries, width, queries + place);
      start_swizzled<kQueries>(
          doutput_pieces, [&] { return launched.doutputs(head); }, query, args.queries, width,
          doutputs + place);
      const int thread = static_cast<int>(threadIdx.x);
      if (thread < kQueries) {
        statistic = launched.log_sum(head, query + thread);
      } else if (thread < 2 * kQueries) {
        const float delta = launched.delta(head, query + thread - kQueries);
        statistic = scaled_delta(outer_of(head), delta);
      }
      bias_entry = read_bias<Block>(head, query + offset - key - (kKeys - 1));
    };
    const auto finish_queries = [&](const Step& step) {
      if (threadIdx.x < 2 * kQueries)
        statistics[step.number % 2 * 2 * kQueries + static_cast<int>(threadIdx.x)] = statistic;
      write_bias<Block>(args, bias_entry, bias + step.number % 2 * kBiasWindow);
    };
    Step next{0, first_tile_of_queries, 0};
    if (steps > 0) {
      const Head<bf16> first_head = head_of(next);
      start_swizzled<H, kKeys, Block::kThreads>(launched.keys(first_head), key, args.keys, width, keys);
      start_swizzled<H, kKeys, Block::kThreads>(launched.values(first_head), key, args.keys, width, values);
      start_queries(next);
      finish_queries(next);
    }

    const int own_key = key + own_rows;  // the warp's first
    const SwizzledRows<H, kKeys> own_keys{keys, own_rows}, own_values{values, own_rows};
    float dk[H / 8][4] = {}, dv[H / 8][4] = {};
    // `passing` is the counter of the turn that is to be passed on; -1 for none.
    if (first_thread) passing = -1;
    const auto pass = [&] {
      if (first_thread && passing >= 0) TurnCounter(launched.counters + passing).pass();
    };

#pragma unroll 1
    for (Step step = next; step.number < steps; step = next) {
      next = after(step);
      finish_copies();
      publish_shared();
      // Queries, gradients and statistics have arrived; the previous ones have been read, and their sums written.
      __syncthreads();
      const bool fetch = next.number < steps;
      if (fetch) start_queries(next);
      const Head<bf16> head = head_of(step);
      const int place = step.number % 2;
      // Passes on the turn of the step before, and looks whether that of this one has come, while products run. The
      // wait is apart, where no product runs: a loop among products would make ptxas let each wait for the one before.
      bool has_come = true;
      const auto change_turns = [&] {
        if (first_thread) {
          const int own = head_tile(step), turn = last_tile_of_keys<H>(args, step.tile) - key_tile;
          pass();
          passing = own;
          if (turn > 0) has_come = TurnCounter(launched.counters + own).has_come(static_cast<unsigned>(turn));
        }
        if (fetch) finish_queries(next);
      };
      const auto await_turn = [&] {
        if (!has_come)
          TurnCounter(launched.counters + head_tile(step))
              .await(static_cast<unsigned>(last_tile_of_keys<H>(args, step.tile) - key_tile));
      };
      // Products of dk and dv that are in flight are finished as well. Each branch has its own code up to there: where
      // some have such products and others do not, ptxas would let each product wait for the one before.
      const auto add_to_dq = [&](auto in_flight) {
        publish_shared();
        __syncthreads();  // the gradients of the scores are there, and the turn has come
        float dq[Tile::kColumns / 8][4];
        const AcrossOperand<N, kKeys> left(all_dscores + (Tile::kParts > 1 ? own_group * kKeys * N : 0));
        const AcrossOperand<Tile::kColumns, kKeys> right(
            keys + (Tile::kParts > 1 ? 0 : own_group * kKeys * Tile::kColumns));
        order_registers(dq);
#pragma unroll
        for (int k = 0; k < kKeys / 16; ++k)
          multiply_warpgroup<Tile::kColumns, true>(dq, left.rows(k), right.rows(k), k > 0);
        commit_products();
        if constexpr (decltype(in_flight)::
                          value) {  // before the sums are read, which take their operands' registers
          wait_products<1>(dv);
          wait_products<1>(dk);
        }
        Four* const sums = sums_of_queries<H>(launched, head_tile(step), own_group);
        const bool first = last_tile_of_keys<H>(args, step.tile) == key_tile;  // the first turn
        Four before[Tile::kColumns / 8];
#pragma unroll
        for (int n = 0; n < Tile::kColumns / 8; ++n) before[n] = first ? Four{} : sums[n * 128];
        wait_products<0>(dq);
#pragma unroll
        for (int n = 0; n < Tile::kColumns / 8; ++n)
          sums[n * 128] = Four{{before[n].at[0] + dq[n][0], before[n].at[1] + dq[n][1],
                                before[n].at[2] + dq[n][2], before[n].at[3] + dq[n][3]}};
      };
#pragma unroll 1
      for (int part = 0; part < Tile::kParts; ++part) {
        const int query = step.tile * kQueries + part * N;
        if (!SeenFrom(args, key + own_group * kGroupRows, kGroupRows).meets(query, N)) {
          write_dscores<kQueries>(Rounded<N>{}, all_dscores, own_rows, part);
          if (part == 0) {
            change_turns();
            await_turn();
          }
          if constexpr (Tile::kParts == 1) add_to_dq(std::false_type{});
          continue;
        }
        const int at = place * Tile::kOther + part * N * H;
        bf16 *const q = queries + at, *const doutput = doutputs + at;
        const float* const log_sums = statistics + place * 2 * kQueries + part * N;
        const int base = query + offset - own_key;  // distance of the warp's first pair
        // Before the products: their accumulators leave no registers for Philox.
        const std::uint32_t seen =
            Limits(args.keys - own_key, args.queries - query, base - args.most, base - args.least)
                .template bits<N>();
        const std::uint32_t kept = kept_bits<N, true>(head, query, own_key);
        float scores[N / 8][4], dweights[N / 8][4];
        start_row_products<H, N>(own_keys, q, scores);
        start_row_products<H, N>(own_values, doutput, dweights);
        commit_products();
        if (part == 0) change_turns();
        wait_products<0>(scores);
        wait_products<0>(dweights);
        if (part == 0) await_turn();
        if (args.bias != nullptr)
          add_bias_window<N, true>(bias + place * kBiasWindow + part * N + kKeys - 1 - own_rows, scores);
        weights_and_gradients<N>(head, outer_of(head), seen, kept, log_sums, log_sums + kQueries, scores,
                                 dweights);
        weights.set(scores);
        dscores.set(dweights);
        write_dscores<kQueries>(dscores, all_dscores, own_rows, part);
        const auto sum_bias = [&] {
          if constexpr (SumsBias) {
            __syncwarp();
            BlockDiagonals<N>(dweights).add_to(table, launched.bias.entries,
                                               static_cast<int>(args.most) - base);
          }
        };
        if (wanted) {
          start_row_mixes<H, N>(weights, doutput, dv);
          start_row_mixes<H, N>(dscores, q, dk);
          commit_products();
          sum_bias();
          if constexpr (Tile::kParts == 1) {
            add_to_dq(std::true_type{});
          } else {  // the next part needs the left operands' registers
            wait_products<0>(dv);
            wait_products<0>(dk);
          }
        } else {
          sum_bias();
          if constexpr (Tile::kParts == 1) add_to_dq(std::false_type{});
        }
      }
      if constexpr (Tile::kParts > 1) add_to_dq(std::false_type{});
    }
    __syncthreads();  // the last sums have been written; all tiles have been read
    pass();
    const Head<bf16> only_head(args, batch, kv_head * group);  // where one of these is wanted
    const float factor = launched.wants_shares() ? only_head.factor : 1.0f;
    if constexpr (SumsBias) store_bias_slice(launched, item * key_tiles + key_tile, only_head, factor);
    if (wanted) {
      const float factors[2] = {factor, factor};
      scale_rows(dk, factors);
      store_key_gradients<bf16, H>(launched, batch, kv_head, own_key, dk, dv);
    }
  }
}

// ---- before and after

// A block of 4 warps for 64 queries of a head.
struct QueriesOfBlock {
  std::int64_t row;  // of [batch, heads]
  int part;          // so many times 64 queries on
  Head<bf16> head;

  __device__ explicit QueriesOfBlock(const AttentionArgs& args)
      : row(blockIdx.x / divide_up(args.queries, kOtherRows)),
        part(static_cast<int>(blockIdx.x % divide_up(args.queries, kOtherRows))),
        head(args, row / args.heads, row % args.heads) {}
  __device__ std::int64_t own_query() const { return part * kOtherRows + warp() * 16; }  // the warp's first
  template <int H>
  __device__ std::int64_t head_tile() const {
    return row * divide_up(head.args.queries, FusedTile<H>::kQueries) + part / FusedTile<H>::kParts;
  }
};

template <int H>
__global__ void __launch_bounds__(128) fused_start_kernel(FusedLaunch launched) {
  const QueriesOfBlock own(launched.args.forward);
  float deltas[2];
  make_deltas<H>(launched, own.head, own.own_query(), deltas);
  if (threadIdx.x != 0) return;
  if (own.part % FusedTile<H>::kParts == 0) launched.counters[own.head_tile<H>()] = 0;
}

template <int H>
__global__ void __launch_bounds__(128) fused_finish_kernel(FusedLaunch launched) {
  using Tile = FusedTile<H>;
  constexpr int kTiles = Tile::kColumns / 8;
  const AttentionArgs& args = launched.args.forward;
  const QueriesOfBlock own(args);
  const Head<bf16>& head = own.head;
  float dq[H / 8][4] = {}, shares[2] = {};
  if (last_tile_of_keys<H>(args, own.part / Tile::kParts) >= 0)
#pragma unroll
    for (int n = 0; n < H / 8; ++n) {
      const int group = Tile::kParts > 1 ? own.part % 2 : n / kTiles;
      const Four sums = sums_of_queries<H>(launched, own.head_tile<H>(), group)[n % kTiles * 128];
#pragma unroll
      for (int e = 0; e < 4; ++e) dq[n][e] = sums.at[e];
    }
  if (launched.wants_shares()) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t query = own.own_query() + own_row() + 8 * half;
      if (query >= args.queries) continue;
      const bf16* const q = head.queries() + query * args.q_strides.time + own_column();
#pragma unroll
      for (int n = 0; n < H / 8; ++n) {
        if (8 * n >= args.head_size) continue;
        shares[half] = fmaf(dq[n][2 * half], static_cast<float>(q[8 * n]), shares[half]);
        shares[half] = fmaf(dq[n][2 * half + 1], static_cast<float>(q[8 * n + 1]), shares[half]);
      }
    }
    if (launched.bias.data != nullptr && own.own_query() == 0) {
      const std::int64_t numbers = divide_up(args.keys, Tile::kKeys) * kFusedWarps;
      float share = 0;
      for (std::int64_t i = lane(); i < numbers; i += 32)
        share += launched.bias_shares[own.row * numbers + i];
      share = Team<32>::reduce(share, Plus{});
      if (lane() == 0) shares[0] += share;  // of the first query's row, as that of any
    }
    const float factors[2] = {head.factor, head.factor};
    scale_rows(dq, factors);
  }
  store_query_gradients<H>(launched, head, own.own_query(), dq, shares);
}

// Items are a head's tiles of keys, one head after the other, and block b of n has items b, b + n, ...: where n has no
// divisor in common with the tiles, a block has the tiles of a head in turn. The longest walks are several times the
// shortest.
int blocks_for(int most, int key_tiles) {
  int blocks = most;
  while (std::gcd(blocks, key_tiles) != 1) --blocks;
  return 2 * blocks > most ? blocks : most;
}

}  // namespace

int fused_backward_free_bytes(std::int64_t head_size) {
  int bytes = 0;
  for_tensor_size(head_size,
                  [&](auto size) { bytes = kMostHopperBytes - FusedTile<decltype(size)::value>::kBytes; });
  return bytes;
}

void wgmma_fused_backward(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                          bool sums_bias) {
  const AttentionArgs& forward = args.forward;
  const Device gpu{DeviceType::cuda, device_index()};
  for_tensor_size(forward.head_size, [&](auto size) {
    constexpr int H = decltype(size)::value;
    using Tile = FusedTile<H>;
    const std::int64_t rows = forward.batch * forward.heads,
                       tiles = rows * divide_up(forward.queries, Tile::kQueries),
                       items = forward.batch * forward.kv_heads * divide_up(forward.keys, Tile::kKeys),
                       blocks = rows * divide_up(forward.queries, kOtherRows);
    const int entries = sums_bias ? static_cast<int>(forward.most - forward.least + 1) : 0;
    const Tensor dq = Tensor::empty({tiles, Tile::kQueries * H}, Dtype::f32, gpu),
                 counters = Tensor::empty({tiles}, Dtype::f32, gpu),  // of 4 bytes
        slices = Tensor::empty({items, entries + kFusedWarps}, Dtype::f32, gpu);
    FusedLaunch launched{tensor_backward(args, partials), dq.mutable_data<float>(),
                         reinterpret_cast<unsigned*>(counters.mutable_data<float>()),
                         slices.mutable_data<float>() + items * entries, static_cast<int>(items)};
    if (sums_bias) launched.bias = {slices.mutable_data<float>(), entries, Tile::kBytes / 4};
    launch("attention_backward_start", fused_start_kernel<H>, blocks, 128, launched);
    const auto kernel = sums_bias ? wgmma_fused_kernel<H, true> : wgmma_fused_kernel<H, false>;
    const int bytes = Tile::kBytes + 4 * kFusedWarps * entries;
    const std::int64_t resident = most_resident_blocks(kernel, 32 * kFusedWarps, bytes);
    const int grid = blocks_for(static_cast<int>(std::min(items, resident)),
                                static_cast<int>(divide_up(forward.keys, Tile::kKeys)));
    start_resident("attention_backward with wgmma", kernel, grid, 32 * kFusedWarps, bytes, launched);
    launch("attention_backward_finish", fused_finish_kernel<H>, blocks, 128, launched);
    if (sums_bias)
      add_bias_slices(args, partials, slices.data<float>(), divide_up(forward.keys, Tile::kKeys));
  });
}

}  // namespace eddy::cuda
