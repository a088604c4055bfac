// What both directions of a block recurrence in one kernel share: a thread block walks the windows of one sequence
// (ops/recurrence/block_recurrence.h has the formulas), and a warp has 16 rows of the window.
//
// Weights are bf16 in fragments: units of 16 columns and 16 numbers of the depth, which a warp loads by one instruction
// as the right operand of two products. They lie in the order in which a window reads them; as many of the first as
// there is room for stay in shared memory, the others come from the second-level cache by the same loads.
//
// Rows stay in registers from norm to norm. With g = lane / 4 and t = lane % 4 a lane has rows g and g + 8 of its
// warp's 16, and of every 16 columns the four from 4 t on, so that it reads and writes 16 bytes of f32 or 8 of bf16.
// Products number the columns of these 16 otherwise: number 8 h + 2 a + e of a product is column 4 a + 2 h + e. Units
// are packed by that order along both sides, so sums of one product are the left operand of the next without a move.
#pragma once

#include <algorithm>

#include "cuda/core/resident_launch.cuh"
#include "cuda/core/shared_launch.cuh"
#include "cuda/core/warp_matrix.cuh"
#include "cuda/recurrence/fours.cuh"
#include "cuda/recurrence/unit_recurrence.cuh"
#include "cuda/runtime/context.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/recurrence/block_recurrence.h"
#include "tensor/tensor.h"

namespace eddy::cuda {

inline constexpr int kTileRows = 16, kMostTiles = 8;  // of a window, a warp each
inline constexpr int kMostBlockRows = kTileRows * kMostTiles / 2, kWidestBlockHead = 32;
inline constexpr int kPadding = 16;  // numbers behind a row in shared memory: fewer rows in the same banks

// A lane's part of a unit: of columns n and n + 2 the four numbers from k on.
using UnitPart = Neighbours<std::uint32_t, 4>;
inline constexpr int kUnitBytes = 32 * static_cast<int>(sizeof(UnitPart));

// The units of a layer of `steps` times 16 columns: those of each 32 columns of the MLP, [steps][2] of the product into
// it and [2][steps] of the one out of it, then [steps][steps] of Wo and those of Wqkv: forward 3 steps / 2 times
// [steps][2], backward, of the transposed weights, [3 steps][steps].
struct UnitOrder {
  int steps, chunks;

  EDDY_HOST_DEVICE int of_chunk() const { return 4 * steps; }
  EDDY_HOST_DEVICE int wo() const { return chunks * of_chunk(); }
  EDDY_HOST_DEVICE int wqkv() const { return wo() + steps * steps; }
  EDDY_HOST_DEVICE int all() const { return wqkv() + 3 * steps * steps; }
};

struct BlockLaunch {
  BlockRecurrenceArgs args;
  Dropout dropout;
  const UnitPart* units;
  UnitOrder order;
  int resident;    // units in shared memory, in whole 2 steps
  int tiles;       // warps of a block
  int mask_words;  // of a query's row of dropout bits; 0 without dropout
};

// Where units are.
struct Units {
  const UnitPart *all, *near;
  int resident;

  // 2 steps units from `unit` on, a multiple of that.
  __device__ const UnitPart* from(int unit) const { return (unit < resident ? near : all) + 32 * unit; }
};

// Fragments of left operands: a[k step][register].
template <int Steps>
struct Fragments {
  std::uint32_t at[Steps][4];

  // A lane's four numbers of row g + 8 half in step s.
  __device__ Neighbours<bf16, 4> four(int s, int half) const {
    const std::uint32_t words[2] = {at[s][half], at[s][2 + half]};
    Neighbours<bf16, 4> numbers;
    std::memcpy(&numbers, words, sizeof words);
    return numbers;
  }
  __device__ void set(int s, int half, const Neighbours<bf16, 4>& numbers) {
    std::uint32_t words[2];
    std::memcpy(words, &numbers, sizeof words);
    at[s][half] = words[0];
    at[s][2 + half] = words[1];
  }
};

// 16 rows of a warp in f32, as sums of products: [step][8 columns of a product][number].
template <int Steps>
struct WarpRows {
  float at[Steps][2][4];

  __device__ Fours four(int s, int half) const {
    return {{at[s][0][2 * half], at[s][0][2 * half + 1], at[s][1][2 * half], at[s][1][2 * half + 1]}};
  }
  __device__ void set(int s, int half, const Fours& four) {
#pragma unroll
    for (int e = 0; e < 4; ++e) at[s][e / 2][2 * half + e % 2] = four.at[e];
  }
  // Calls change(s, half, four) for all fours of a lane, which may change them.
  template <class Change>
  __device__ void each(Change&& change) {
#pragma unroll
    for (int s = 0; s < Steps; ++s)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Fours numbers = four(s, half);
        change(s, half, numbers);
        set(s, half, numbers);
      }
  }
};

// Sums of 16 columns as the left operand of a step of 16 numbers of the depth.
__device__ inline void set_left(std::uint32_t (&left)[4], const float (&sums)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) left[i] = pack(sums[i / 2][2 * (i % 2)], sums[i / 2][2 * (i % 2) + 1]);
}
template <int Steps>
__device__ void set_left(Fragments<Steps>& left, const WarpRows<Steps>& rows) {
#pragma unroll
  for (int s = 0; s < Steps; ++s) set_left(left.at[s], rows.at[s]);
}

// sums += left units: `Deep` steps of the depth, the first at left[0], and 16 `Wide` columns. The units are
// [Deep][Wide].
template <int Wide, int Deep>
__device__ void multiply_units(float (&sums)[Wide][2][4], const std::uint32_t (*left)[4],
                               const UnitPart* units) {
  const UnitPart* const of_lane = units + threadIdx.x % 32;
#pragma unroll
  for (int s = 0; s < Deep; ++s)
#pragma unroll
    for (int j = 0; j < Wide; ++j) {
      const UnitPart unit = of_lane[32 * (s * Wide + j)];
      multiply_matrices(sums[j][0], left[s], unit.at[0], unit.at[1]);
      multiply_matrices(sums[j][1], left[s], unit.at[2], unit.at[3]);
    }
}

// Adds numbers over the four lanes that have a row.
template <int Count>
__device__ void add_over_row(float (&sums)[Count]) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2)
#pragma unroll
    for (float& sum : sums) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
}

// Four of a vector of parameters; null reads as `otherwise`.
__device__ inline Fours parameters_at(const void* vector, int column, float otherwise) {
  if (vector == nullptr) return {{otherwise, otherwise, otherwise, otherwise}};
  return read_fours<true>(static_cast<const float*>(vector) + column, 4);
}

// Window t of one sequence: `past` rows of the older half, then `own` ones of the newer half.
struct BlockWindow {
  const BlockRecurrenceArgs& args;
  int t, sequence, past, own;

  __device__ BlockWindow(const BlockRecurrenceArgs& all, int window, int of_sequence)
      : args(all),
        t(window),
        sequence(of_sequence),
        past(window > 0 ? rows_of(window - 1) : 0),
        own(window < all.time ? rows_of(window) : 0) {}

  __device__ int rows() const { return past + own; }
  // Whether some of the 16 rows from `first` on are there, and whether T is computed for some.
  __device__ bool has_rows(int first) const { return first < rows(); }
  __device__ bool finishes_rows(int first) const {
    return has_rows(first) && (args.accumulates || first + kTileRows > past);
  }
  __device__ int rows_of(int block) const {
    return static_cast<int>(block + 1 < args.time ? args.block : args.last);
  }
  // The row of the newer half that is block `block`, and of the older half in its place, in arrays of the windows'
  // rows.
  __device__ std::int64_t newer_row(int block, int j) const {
    return block * args.batch + std::int64_t{sequence} * rows_of(block) + j;
  }
  __device__ std::int64_t older_row(int block, int j) const {
    return (args.time - 1) * args.batch + args.last * args.sequences + newer_row(block, j);
  }
};

// A row of a window.
struct WindowRow {
  int place;  // in the window
  bool there, older;
  bool finished;     // T is computed for it
  int block, j;      // of the half, and the row in it
  std::int64_t row;  // in arrays of the windows' rows; that of the last row where it is not there

  __device__ WindowRow(const BlockWindow& window, int in_window) : place(in_window) {
    there = in_window < window.rows();
    const int at = there ? in_window : window.rows() - 1;
    older = at < window.past;
    finished = there && (window.args.accumulates || !older);
    block = older ? window.t - 1 : window.t;
    j = older ? at : at - window.past;
    row = older ? window.older_row(block, j) : window.newer_row(block, j);
  }
  // Of a half's rows, how many of each sequence have no masks.
  __device__ int unread(const BlockRecurrenceArgs& args) const {
    const std::int64_t from_last = args.time - 1 - block;
    return !older || from_last > 1 ? 0 : static_cast<int>(args.unread[1 - from_last]);
  }
  // The key of one of its half's dropouts: 0 of probabilities, 1 of the attention's result, 2 of the MLP's.
  __device__ RandomKey key(const BlockRecurrenceArgs& args, int which) const {
    return resolved(args.keys[3 * ((older ? args.time : 0) + block) + which]);
  }
};

// A warp's tile in a window: the lane's two rows.
struct TileRows {
  WindowRow row[2];
  int column;  // the first of the lane's in each 16

  __device__ explicit TileRows(const BlockWindow& window)
      : row{{window, first_row() + static_cast<int>(threadIdx.x % 32 / 4)},
            {window, first_row() + static_cast<int>(threadIdx.x % 32 / 4) + 8}},
        column(static_cast<int>(threadIdx.x % 4) * 4) {}

  __device__ static int warp() { return static_cast<int>(threadIdx.x / 32); }
  __device__ static int first_row() { return warp() * kTileRows; }
  // Where the lane's numbers of a row are in an array of the windows' rows.
  template <class Number, class Base>
  __device__ Number* at(Base* base, int half, std::int64_t width) const {
    return static_cast<Number*>(base) + row[half].row * width + column;
  }
};

// Calls run(s, half) for the lane's fours of rows that `there` says are there.
template <int Steps, class There, class Run>
__device__ void each_four(There&& there, Run&& run) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (there(half))
#pragma unroll
      for (int s = 0; s < Steps; ++s) run(s, half);
}

// Multiplies rows with a result by the factors of its dropout: element (row, column) of [rows of the half, dim].
template <int Steps>
__device__ void drop_rows(const BlockLaunch& launched, const BlockWindow& window, const TileRows& tile,
                          int which, WarpRows<Steps>& rows) {
  const Dropout& dropout = launched.dropout;
  if (!dropout.on) return;
  constexpr int kDim = 16 * Steps;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const WindowRow& row = tile.row[half];
    if (!row.finished) continue;
    const RandomKey key = row.key(launched.args, which);
    const int unread = row.unread(launched.args);
    const std::int64_t of_half =
        std::int64_t{window.sequence} * (window.rows_of(row.block) - unread) + row.j - unread;
    const std::int64_t first = (of_half * kDim + tile.column) / 4;
    std::uint32_t kept = 0;  // a bit each, made by one loop since random numbers take much code
#pragma unroll 1
    for (int s = 0; s < Steps; ++s) {
      const Philox4 words = key.words(static_cast<std::uint64_t>(first + 4 * s));
#pragma unroll
      for (int e = 0; e < 4; ++e)
        kept = kept >> 1 | ((words.word[e] >> 8) >= dropout.drop_below ? 1u << 31 : 0);
    }
#pragma unroll
    for (int s = 0; s < Steps; ++s)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        rows.at[s][e / 2][2 * half + e % 2] *=
            (kept >> (32 - 4 * Steps + 4 * s + e) & 1) != 0 ? dropout.scale : 0.0f;
  }
}

// Draws which probabilities are kept, a bit for each key of each query and head of the warp's rows: those of query i of
// the window and head h are masks[(h rows + i) mask_words], the lowest first. A lane makes 32 of them at a time.
__device__ inline void draw_masks(const BlockLaunch& launched, const BlockWindow& window,
                                  std::uint32_t* masks) {
  const Dropout& dropout = launched.dropout;
  if (!dropout.on) return;
  const BlockRecurrenceArgs& args = launched.args;
  const int heads = static_cast<int>(args.heads), words = launched.mask_words,
            rows = launched.tiles * kTileRows;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x % 32); item < kTileRows * heads * words; item += 32) {
    const int word = item / kTileRows % words, head = item / kTileRows / words;
    const WindowRow row(window, TileRows::first_row() + item % kTileRows);
    if (32 * word > row.place) continue;
    std::uint32_t& to = masks[(head * rows + row.place) * words + word];
    to = 0;
    if (!row.finished) continue;
    const RandomKey key = row.key(args, 0);
    const int of_half = window.rows_of(row.block), unread = row.unread(args);
    const std::int64_t query =
        (std::int64_t{window.sequence} * heads + head) * (of_half - unread) + row.j - unread;
    const std::int64_t first = query * (row.older ? of_half : window.rows()) + 32 * word;
    std::uint64_t kept = 0;
#pragma unroll 3
    for (int four = 0; four < 9; ++four) {
      const Philox4 drawn =
          key.words(static_cast<std::uint64_t>(first) / 4 + static_cast<std::uint64_t>(four));
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if ((drawn.word[e] >> 8) >= dropout.drop_below) kept |= std::uint64_t{1} << (4 * four + e);
    }
    to = static_cast<std::uint32_t>(kept >> (first & 3));
  }
}

// A dropout's factor by its bit.
__device__ inline float kept_factor(const Dropout& dropout, std::uint32_t bits, int bit) {
  return (bits >> bit & 1) != 0 ? dropout.scale : 0.0f;
}

// Starts the copies of the resident units to shared memory.
__device__ inline Units start_units(const BlockLaunch& launched, UnitPart* near) {
  for (int i = static_cast<int>(threadIdx.x); i < 32 * launched.resident; i += static_cast<int>(blockDim.x))
    start_copy(near + i, launched.units + i, true);
  return {launched.units, near, launched.resident};
}

// One head's columns in steps of 16.
struct HeadColumns {
  int first, end, step, steps;  // columns; the first step that has some of them, and how many steps have

  __device__ HeadColumns(int head, int size)
      : first(head * size), end(first + size), step(first / 16), steps((end + 15) / 16 - step) {}
  __device__ bool has(int column) const { return first <= column && column < end; }
};
inline constexpr int kHeadSteps =
    2;  // at most, for heads of up to 32 in steps of 4 that divide a multiple of 32

// Four numbers as two registers.
__device__ inline void read_words(std::uint32_t (&words)[2], const bf16* from) {
  const Neighbours<bf16, 4> numbers = *reinterpret_cast<const Neighbours<bf16, 4>*>(from);
  std::memcpy(words, &numbers, sizeof words);
}
// The left operand of a step of 16 columns of the lane's rows in shared memory; 0 for what is not the head's.
__device__ inline void read_left(std::uint32_t (&left)[4], const bf16* rows, int pitch, int s,
                                 const HeadColumns& columns) {
  const int column = 16 * s + static_cast<int>(threadIdx.x % 4) * 4;
  const bf16* const from = rows + static_cast<int>(threadIdx.x % 32 / 4) * pitch + column;
  const bool own = columns.has(column);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t words[2];
    read_words(words, from + 8 * half * pitch);
    left[half] = own ? words[0] : 0;
    left[2 + half] = own ? words[1] : 0;
  }
}
// The right operand, transposed: 8 rows from `rows` on are its columns, and 16 columns from 16 s on its depth.
__device__ inline void read_right(std::uint32_t (&right)[2], const bf16* rows, int pitch, int s) {
  read_words(right, rows + static_cast<int>(threadIdx.x % 32 / 4) * pitch + 16 * s +
                        static_cast<int>(threadIdx.x % 4) * 4);
}
// sums += left rows: 16 rows from `rows` on are the depth, and 16 columns from 16 s on the columns, in their own order.
__device__ inline void multiply_rows(float (&sums)[2][4], const std::uint32_t (&left)[4], const bf16* rows,
                                     int pitch, int s) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::uint32_t right[4];
  load_matrices_transposed(right, rows + lane % 16 * pitch + 16 * s + lane / 16 * 8);
  multiply_matrices(sums[0], left, right[0], right[1]);
  multiply_matrices(sums[1], left, right[2], right[3]);
}
// Writes the head's columns of such sums of the lane's rows, each times factor[half], to rows that start at to[half];
// not where that is null.
__device__ inline void write_head(bf16* const (&to)[2], int s, const HeadColumns& columns,
                                  const float (&sums)[2][4], const float (&factor)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int column = 16 * s + 8 * h + static_cast<int>(threadIdx.x % 4) * 2;
    if (!columns.has(column)) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (to[half] != nullptr)
        *reinterpret_cast<Neighbours<bf16, 2>*>(to[half] + column) = as_stored<bf16>(
            Neighbours<float, 2>{{sums[h][2 * half] * factor[half], sums[h][2 * half + 1] * factor[half]}});
  }
}

// ---- host

// What a kernel keeps of a window in shared memory, behind the resident units: rows of `parts` times dim numbers of
// bf16; with gradients two numbers for each head of a row; with dropout the bits of the masks.
struct WindowRoom {
  int tiles, pitch, rows_bytes, sums_bytes, mask_words, bytes;

  WindowRoom(std::int64_t dim, std::int64_t heads, std::int64_t window_rows, bool backward, bool drops) {
    tiles = static_cast<int>((window_rows + kTileRows - 1) / kTileRows);
    const int rows = tiles * kTileRows, of_heads = static_cast<int>(heads) * rows;
    pitch = static_cast<int>(dim) * (backward ? 4 : 3) + kPadding;
    rows_bytes = rows * pitch * static_cast<int>(sizeof(bf16));
    sums_bytes = backward ? 2 * of_heads * static_cast<int>(sizeof(float)) : 0;
    mask_words = drops ? (rows + 31) / 32 : 0;
    bytes = rows_bytes + sums_bytes + of_heads * mask_words * 4;
  }
};

// The rows of the longest window.
inline std::int64_t longest_window(const BlockRecurrenceArgs& args) {
  return args.time == 1 ? args.last : args.block + (args.time > 2 ? args.block : args.last);
}

// Puts the weights into units, transposed for the backward, into memory that the returned tensor owns.
Tensor pack_units(const BlockRecurrenceArgs& args, const UnitOrder& order, bool backward);

// Launches a direction of the recurrence: kernels[i] is that of rows of 32 (i + 1) numbers.
inline void walk_blocks(const char* name, const BlockRecurrenceArgs& args, bool backward,
                        void (*const (&kernels)[4])(BlockLaunch)) {
  const WindowRoom room(args.dim, args.heads, longest_window(args), backward, args.dropout > 0);
  const UnitOrder order{static_cast<int>(args.dim / 16), static_cast<int>(args.mlp / 32)};
  const int whole = 2 * order.steps;
  const Tensor units = pack_units(args, order, backward);
  const int resident = std::min(order.all(), (most_shared_bytes() - room.bytes) / kUnitBytes / whole * whole);
  launch_shared(
      name, kernels[args.dim / 32 - 1], args.sequences, 32 * room.tiles, resident * kUnitBytes + room.bytes,
      {args, dropout_of(args.dropout > 0, args.dropout), static_cast<const UnitPart*>(units.raw_data()),
       order, resident, room.tiles, room.mask_words});
}

}  // namespace eddy::cuda
