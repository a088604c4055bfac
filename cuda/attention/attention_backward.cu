// Blocked attention, backward: the probabilities are computed again from the saved log_sum.
// source: T. Dao et al., FlashAttention, 2022.
//
// With P the probabilities, M the dropout factors, r the raw score and s its factor:
//
//   dp          = M (do . v)
//   ds          = P (dp - delta)              delta = do . o
//   dr          = s ds
//   dv          = (P M)^T do
//   dq          = dr (k + position)
//   dk          = dr^T q
//   dbias       = sum of dr                   over the pairs of a distance
//   dposition   = sum of dr q                 over the pairs of a distance
//   dhead_scale = scale sum(ds r)
//
// Where q and k became unit vectors here, the kernels for dq and dk also take their gradients through that
// (AttentionBackwardArgs).
//
// No float atomics: every sum belongs to one block, or is left in parts that a later kernel adds in order
// (ops/attention/attention_partials.h).
//
// Mapping (cuda/attention/attention.cuh says which thread has which pairs):
//   delta_kernel       a warp for each row of the output. (On tensor cores the kernels for dq make the
//                      deltas, if they run.)
//   queries_kernel     a block for each tile of queries of a head: dq, and each row's share of dhead_scale
//   keys_kernel        a block for each tile of keys of a key head, over the heads that share it: dk and dv;
//                      nothing for keys whose gradients are not wanted
//   tables_kernel      a block for each tile of distances, head and run of sequences: adds to the partial
//                      tables. (On tensor cores the kernels for dq sum the gradient of the bias if they can:
//                      cuda/attention/attention_tensor_core_bias.cuh.)
//   head_scale_kernel, head_scale_sums_kernel
//                      a block for each part of a head's rows, then a warp for each head: 4 bytes of each row
//                      once, the least. Up to 4096 rows of a head are one part and one launch; with 8 heads
//                      and 32 768 rows 64 blocks read 1 MiB.
//
// Shared memory: operand tiles as f32, weights, and with positions (in tables_kernel: always) a piece of the
// diagonal operands:
//   H       at most
//   64      78 KiB
//   128     92 KiB
//   256     84 KiB
//
// Bytes moved: q, k, v, o, do and their gradients once; also k and v once for each tile of queries, q and do
// once for each tile of keys, and all four once for each tile of distances when a table wants a gradient,
// mostly from the second-level cache. Scores are computed twice, with tables three times, where the least is
// once: sharing them would need a second pass over stored parts of dq.
#include <optional>

#include "cuda/attention/attention.cuh"
#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/position_products.h"
#include "cuda/core/numbers.cuh"
#include "cuda/core/team.cuh"
#include "ops/attention/attention_partials.h"

namespace eddy::cuda {
namespace {

struct BackwardLaunch {
  AttentionBackwardArgs args;
  AttentionPartials partials;

  __device__ float* scratch(std::int64_t place) const {
    return static_cast<float*>(args.forward.scratch) + place;
  }
};

template <class T>
__global__ void delta_kernel(BackwardLaunch launched) {
  using RowTeam = Team<32>;
  const AttentionArgs& args = launched.args.forward;
  const std::int64_t rows = args.batch * args.queries * args.heads;
  for (std::int64_t row = RowTeam::first_row(); row < rows; row += RowTeam::row_step()) {
    const std::int64_t head = row % args.heads, query = row / args.heads % args.queries;
    const std::int64_t batch = row / args.heads / args.queries;
    const AttentionStrides& strides = launched.args.doutput_strides;
    const T* const output = static_cast<const T*>(args.output) + row * args.head_size;
    const T* const doutput = static_cast<const T*>(launched.args.doutput) + batch * strides.batch +
                             query * strides.time + head * strides.head;
    float sum = 0;
    for (std::int64_t e = RowTeam::lane(); e < args.head_size; e += 32)
      sum += static_cast<float>(output[e]) * static_cast<float>(doutput[e]);
    sum = RowTeam::reduce(sum, Plus{});
    if (RowTeam::lane() == 0)
      launched.scratch(launched.partials.deltas)[(batch * args.heads + head) * args.queries + query] =
          sees_one_key(args, query) ? kNoGradient : sum;
  }
}

// A query's saved numbers of the forward pass.
struct Row {
  float log_sum, delta;
};
template <class T>
__device__ Row row_of_query(const BackwardLaunch& launched, const Head<T>& head, std::int64_t query) {
  if (query >= head.args.queries) return {};
  const std::int64_t at = head.row_at(query);
  return {static_cast<const float*>(head.args.log_sum)[at], launched.scratch(launched.partials.deltas)[at]};
}

// P M and ds of one visible pair, from its raw score and do . v.
struct Pair {
  float weight, ds;
};
template <class T>
__device__ Pair pair_of(const Head<T>& head, const Row& row, float score, float dweight, float keep) {
  const float p = expf(head.factor * score - row.log_sum);
  return {p * keep, row.delta == kNoGradient ? 0.0f : p * (keep * dweight - row.delta)};
}

// Calls body(done) over the window of `Window` diagonal rows of the table of positions from `lowest` on, with
// rows lowest + done .. lowest + done + Count - 1 in `piece`.
template <int H, int Count, int Window, class Body>
__device__ void for_positions(const AttentionArgs& args, std::int64_t lowest, float* piece, Body&& body) {
#pragma unroll 1
  for (int done = 0; done < Window; done += Count) {
    __syncthreads();
    load_rows<H, Count>(static_cast<const float*>(args.positions), args.positions_stride, lowest + done,
                        args.distances, args.head_size, piece);
    __syncthreads();
    body(done);
  }
}

// ---- dq, and the rows' shares of dhead_scale

template <int H>
struct QueriesTile {
  static constexpr int kR = H <= 64 ? 4 : H <= 128 ? 2 : 1, kC = H <= 128 ? 2 : 1;
  static constexpr int kRows = kSide * kR, kColumns = kSide * kC, kWindow = kRows + kColumns - 1;
  static constexpr int kPiece = tile_numbers(kColumns, H);
  static constexpr int kShared =
      4 * (2 * tile_numbers(kRows, H) + 2 * tile_numbers(kColumns, H) + tile_numbers(kRows, kColumns));
  static_assert(kShared + 4 * kPiece <= kMostSharedBytes);
};

template <class T, int H>
__global__ void __launch_bounds__(kThreads) queries_kernel(BackwardLaunch launched) {
  using Tile = QueriesTile<H>;
  constexpr int R = Tile::kR, C = Tile::kC, kRows = Tile::kRows, kColumns = Tile::kColumns;
  const AttentionArgs& args = launched.args.forward;
  float* const q = shared_memory();
  float* const doutput = q + tile_numbers(kRows, H);
  float* const keys = doutput + tile_numbers(kRows, H);
  float* const values = keys + tile_numbers(kColumns, H);
  float* const weights = values + tile_numbers(kColumns, H);
  float* const piece = weights + tile_numbers(kRows, kColumns);  // only with positions

  const std::int64_t tiles = divide_up(args.queries, kRows), item = blockIdx.x / tiles;
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * kRows;
  const std::int64_t last = min(first + kRows, args.queries) - 1;
  const Head<T> head(args, item / args.heads, item % args.heads);
  load_rows<H, kRows>(head.queries(), args.q_strides.time, first, args.queries, args.head_size, q);
  load_rows<H, kRows>(head.doutputs(launched.args), launched.args.doutput_strides.time, first, args.queries,
                      args.head_size, doutput);
  Row rows[R];
  float dq[R][Part<H>::kEntries] = {}, shares[R] = {};
#pragma unroll
  for (int i = 0; i < R; ++i) rows[i] = row_of_query(launched, head, first + thread_row() + kSide * i);

  const std::int64_t first_key = max(std::int64_t{0}, first + head.offset - args.most);
  const std::int64_t end_key = min(args.keys, last + head.offset - args.least + 1);
  for (std::int64_t key = first_key; key < end_key; key += kColumns) {
    __syncthreads();  // the tiles of the previous keys have been read
    load_rows<H, kColumns>(head.keys(), key, args.keys, args.head_size, keys);
    load_rows<H, kColumns>(head.values(), key, args.keys, args.head_size, values);
    write_keep<R, C>(head, first, weights, row_of(kColumns), 1,
                     [=](std::int64_t, int column) { return key + column; });
    __syncthreads();
    float scores[R][C] = {}, dweights[R][C] = {};
    add_products<H>(q, keys, scores);
    add_products<H>(doutput, values, dweights);
    const std::int64_t base = first + head.offset - key;  // distance of the tile's first pair
    if (args.positions != nullptr)
      for_positions<H, kColumns, Tile::kWindow>(args, base - (kColumns - 1), piece, [&](int done) {
        add_diagonal_products<H, kColumns>(q, piece, kColumns - 1 - done, scores);
      });
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < C; ++j) {
        const int row = thread_row() + kSide * i, column = thread_column() + kSide * j;
        float& weight = weights[row * row_of(kColumns) + column];
        float dscore = 0;
        if (head.sees(first + row, key + column)) {
          const float score = scores[i][j] + head.bias(base + row - column);
          const Pair pair =
              pair_of(head, rows[i], score, dweights[i][j], args.drop_below == 0 ? 1.0f : weight);
          shares[i] += pair.ds * score;
          dscore = head.factor * pair.ds;
        }
        weight = dscore;
      }
    __syncthreads();
    add_mixed<H, kColumns>(weights, keys, dq);
    if (args.positions != nullptr)
      for_positions<H, kColumns, Tile::kWindow>(args, base - (kColumns - 1), piece, [&](int done) {
        add_diagonal_mixed<H, kColumns, kColumns>(weights, piece, kColumns - 1 - done, dq);
      });
  }

  if (launched.args.dhead_scale != nullptr) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const std::int64_t query = first + thread_row() + kSide * i;
      const float share = static_cast<float>(args.scale) * reduce_row(shares[i], Plus{});
      if (thread_column() == 0 && query < args.queries)
        launched.scratch(launched.partials.head_scales)[head.row_at(query)] = share;
    }
  }
  if (launched.args.dq == nullptr) return;
  through_unit_norm<H>(MatrixRows<T>{head.queries(), args.q_strides.time},
                       query_scales(launched.args, head.batch, head.head), first, args.queries,
                       args.head_size, dq);
  const AttentionStrides& to = launched.args.dq_strides;
  store_rows<H>(dq, first, args.queries, args.head_size,
                static_cast<T*>(launched.args.dq) + head.batch * to.batch + head.head * to.head, to.time);
}

// ---- dk and dv

template <int H>
struct KeysTile {
  static constexpr int kR = H <= 128 ? 2 : 1, kC = H <= 64 ? 4 : H <= 128 ? 2 : 1;
  static constexpr int kRows = kSide * kR, kColumns = kSide * kC, kWindow = kRows + kColumns - 1;
  static constexpr int kPiece = tile_numbers(kRows, H);
  static constexpr int kShared =
      4 * (2 * tile_numbers(kRows, H) + 2 * tile_numbers(kColumns, H) + 2 * tile_numbers(kColumns, kRows));
  static_assert(kShared + 4 * kPiece <= kMostSharedBytes);
};

template <class T, int H>
__global__ void __launch_bounds__(kThreads, 2) keys_kernel(BackwardLaunch launched) {
  using Tile = KeysTile<H>;
  constexpr int R = Tile::kR, C = Tile::kC, kRows = Tile::kRows, kColumns = Tile::kColumns;
  const AttentionArgs& args = launched.args.forward;
  float* const keys = shared_memory();
  float* const values = keys + tile_numbers(kColumns, H);
  float* const q = values + tile_numbers(kColumns, H);
  float* const doutput = q + tile_numbers(kRows, H);
  float* const weights = doutput + tile_numbers(kRows, H);  // transposed: a row for each key
  float* const dscores = weights + tile_numbers(kColumns, kRows);
  float* const piece = dscores + tile_numbers(kColumns, kRows);  // only with positions

  const std::int64_t tiles = divide_up(args.keys, kColumns), item = blockIdx.x / tiles;
  const std::int64_t key = blockIdx.x % tiles * kColumns, last_key = min(key + kColumns, args.keys) - 1;
  const std::int64_t batch = item / args.kv_heads, kv_head = item % args.kv_heads,
                     group = args.heads / args.kv_heads;
  if (!wants_keys(launched.args, key, last_key)) return;
  {
    const Head<T> head(args, batch, kv_head * group);
    load_rows<H, kColumns>(head.keys(), key, args.keys, args.head_size, keys);
    load_rows<H, kColumns>(head.values(), key, args.keys, args.head_size, values);
  }
  float dk[C][Part<H>::kEntries] = {}, dv[C][Part<H>::kEntries] = {};

  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const Head<T> head(args, batch, h);
    const std::int64_t begin = max(std::int64_t{0}, key - head.offset + args.least);
    const std::int64_t end = min(args.queries, last_key - head.offset + args.most + 1);
    for (std::int64_t first = begin; first < end; first += kRows) {
      __syncthreads();  // the tiles of the previous queries have been read
      load_rows<H, kRows>(head.queries(), args.q_strides.time, first, args.queries, args.head_size, q);
      load_rows<H, kRows>(head.doutputs(launched.args), launched.args.doutput_strides.time, first,
                          args.queries, args.head_size, doutput);
      write_keep<R, C>(head, first, weights, 1, row_of(kRows),
                       [=](std::int64_t, int column) { return key + column; });
      __syncthreads();
      float scores[R][C] = {}, dweights[R][C] = {};
      add_products<H>(q, keys, scores);
      add_products<H>(doutput, values, dweights);
      const std::int64_t base = first + head.offset - key;
      if (args.positions != nullptr)
        for_positions<H, kRows, Tile::kWindow>(args, base - (kColumns - 1), piece, [&](int done) {
          add_diagonal_products<H, kRows>(q, piece, kColumns - 1 - done, scores);
        });
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const int row = thread_row() + kSide * i;
        const Row numbers = row_of_query(launched, head, first + row);
#pragma unroll
        for (int j = 0; j < C; ++j) {
          const int column = thread_column() + kSide * j, place = column * row_of(kRows) + row;
          float weight = 0, dscore = 0;
          if (head.sees(first + row, key + column)) {
            const float score = scores[i][j] + head.bias(base + row - column);
            const Pair pair =
                pair_of(head, numbers, score, dweights[i][j], args.drop_below == 0 ? 1.0f : weights[place]);
            weight = pair.weight;
            dscore = head.factor * pair.ds;
          }
          weights[place] = weight;
          dscores[place] = dscore;
        }
      }
      __syncthreads();
      add_mixed<H, kRows>(weights, doutput, dv);
      add_mixed<H, kRows>(dscores, q, dk);
    }
  }

  if (launched.args.dk != nullptr)
    through_unit_norm<H>(Head<T>(args, batch, kv_head * group).keys(),
                         key_scales(launched.args, batch, kv_head), key, args.keys, args.head_size, dk);
  store_rows<H>(dk, key, args.keys, args.head_size, key_gradients<T>(launched.args, batch, kv_head));
  store_rows<H>(dv, key, args.keys, args.head_size, value_gradients<T>(launched.args, batch, kv_head));
}

// ---- the tables

// Columns are distances: the pair of query j and distance d has key j + offset - d. So keys and values are
// the diagonal operands here, and positions are not.
template <int H>
struct TablesTile {
  static constexpr int kR = H <= 128 ? 2 : 1, kC = H <= 128 ? 2 : 1;
  static constexpr int kRows = kSide * kR, kColumns = kSide * kC, kWindow = kRows + kColumns - 1;
  static constexpr int kShared = 4 * (2 * tile_numbers(kRows, H) + tile_numbers(kColumns, H) +
                                      2 * tile_numbers(kRows, H) + tile_numbers(kColumns, kRows));
  static_assert(kShared <= kMostSharedBytes);
};

template <class T, int H>
__global__ void __launch_bounds__(kThreads) tables_kernel(BackwardLaunch launched) {
  using Tile = TablesTile<H>;
  constexpr int R = Tile::kR, C = Tile::kC, kRows = Tile::kRows, kColumns = Tile::kColumns;
  const AttentionArgs& args = launched.args.forward;
  const AttentionTableRuns& tables = launched.partials.tables;
  float* const q = shared_memory();
  float* const doutput = q + tile_numbers(kRows, H);
  float* const positions = doutput + tile_numbers(kRows, H);
  float* const keys = positions + tile_numbers(kColumns, H);  // pieces of kRows rows
  float* const values = keys + tile_numbers(kRows, H);
  float* const dscores = values + tile_numbers(kRows, H);  // transposed: a row for each distance

  const std::int64_t tiles = divide_up(args.distances, kColumns), item = blockIdx.x / tiles;
  const std::int64_t distance = blockIdx.x % tiles * kColumns, last_distance = distance + kColumns - 1;
  const std::int64_t h = item / tables.runs, run = item % tables.runs;
  const std::int64_t end_batch = min((run + 1) * tables.sequences, args.batch);
  if (args.positions != nullptr)
    load_rows<H, kColumns>(static_cast<const float*>(args.positions), args.positions_stride, distance,
                           args.distances, args.head_size, positions);
  float dpositions[C][Part<H>::kEntries] = {}, dbias[C] = {};

  const bool met = distance <= args.most && last_distance >= args.least;
  for (std::int64_t batch = run * tables.sequences; met && batch < end_batch; ++batch) {
    const Head<T> head(args, batch, h);
    const std::int64_t begin = max(std::int64_t{0}, distance - head.offset);
    for (std::int64_t first = begin; first < args.queries; first += kRows) {
      __syncthreads();  // the tiles of the previous queries have been read
      load_rows<H, kRows>(head.queries(), args.q_strides.time, first, args.queries, args.head_size, q);
      load_rows<H, kRows>(head.doutputs(launched.args), launched.args.doutput_strides.time, first,
                          args.queries, args.head_size, doutput);
      const auto key_of = [&head, distance](std::int64_t query, int column) {
        return query + head.offset - (distance + column);
      };
      write_keep<R, C>(head, first, dscores, 1, row_of(kRows), key_of);
      __syncthreads();
      float scores[R][C] = {}, dweights[R][C] = {};
      if (args.positions != nullptr) add_products<H>(q, positions, scores);
      const std::int64_t lowest = first + head.offset - last_distance;  // the first key that a pair has
#pragma unroll 1
      for (int done = 0; done < Tile::kWindow; done += kRows) {
        __syncthreads();  // the previous piece has been read
        load_rows<H, kRows>(head.keys(), lowest + done, args.keys, args.head_size, keys);
        load_rows<H, kRows>(head.values(), lowest + done, args.keys, args.head_size, values);
        __syncthreads();
        add_diagonal_products<H, kRows>(q, keys, kColumns - 1 - done, scores);
        add_diagonal_products<H, kRows>(doutput, values, kColumns - 1 - done, dweights);
      }
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const int row = thread_row() + kSide * i;
        const Row numbers = row_of_query(launched, head, first + row);
#pragma unroll
        for (int j = 0; j < C; ++j) {
          const int column = thread_column() + kSide * j, place = column * row_of(kRows) + row;
          float dscore = 0;
          if (head.sees(first + row, key_of(first + row, column))) {
            const float score = scores[i][j] + head.bias(distance + column);
            const float keep = args.drop_below == 0 ? 1.0f : dscores[place];
            dscore = head.factor * pair_of(head, numbers, score, dweights[i][j], keep).ds;
          }
          dbias[j] += dscore;
          dscores[place] = dscore;
        }
      }
      if (launched.args.dpositions == nullptr) continue;
      __syncthreads();
      add_mixed<H, kRows>(dscores, q, dpositions);
    }
  }

  const std::int64_t part = run * args.heads + h;
  if (launched.args.dpositions != nullptr)
    add_rows<H>(dpositions, distance, args.distances, args.head_size,
                static_cast<float*>(launched.args.dpositions) + part * launched.args.dpositions_part,
                launched.args.dpositions_stride);
  if (launched.args.dbias == nullptr) return;
  __syncthreads();
  float* const sums = keys;  // [kSide][kColumns]: each thread's sums over its rows
#pragma unroll
  for (int j = 0; j < C; ++j) sums[thread_row() * kColumns + thread_column() + kSide * j] = dbias[j];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= kColumns || distance + column >= args.distances) return;
  float sum = 0;
  for (int row = 0; row < kSide; ++row) sum += sums[row * kColumns + column];
  static_cast<float*>(launched.args.dbias)[part * launched.args.dbias_stride + distance + column] += sum;
}

// ---- sums of parts

__device__ void add_to_head_scale(const BackwardLaunch& launched, std::int64_t head, float sum) {
  add_to(static_cast<float*>(launched.args.dhead_scale)[head], launched.args.head_scale_beta, sum);
}

// Block head * parts + part. Each thread keeps the sequence and query of its row, since a division costs more
// than the rest of the loop.
__global__ void head_scale_kernel(BackwardLaunch launched) {
  const AttentionArgs& args = launched.args.forward;
  const AttentionPartials& partials = launched.partials;
  const std::int64_t parts = partials.head_scale_parts, head = blockIdx.x / parts, part = blockIdx.x % parts;
  const float* const shares = launched.scratch(partials.head_scales);
  const std::int64_t first = part * partials.part_rows,
                     last = min(first + partials.part_rows, args.batch * args.queries);
  const std::int64_t sequences = kThreads / args.queries, queries = kThreads % args.queries;
  std::int64_t row = first + threadIdx.x, sequence = row / args.queries, query = row % args.queries;
  float sum = 0;
  for (; row < last; row += kThreads) {
    sum += shares[(sequence * args.heads + head) * args.queries + query];
    sequence += sequences;
    query += queries;
    if (query >= args.queries) {
      query -= args.queries;
      ++sequence;
    }
  }
  sum = Team<kThreads>::reduce(sum, Plus{});
  if (threadIdx.x != 0) return;
  if (parts == 1)
    add_to_head_scale(launched, head, sum);
  else
    launched.scratch(partials.head_scale_sums)[blockIdx.x] = sum;
}

__global__ void head_scale_sums_kernel(BackwardLaunch launched) {
  const std::int64_t parts = launched.partials.head_scale_parts, heads = launched.args.forward.heads;
  for (std::int64_t head = Team<32>::first_row(); head < heads; head += Team<32>::row_step()) {
    const float* const sums = launched.scratch(launched.partials.head_scale_sums) + head * parts;
    float sum = 0;
    for (std::int64_t part = Team<32>::lane(); part < parts; part += 32) sum += sums[part];
    sum = Team<32>::reduce(sum, Plus{});
    if (Team<32>::lane() == 0) add_to_head_scale(launched, head, sum);
  }
}

template <class T, int H>
void run(const AttentionBackwardArgs& gradient) {
  const AttentionArgs& args = gradient.forward;
  const BackwardLaunch launched{gradient, attention_partials(gradient)};
  const Kernel kernel = attention_kernel(args);
  const bool positions = args.positions != nullptr, tensor_core = kernel != Kernel::plain,
             wgmma = kernel == Kernel::wgmma;
  const std::int64_t rows = args.batch * args.queries * args.heads;
  std::optional<PositionProducts> products;
  if (takes_position_products(args, kernel, gradient.q_unit != nullptr)) products.emplace(args);
  const PositionProducts* const of_positions = products ? &*products : nullptr;
  const bool sums_positions = products && gradient.dpositions != nullptr;  // with the kernel for dq
  const bool queries_wanted = gradient.dq != nullptr || gradient.dhead_scale != nullptr || sums_positions;
  bool sums_bias = false;  // the kernel for dq, or for all three, sums dbias; not if dpositions is wanted
  const bool fused = takes_fused_backward(gradient, kernel, &sums_bias);
  if (!tensor_core || !queries_wanted)
    launch("attention_delta", delta_kernel<T>, grid_for(rows, Team<32>::kRowsPerBlock, 64), kThreads,
           launched);
  const bool keys_wanted = gradient.dk != nullptr || gradient.dv != nullptr || gradient.past_dk != nullptr ||
                           gradient.past_dv != nullptr;
  if (fused) {
    wgmma_fused_backward(gradient, launched.partials, sums_bias);
  } else if (queries_wanted && wgmma) {
    sums_bias = wgmma_queries(gradient, launched.partials, of_positions);
  } else if (queries_wanted && tensor_core) {
    sums_bias = tensor_core_queries(gradient, launched.partials);
  } else if (queries_wanted) {
    using Tile = QueriesTile<H>;
    launch_shared("attention_dq", queries_kernel<T, H>,
                  args.batch * args.heads * divide_up(args.queries, Tile::kRows), kThreads,
                  Tile::kShared + (positions ? 4 * Tile::kPiece : 0), launched);
  }
  if (keys_wanted && !fused && wgmma) {
    wgmma_keys(gradient, launched.partials, of_positions);
  } else if (keys_wanted && !fused && tensor_core) {
    tensor_core_keys(gradient, launched.partials);
  } else if (keys_wanted && !fused) {
    using Tile = KeysTile<H>;
    launch_shared("attention_dk_dv", keys_kernel<T, H>,
                  args.batch * args.kv_heads * divide_up(args.keys, Tile::kColumns), kThreads,
                  Tile::kShared + (positions ? 4 * Tile::kPiece : 0), launched);
  }
  const bool wants_tables =
      (!sums_bias && gradient.dbias != nullptr) || (!sums_positions && gradient.dpositions != nullptr);
  if (wants_tables && tensor_core && gradient.dtype == Dtype::bf16) {
    tensor_core_tables(gradient, launched.partials);
  } else if (wants_tables) {
    using Tile = TablesTile<H>;
    launch_shared("attention_tables", tables_kernel<T, H>,
                  args.heads * launched.partials.tables.runs * divide_up(args.distances, Tile::kColumns),
                  kThreads, Tile::kShared, launched);
  }
  if (gradient.dhead_scale != nullptr) {
    const std::int64_t parts = launched.partials.head_scale_parts;
    launch("attention_dhead_scale", head_scale_kernel, args.heads * parts, kThreads, launched);
    if (parts > 1)
      launch("attention_dhead_scale_sums", head_scale_sums_kernel,
             grid_for(args.heads, Team<32>::kRowsPerBlock), kThreads, launched);
  }
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& args) {
  for_type_and_size("attention", args.dtype, args.forward.head_size, [&](auto* type, auto size) {
    run<std::remove_pointer_t<decltype(type)>, decltype(size)::value>(args);
  });
}

}  // namespace eddy::cuda
