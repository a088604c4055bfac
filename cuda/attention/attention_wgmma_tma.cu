// Blocked attention in bf16 with wgmma, forward, for heads of 80 to 128 numbers and without positions: as
// cuda/attention/attention_wgmma_forward.cu, with the same products and sums in the same order, so with the same bits.
// What differs is who loads, and when.
//
// Mapping: a block stays on its multiprocessor and takes one item after another, 128 queries of a head of a sequence.
// Two warpgroups multiply, 64 queries each, and do not wait for each other. A ninth warp loads: one thread of it names
// a tile, and the GPU's copy unit (TMA) computes the addresses, swizzles and fills with zeros
// (cuda/core/bulk_copy.cuh). It runs up to four tiles ahead of the products, also into the next item, whose queries are
// fetched as soon as the warpgroups have this one's in registers: while results of an item are written, the tiles of
// the next arrive.
//
// Each tile of keys and of values has two barriers: `full` ends a phase when its bytes are there, `empty` when each of
// the 8 warps has read it. Keys bring the bias of their tile, which the loading warp writes.
//
//   loading warp     wait for empty; announce the bytes; start two copies of 64 columns
//   warpgroups       exponentials of tile j         P V of tile j - 1 is in flight
//                    wait for P V                   keys j and values j - 1 are read: arrive at their empty
//                    wait for full                  of keys j + 1 and values j
//                    start products                 scores of tile j + 1, then P V of tile j
//                    wait for the scores
//
// Keys in two tensors (AttentionArgs::past) have a map each. A tile with rows of both is written by the loading warp's
// own stores: one of about ten where a band reaches over the border.
//
// Why boxes of a tensor and not plain bulk copies: swizzled rows of a tile lie in pieces of 16 to 128 bytes, 688 to a
// tile of 64 x 128 numbers, where boxes are two. Without a swizzle the layouts of wgmma have 1,024 pieces of 16 bytes.
//
// Order of items: blocks take them by turns. Within as many heads as have keys and values of kTogetherBytes, the last
// queries of all heads come first, since they see most in a causal band; so blocks end together, and what they share
// stays in the second-level cache. No result depends on it.
//
// Shared memory: q, 32,768; four tiles of keys and of values, 131,072; the bias of four tiles, 3,072; barriers, 144;
// 1,024 for alignment: 168,080 bytes, one block to a multiprocessor. Registers: 224 to a thread that multiplies, 56 to
// one that loads, nothing spilled (nvcc 13.0); 168 to all at the launch, so the loading warp has three idle ones beside
// it, which give theirs back.
//
// Work and bytes moved: those of attention_wgmma_forward.cu.
#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/attention_wgmma.cuh"
#include "cuda/core/bulk_copy.cuh"

namespace eddy::cuda {
namespace {

constexpr int kTmaHead = 128, kStages = 4;
constexpr std::int64_t kTogetherBytes = std::int64_t{16} << 20;

struct TmaForward {
  TensorMap q, keys, values, past_keys, past_values;  // of the past only if there is one
  AttentionArgs args;
  int items, together;  // together: heads of sequences whose items are neighbours
};

struct TmaTiles {
  static constexpr int kRows = Block<2>::kRows, kWarps = Block<2>::kWarps, kThreads = 32 * kWarps + 128;
  // Registers of a thread at the launch, as many as all have then, and of one that multiplies and one that loads: what
  // these take, those must give back, or they wait for ever.
  static constexpr int kAtLaunch = 65536 / kThreads / 8 * 8, kOfWeighing = 224, kOfLoading = 56;
  static_assert(32 * kWarps * kOfWeighing + 128 * kOfLoading <= kThreads * kAtLaunch);
  static constexpr int kQueries = kRows * kTmaHead, kOther = kOtherRows * kTmaHead;  // numbers
  static constexpr int kWindow = Block<2>::kBiasWindow;
  static constexpr int kBarriers = 2 + 4 * kStages;
  static constexpr int kBytes = kTileAlignment + 2 * kQueries + 4 * kStages * kOther + 4 * kStages * kWindow +
                                static_cast<int>(sizeof(PhaseBarrier)) * kBarriers;
  static_assert(kBytes <= kMostHopperBytes);

  bf16 *q, *all_keys, *all_values;
  float* windows;
  PhaseBarrier *q_full, *q_empty;

  __device__ TmaTiles()
      : q(first_tile()),
        all_keys(q + kQueries),
        all_values(all_keys + kStages * kOther),
        windows(reinterpret_cast<float*>(all_values + kStages * kOther)),
        q_full(reinterpret_cast<PhaseBarrier*>(windows + kStages * kWindow)),
        q_empty(q_full + 1) {}
  // Of the tile number `tile` that this block loads, over all its items.
  __device__ bf16* keys(int tile) const { return all_keys + tile % kStages * kOther; }
  __device__ bf16* values(int tile) const { return all_values + tile % kStages * kOther; }
  __device__ float* bias(int tile) const { return windows + tile % kStages * kWindow; }
  __device__ PhaseBarrier* keys_full(int tile) const { return q_full + 2 + tile % kStages; }
  __device__ PhaseBarrier* keys_empty(int tile) const { return keys_full(tile) + kStages; }
  __device__ PhaseBarrier* values_full(int tile) const { return keys_full(tile) + 2 * kStages; }
  __device__ PhaseBarrier* values_empty(int tile) const { return keys_full(tile) + 3 * kStages; }
  // The parity of the phase of a tile's `full`; its `empty` of the tile before it in this place has the other one.
  __device__ static int parity(int tile) { return tile / kStages & 1; }

  // By one thread.
  __device__ void init() const {
    init_barrier(q_full, 1);
    init_barrier(q_empty, kWarps);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(keys_full(stage), 1);
      init_barrier(values_full(stage), 1);
      init_barrier(keys_empty(stage), kWarps);
      init_barrier(values_empty(stage), kWarps);
    }
    publish_barriers();
  }
};

// An item: queries first .. first + 127 of a head of a sequence.
struct TmaItem {
  int pair;  // batch * heads + head
  std::int64_t first;

  __device__ TmaItem(const TmaForward& launched, int number) {
    const int tiles = static_cast<int>(divide_up(launched.args.queries, TmaTiles::kRows)),
              pairs = static_cast<int>(launched.args.batch * launched.args.heads),
              before = number / (launched.together * tiles) * launched.together,
              members = min(launched.together, pairs - before), own = number - before * tiles;
    pair = before + own % members;
    first = std::int64_t{tiles - 1 - own / members} * TmaTiles::kRows;
  }
  __device__ Head<bf16> head(const AttentionArgs& args) const {
    const int heads = static_cast<int>(args.heads);
    return {args, pair / heads, pair % heads};
  }
};

// ---- the loading warp

// Starts the copies of Count rows by one thread, which announces their bytes.
template <int Count>
__device__ void start_boxes(bf16* to, const TensorMap& map, int head, int row, int batch,
                            PhaseBarrier* full) {
  arrive_expecting(full, swizzled_tile_bytes(Count, kTmaHead));
#pragma unroll
  for (int column = 0; column < kTmaHead; column += 64)
    start_box_copy(to + column * Count, &map, {column, head, row, batch}, full);
}

// Fills a tile with keys or values from `first` on. What the lanes stored before it belongs to the tile.
__device__ inline void fill_tile(bf16* to, const Head<bf16>& head, const KeyRows<const bf16>& rows,
                                 const TensorMap& own, const TensorMap& past, int first, PhaseBarrier* full) {
  const AttentionArgs& args = head.args;
  const int border = static_cast<int>(args.past);
  const bool before = first + kOtherRows <= border;
  if (!before && first < border) {  // rows of both
    struct alignas(16) Piece {
      std::uint32_t at[4];
    };
    constexpr int kPieces = kTmaHead / 8;
    for (int i = lane(); i < kOtherRows * kPieces; i += 32) {
      const int row = i / kPieces, piece = i % kPieces;
      const bool there = first + row < args.keys && 8 * piece < args.head_size;
      *reinterpret_cast<Piece*>(piece_of<kTmaHead, kOtherRows>(to, row, piece)) =
          there ? *reinterpret_cast<const Piece*>(rows.at(first + row) + 8 * piece) : Piece{};
    }
    publish_shared();
    __syncwarp();
    if (lane() == 0) arrive(full);
    return;
  }
  __syncwarp();
  if (lane() == 0)
    start_boxes<kOtherRows>(to, before ? past : own, static_cast<int>(head.kv_head),
                            before ? first : first - border, static_cast<int>(head.batch), full);
}

// A lane's entries of the bias of a tile, whose lowest distance is given; read one tile ahead of where they are stored.
struct BiasEntries {
  static constexpr int kOfLane = TmaTiles::kWindow / 32;
  float at[kOfLane];

  __device__ void read(const Head<bf16>& head, std::int64_t lowest) {
    const AttentionArgs& args = head.args;
    if (args.bias == nullptr) return;
    const float* const bias = static_cast<const float*>(args.bias) + head.head * args.bias_stride;
    const int last = static_cast<int>(args.distances - 1), first = static_cast<int>(lowest) + lane();
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) at[i] = bias[max(0, min(first + 32 * i, last))];
  }
  __device__ void write(const AttentionArgs& args, float* to) const {
    if (args.bias == nullptr) return;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) to[lane() + 32 * i] = at[i];
  }
};

__device__ inline void load_items(const TmaForward& launched, const TmaTiles& tiles) {
  const AttentionArgs& args = launched.args;
  int loaded = 0, items = 0;
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < launched.items;
       number += static_cast<int>(gridDim.x), ++items) {
    const TmaItem item(launched, number);
    const Head<bf16> head = item.head(args);
    const Walk<kOtherRows> walk = walk_keys<kOtherRows, TmaTiles::kRows>(head, item.first);
    const auto lowest = [&](int tile) {
      return item.first + head.offset - walk.row(tile) - (kOtherRows - 1);
    };
    const KeyRows<const bf16> keys = head.keys(), values = head.values();
    BiasEntries bias;
    bias.read(head, lowest(0));
    wait_phase(tiles.q_empty, items & 1 ^ 1);
    if (lane() == 0)
      start_boxes<TmaTiles::kRows>(tiles.q, launched.q, static_cast<int>(head.head),
                                   static_cast<int>(item.first), static_cast<int>(head.batch), tiles.q_full);
#pragma unroll 1
    for (int tile = 0; tile < walk.tiles; ++tile, ++loaded) {
      const int first = static_cast<int>(walk.row(tile)), empty = TmaTiles::parity(loaded) ^ 1;
      wait_phase(tiles.keys_empty(loaded), empty);
      bias.write(args, tiles.bias(loaded));
      fill_tile(tiles.keys(loaded), head, keys, launched.keys, launched.past_keys, first,
                tiles.keys_full(loaded));
      bias.read(head, lowest(tile + 1));
      wait_phase(tiles.values_empty(loaded), empty);
      fill_tile(tiles.values(loaded), head, values, launched.values, launched.past_values, first,
                tiles.values_full(loaded));
    }
  }
}

// ---- the warpgroups

// Says that this warp has read what these barriers stand for.
template <class... Barriers>
__device__ void arrive_by_warp(Barriers*... barriers) {
  __syncwarp();
  if (lane() == 0) (arrive(barriers), ...);
}

__device__ inline void weigh_items(const TmaForward& launched, const TmaTiles& tiles) {
  constexpr int H = kTmaHead, N = kOtherRows;
  const AttentionArgs& args = launched.args;
  int used = 0, items = 0;  // tiles and items before
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < launched.items;
       number += static_cast<int>(gridDim.x), ++items) {
    const TmaItem item(launched, number);
    const Head<bf16> head = item.head(args);
    const Walk<N> walk = walk_keys<N, TmaTiles::kRows>(head, item.first);
    const float factor = head.factor * kLog2OfE;              // scores in units of log 2
    const std::int64_t own_query = item.first + warp() * 16;  // the warp's first
    wait_phase(tiles.q_full, items & 1);
    RegisterRows<H> left(
        SwizzledRows<H, TmaTiles::kRows>{tiles.q, warpgroup() * kGroupRows + warp() % 4 * 16});
    arrive_by_warp(tiles.q_empty);

    float scores[N / 8][4], mixed[H / 8][4] = {};
    Rounded<N> weights;
    RunningSoftmax softmax;
    const auto wait_for_keys = [&](int tile) {
      wait_phase(tiles.keys_full(used + tile), TmaTiles::parity(used + tile));
    };
    const auto wait_for_values = [&](int tile) {
      wait_phase(tiles.values_full(used + tile), TmaTiles::parity(used + tile));
    };
    const auto pass = [&](int tile) {  // a tile that only the other warpgroup sees
      wait_for_keys(tile);
      wait_for_values(tile);
      arrive_by_warp(tiles.keys_empty(used + tile), tiles.values_empty(used + tile));
    };
    const int own_first = min(walk.own_first, walk.tiles), own_end = min(walk.own_end, walk.tiles);
    int tile = 0;
#pragma unroll 1
    for (; tile < own_first; ++tile) pass(tile);
    if (tile < own_end) {
      wait_for_keys(tile);
      start_row_products<H>(left, tiles.keys(used + tile), scores);
      commit_products();
      wait_products<0>(scores);
#pragma unroll 1
      for (; tile < own_end; ++tile) {
        const std::int64_t key = walk.row(tile);
        float correction[2];
        bool rises = false;
        if (args.head_size > 0) {  // always true, see the head of attention_wgmma_forward.cu
          const std::int64_t base = own_query + head.offset - key;  // distance of the warp's first pair
          if (args.bias != nullptr) add_bias_window<N>(tiles.bias(used + tile) + warp() * 16 + N - 1, scores);
          const std::uint32_t seen =
              Limits(16, args.keys - key, args.least - base, args.most - base).template bits<N>();
          const std::uint32_t kept = kept_bits<N>(head, own_query, key);
          rises = softmax.weigh<N>(scores, seen, kept, factor, correction);
        }
        wait_products<0>(mixed);
        hold_registers(weights.parts);  // those of the previous tile were in flight
        // After the last tile the scores are those of its keys once more, which nobody reads: a branch around products
        // would make all waits wait for all of them.
        const bool more = tile + 1 < own_end;
        const int next = more ? tile + 1 : tile;
        if (more) {
          if (tile > own_first) arrive_by_warp(tiles.values_empty(used + tile - 1));
          arrive_by_warp(tiles.keys_empty(used + tile));
        }
        weights.set(scores);
        if (rises) scale_rows(mixed, correction);
        wait_for_keys(next);
        wait_for_values(tile);
        start_row_products<H>(left, tiles.keys(used + next), scores);
        commit_products();
        start_row_mixes<H, N>(weights, tiles.values(used + tile), mixed);
        commit_products();
        wait_products<1>(scores);
      }
      wait_products<0>(mixed);
      hold_registers(weights.parts);
      if (tile - 1 > own_first) arrive_by_warp(tiles.values_empty(used + tile - 2));
      arrive_by_warp(tiles.keys_empty(used + tile - 1), tiles.values_empty(used + tile - 1));
    }
#pragma unroll 1
    for (; tile < walk.tiles; ++tile) pass(tile);
    used += walk.tiles;
    softmax.store<H>(head, own_query, mixed);
  }
}

__global__ void __launch_bounds__(TmaTiles::kThreads, 1)
    wgmma_tma_forward_kernel(const __grid_constant__ TmaForward launched) {
  const TmaTiles tiles;
  if (threadIdx.x == 0) tiles.init();
  __syncthreads();
  if (warpgroup() == TmaTiles::kWarps / 4) {
    give_registers_back<TmaTiles::kOfLoading>();
    if (__shfl_sync(0xffffffffu, warp(), 0) == TmaTiles::kWarps) load_items(launched, tiles);
  } else {
    take_registers<TmaTiles::kOfWeighing>();
    weigh_items(launched, tiles);
  }
}

// The map of rows of a head: [size, heads, rows, batch].
std::optional<TensorMap> map_of_rows(const void* start, const AttentionStrides& strides, std::int64_t size,
                                     std::int64_t heads, std::int64_t rows, std::int64_t batch, int at_once) {
  return map_of(
      {start, {size, heads, rows, batch}, {strides.head, strides.time, strides.batch}, {64, 1, at_once, 1}});
}

}  // namespace

bool wgmma_tma_forward(const AttentionArgs& args, int most_blocks) {
  const std::int64_t own = args.keys - args.past;
  const auto map_of_keys = [&](const void* data, const AttentionStrides& strides, std::int64_t before,
                               std::int64_t rows) {
    const bf16* const start = static_cast<const bf16*>(data) + before * strides.time;
    return map_of_rows(start, strides, args.head_size, args.kv_heads, rows, args.batch, kOtherRows);
  };
  const auto q = map_of_rows(args.q, args.q_strides, args.head_size, args.heads, args.queries, args.batch,
                             TmaTiles::kRows);
  auto keys = map_of_keys(args.k, args.k_strides, args.past, own);
  auto values = map_of_keys(args.v, args.v_strides, args.past, own);
  auto past_keys = keys, past_values = values;
  if (args.past > 0) {
    past_keys = map_of_keys(args.past_k, args.past_k_strides, 0, args.past);
    past_values = map_of_keys(args.past_v, args.past_v_strides, 0, args.past);
    if (own == 0) keys = past_keys, values = past_values;
  }
  const std::int64_t pairs = args.batch * args.heads,
                     items = pairs * divide_up(args.queries, TmaTiles::kRows);
  if (!q || !keys || !values || !past_keys || !past_values || items > kMostBlocks) return false;
  const std::int64_t bytes_of_pair = std::max<std::int64_t>(1, 4 * args.keys * args.head_size);
  const std::int64_t together = std::clamp<std::int64_t>(kTogetherBytes / bytes_of_pair, 1, pairs);
  launch_shared("attention with wgmma and TMA", wgmma_tma_forward_kernel,
                std::min<std::int64_t>(items, most_blocks), TmaTiles::kThreads, TmaTiles::kBytes,
                {*q, *keys, *values, *past_keys, *past_values, args, static_cast<int>(items),
                 static_cast<int>(together)});
  return true;
}

}  // namespace eddy::cuda
