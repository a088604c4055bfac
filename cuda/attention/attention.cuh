// What the attention kernels share: tiles in shared memory and the products of tiles.
//
// A block of 256 threads works on a tile of 16 R rows and 16 C columns of scores. Rows are queries, columns
// keys (for the gradients of the tables: distances). Thread (y, x) = (t / 16, t % 16) has rows y + 16 i and
// columns x + 16 j. Tiles of vectors are f32 in shared memory, whatever the type of the tensors, in rows of H
// + 4 numbers. H is head_size rounded up to a kernel's size and filled with zeros. The 4 numbers of padding
// keep rows aligned to 16 bytes and put the 8 rows that are read together, 16 bytes each, into different
// banks.
//
// The distance of a pair, and for the tables its key, is a constant + row - column. Operands indexed by it
// are called "diagonal". The window of 16 R + 16 C - 1 of them that a tile needs passes through shared memory
// in pieces.
#pragma once

#include <string>
#include <type_traits>

#include "cuda/core/random.cuh"
#include "cuda/core/shared_launch.cuh"
#include "cuda/core/team.cuh"
#include "ops/attention/attention.h"
#include "tensor/base/error.h"
#include "tensor/base/host_device.h"

namespace eddy::cuda {
namespace {

constexpr int kSide = 16;  // threads along a side of a tile
static_assert(kSide * kSide == kThreads);

__device__ inline int thread_row() {
  return static_cast<int>(threadIdx.x) / kSide;
}
__device__ inline int thread_column() {
  return static_cast<int>(threadIdx.x) % kSide;
}

// Numbers from one row of a tile to the next, with padding.
EDDY_HOST_DEVICE constexpr int row_of(int width) {
  return width + 4;
}
EDDY_HOST_DEVICE constexpr int tile_numbers(int rows, int width) {
  return rows * row_of(width);
}

constexpr int kEveryRow = 1 << 30;  // more rows than a tensor has

// Rows of keys or values of one key head, or of their gradients, by the number of the key. Rows below
// `past_rows` are in one tensor (AttentionArgs::past), the others in another; both pointers are shifted as if
// they started at key 0. Chosen row by row, so a tile may have rows of both.
template <class T>
struct KeyRows {
  T *past, *own;
  std::int64_t past_stride, own_stride, past_rows;

  // For the head `kv_head` of a sequence.
  template <class Void>
  __device__ KeyRows(const AttentionArgs& args, std::int64_t batch, std::int64_t kv_head, Void* past_data,
                     const AttentionStrides& past_strides, Void* data, const AttentionStrides& strides)
      : past(static_cast<T*>(past_data) + batch * past_strides.batch + kv_head * past_strides.head),
        own(static_cast<T*>(data) + batch * strides.batch + kv_head * strides.head),
        past_stride(past_strides.time),
        own_stride(strides.time),
        past_rows(args.past) {}

  __device__ T* at(std::int64_t row) const {
    const bool before = row < past_rows;
    return (before ? past : own) + row * (before ? past_stride : own_stride);
  }
  // Some address in a tensor that has rows.
  __device__ T* any_row() const { return past_rows > 0 ? past : own; }
  // Returns whether rows first .. first + count - 1 are in one tensor, and stores where row 0 of it would be, the
  // stride of its rows, and which rows are in it or in none: begin .. end - 1.
  __device__ bool in_one(int first, int count, T*& start, std::int64_t& stride, int& begin, int& end) const {
    const bool before = first + count <= past_rows, one = before || first >= past_rows;
    start = before ? past : own;
    stride = before ? past_stride : own_stride;
    begin = before ? -kEveryRow : static_cast<int>(past_rows);
    end = before ? static_cast<int>(past_rows) : one ? kEveryRow : begin;
    return one;
  }
};

// Where the gradients of keys and values go. Rows whose tensor is null are not written.
template <class T>
struct KeyGradients {
  KeyRows<T> rows;
  bool past_wanted, own_wanted;

  __device__ T* at(std::int64_t row) const {
    return (row < rows.past_rows ? past_wanted : own_wanted) ? rows.at(row) : nullptr;
  }
};
template <class T>
__device__ KeyGradients<T> key_gradients(const AttentionBackwardArgs& args, std::int64_t batch,
                                         std::int64_t kv_head) {
  return {
      KeyRows<T>(args.forward, batch, kv_head, args.past_dk, args.past_dk_strides, args.dk, args.dk_strides),
      args.past_dk != nullptr, args.dk != nullptr};
}
template <class T>
__device__ KeyGradients<T> value_gradients(const AttentionBackwardArgs& args, std::int64_t batch,
                                           std::int64_t kv_head) {
  return {
      KeyRows<T>(args.forward, batch, kv_head, args.past_dv, args.past_dv_strides, args.dv, args.dv_strides),
      args.past_dv != nullptr, args.dv != nullptr};
}
// Returns whether the gradient of one of the keys or values first .. last is wanted.
__device__ inline bool wants_keys(const AttentionBackwardArgs& args, std::int64_t first, std::int64_t last) {
  return (first < args.forward.past && (args.past_dk != nullptr || args.past_dv != nullptr)) ||
         (last >= args.forward.past && (args.dk != nullptr || args.dv != nullptr));
}

// The factors with which the rows of one head from `first` on became unit vectors. Earlier ones, past
// keys, did not.
struct UnitScales {
  const float* data;  // null if no row did
  std::int64_t stride, first;

  __device__ float at(std::int64_t row) const { return data[(row - first) * stride]; }
};
__device__ inline UnitScales query_scales(const AttentionBackwardArgs& args, std::int64_t batch,
                                          std::int64_t head) {
  const std::int64_t heads = args.forward.heads;
  if (args.q_unit == nullptr) return {};
  return {args.q_unit + batch * args.forward.queries * heads + head, heads, 0};
}
__device__ inline UnitScales key_scales(const AttentionBackwardArgs& args, std::int64_t batch,
                                        std::int64_t kv_head) {
  const std::int64_t heads = args.forward.kv_heads, past = args.forward.past;
  if (args.k_unit == nullptr) return {};
  return {args.k_unit + batch * (args.forward.keys - past) * heads + kv_head, heads, past};
}

// One head of one sequence, and what its pairs share.
template <class T>
struct Head {
  const AttentionArgs& args;
  std::int64_t batch, head, kv_head;
  std::int64_t offset;  // distance of query 0 and key 0
  float factor;         // scale of the scores

  __device__ Head(const AttentionArgs& a, std::int64_t b, std::int64_t h)
      : Head(a, b, h, h / (a.heads / a.kv_heads)) {}
  __device__ Head(const AttentionArgs& a, std::int64_t b, std::int64_t h, std::int64_t kv_h)
      : args(a), batch(b), head(h), kv_head(kv_h), offset(a.keys - a.queries) {
    const double own =
        a.head_scale == nullptr ? 1.0 : static_cast<double>(static_cast<const float*>(a.head_scale)[h]);
    factor = static_cast<float>(a.scale * own);
  }

  __device__ const T* queries() const {
    return static_cast<const T*>(args.q) + batch * args.q_strides.batch + head * args.q_strides.head;
  }
  __device__ KeyRows<const T> keys() const {
    return {args, batch, kv_head, args.past_k, args.past_k_strides, args.k, args.k_strides};
  }
  __device__ KeyRows<const T> values() const {
    return {args, batch, kv_head, args.past_v, args.past_v_strides, args.v, args.v_strides};
  }
  // Index in the output, [batch, queries, heads, head_size].
  __device__ std::int64_t output_at(std::int64_t query) const {
    return ((batch * args.queries + query) * args.heads + head) * args.head_size;
  }
  __device__ std::int64_t output_stride() const { return args.heads * args.head_size; }
  // The gradient of the output at query 0; rows are doutput_strides.time apart.
  __device__ const T* doutputs(const AttentionBackwardArgs& gradient) const {
    return static_cast<const T*>(gradient.doutput) + batch * gradient.doutput_strides.batch +
           head * gradient.doutput_strides.head;
  }
  // Index in [batch, heads, queries].
  __device__ std::int64_t row_at(std::int64_t query) const {
    return (batch * args.heads + head) * args.queries + query;
  }
  __device__ bool sees(std::int64_t query, std::int64_t key) const {
    const std::int64_t distance = query + offset - key;
    return query < args.queries && key >= 0 && key < args.keys && distance >= args.least &&
           distance <= args.most;
  }
  // bias[h, distance] of a visible pair; 0 without a table.
  __device__ float bias(std::int64_t distance) const {
    if (args.bias == nullptr) return 0.0f;
    return static_cast<const float*>(args.bias)[head * args.bias_stride + distance];
  }
  // The dropout factor of a pair, 0 or 1 / (1 - dropout).
  __device__ float keep(std::int64_t query, std::int64_t key) const {
    const std::uint32_t word =
        random_word(args.dropout_key, static_cast<std::uint64_t>(row_at(query) * args.keys + key));
    return (word >> 8) >= args.drop_below ? static_cast<float>(args.keep_scale) : 0.0f;
  }
};

// The delta of a query that sees a single key: its softmax is constant, so its scores have no gradient, where
// rounding would leave one.
inline constexpr float kNoGradient = 0x1.fffffep127f;
__device__ inline bool sees_one_key(const AttentionArgs& args, std::int64_t query) {
  const std::int64_t nearest = query + args.keys - args.queries;  // the key at distance 0
  return min(args.keys, nearest - args.least + 1) - max(std::int64_t{0}, nearest - args.most) == 1;
}

// Rows of a matrix whose entries are contiguous.
template <class T>
struct MatrixRows {
  const T* data;
  std::int64_t stride;
  __device__ const T* at(std::int64_t row) const { return data + row * stride; }
  __device__ const T* any_row() const { return data; }
  __device__ bool in_one(int, int, const T*& start, std::int64_t& of_row, int& begin, int& end) const {
    start = data;
    of_row = stride;
    begin = -kEveryRow;
    end = kEveryRow;
    return true;
  }
};

// Loads rows first .. first + Count - 1 into a tile. Rows outside [0, end) and entries from `width` on become
// zeros.
template <int H, int Count, class From>
__device__ void load_rows(const From& from, std::int64_t first, std::int64_t end, std::int64_t width,
                          float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < Count * H; i += kThreads) {
    const int row = i / H, column = i % H;
    const std::int64_t at = first + row;
    const bool there = at >= 0 && at < end && column < width;
    to[row * row_of(H) + column] = there ? static_cast<float>(from.at(at)[column]) : 0.0f;
  }
}
template <int H, int Count, class T>
__device__ void load_rows(const T* from, std::int64_t stride, std::int64_t first, std::int64_t end,
                          std::int64_t width, float* to) {
  load_rows<H, Count>(MatrixRows<T>{from, stride}, first, end, width, to);
}

__device__ inline Four load_four(const float* from) {
  return *reinterpret_cast<const Four*>(from);
}
__device__ inline float dot(const Four& a, const Four& b, float sum) {
#pragma unroll
  for (int e = 0; e < 4; ++e) sum += a.at[e] * b.at[e];
  return sum;
}

// sums[i][j] += row i of `left` . row j of `right`.
template <int H, int R, int C>
__device__ void add_products(const float* left, const float* right, float (&sums)[R][C]) {
#pragma unroll 2
  for (int e = 0; e < H; e += 4) {
    Four a[R], b[C];
#pragma unroll
    for (int i = 0; i < R; ++i) a[i] = load_four(left + (thread_row() + kSide * i) * row_of(H) + e);
#pragma unroll
    for (int j = 0; j < C; ++j) b[j] = load_four(right + (thread_column() + kSide * j) * row_of(H) + e);
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < C; ++j) sums[i][j] = dot(a[i], b[j], sums[i][j]);
  }
}

// sums[i][j] += row i of `left` . row `base` + i - j of a piece of Count diagonal rows, for pairs whose row
// is in the piece.
template <int H, int Count, int R, int C>
__device__ void add_diagonal_products(const float* left, const float* piece, int base, float (&sums)[R][C]) {
#pragma unroll
  for (int i = 0; i < R; ++i)
#pragma unroll
    for (int j = 0; j < C; ++j) {
      const int row = thread_row() + kSide * i, place = base + row - (thread_column() + kSide * j);
      if (place < 0 || place >= Count) continue;
      float sum = 0;
#pragma unroll 2
      for (int e = 0; e < H; e += 4)
        sum = dot(load_four(left + row * row_of(H) + e), load_four(piece + place * row_of(H) + e), sum);
      sums[i][j] += sum;
    }
}

// A thread's part of the rows of a result: H / 16 entries of each, W neighbours at a time.
template <int H>
struct Part {
  static constexpr int kEntries = H / kSide;
  static constexpr int kNeighbours = kEntries < 4 ? kEntries : 4;
  struct alignas(4 * kNeighbours) Neighbours {
    float at[kNeighbours];
  };
  __device__ static int column(int entry) {
    return entry / kNeighbours * kSide * kNeighbours + thread_column() * kNeighbours + entry % kNeighbours;
  }
};

// sums[entries of row i] += weight * the same entries of a row in shared memory.
template <int H, int R>
__device__ void add_row(const float (&weights)[R], const float* row, float (&sums)[R][Part<H>::kEntries]) {
  using P = Part<H>;
#pragma unroll
  for (int entry = 0; entry < P::kEntries; entry += P::kNeighbours) {
    const auto values = *reinterpret_cast<const typename P::Neighbours*>(row + P::column(entry));
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int e = 0; e < P::kNeighbours; ++e) sums[i][entry + e] += weights[i] * values.at[e];
  }
}

// sums of row i += sum over k < Count of weights[row i][k] values[k].
template <int H, int Count, int R>
__device__ void add_mixed(const float* weights, const float* values, float (&sums)[R][Part<H>::kEntries]) {
#pragma unroll 1
  for (int k = 0; k < Count; k += 4) {
    Four four[R];
#pragma unroll
    for (int i = 0; i < R; ++i) four[i] = load_four(weights + (thread_row() + kSide * i) * row_of(Count) + k);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float of_k[R];
#pragma unroll
      for (int i = 0; i < R; ++i) of_k[i] = four[i].at[e];
      add_row<H>(of_k, values + (k + e) * row_of(H), sums);
    }
  }
}

// sums of row i += sum over columns j of weights[row i][j] times diagonal row `base` + i - j, for the Count
// rows of a piece.
template <int H, int Columns, int Count, int R>
__device__ void add_diagonal_mixed(const float* weights, const float* piece, int base,
                                   float (&sums)[R][Part<H>::kEntries]) {
#pragma unroll 1
  for (int place = 0; place < Count; ++place) {
    float of_place[R];
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int row = thread_row() + kSide * i, column = base + row - place;
      of_place[i] = column >= 0 && column < Columns ? weights[row * row_of(Columns) + column] : 0.0f;
    }
    add_row<H>(of_place, piece + place * row_of(H), sums);
  }
}

// Writes a thread's entries of its rows: row i of the tile is row first + i of the matrix, of which rows
// before `end` and entries before `width` exist.
template <int H, int R, class T>
__device__ void store_rows(const float (&sums)[R][Part<H>::kEntries], std::int64_t first, std::int64_t end,
                           std::int64_t width, T* to, std::int64_t stride) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const std::int64_t row = first + thread_row() + kSide * i;
    if (row >= end) continue;
#pragma unroll
    for (int entry = 0; entry < Part<H>::kEntries; ++entry) {
      const int column = Part<H>::column(entry);
      if (column < width) to[row * stride + column] = static_cast<T>(sums[i][entry]);
    }
  }
}

// The same, added to what is there.
template <int H, int R>
__device__ void add_rows(const float (&sums)[R][Part<H>::kEntries], std::int64_t first, std::int64_t end,
                         std::int64_t width, float* to, std::int64_t stride) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const std::int64_t row = first + thread_row() + kSide * i;
    if (row >= end) continue;
#pragma unroll
    for (int entry = 0; entry < Part<H>::kEntries; ++entry) {
      const int column = Part<H>::column(entry);
      if (column < width) to[row * stride + column] += sums[i][entry];
    }
  }
}

// As store_rows, for the gradients of keys or values that are wanted.
template <int H, int R, class T>
__device__ void store_rows(const float (&sums)[R][Part<H>::kEntries], std::int64_t first, std::int64_t end,
                           std::int64_t width, const KeyGradients<T>& to) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const std::int64_t row = first + thread_row() + kSide * i;
    if (row >= end) continue;
    T* const place = to.at(row);
    if (place == nullptr) continue;
#pragma unroll
    for (int entry = 0; entry < Part<H>::kEntries; ++entry) {
      const int column = Part<H>::column(entry);
      if (column < width) place[column] = static_cast<T>(sums[i][entry]);
    }
  }
}

// Writes the dropout factor of each of a thread's pairs to the pair's place in shared memory, for the same
// thread to read. It is a separate loop because in the unrolled ones the Philox words would be most of the
// code. `key_of` returns the key of a query and a column.
template <int R, int C, class T, class KeyOf>
__device__ void write_keep(const Head<T>& head, std::int64_t first_query, float* to, int row_step,
                           int column_step, KeyOf&& key_of) {
  if (head.args.drop_below == 0) return;
#pragma unroll 1
  for (int pair = 0; pair < R * C; ++pair) {
    const int row = thread_row() + kSide * (pair / C), column = thread_column() + kSide * (pair % C);
    const std::int64_t query = first_query + row;
    to[row * row_step + column * column_step] = head.keep(query, key_of(query, column));
  }
}

// Combines the values of the 16 threads that share a row of the tile. All threads of the block must call it.
template <class Combine>
__device__ float reduce_row(float value, Combine combine) {
#pragma unroll
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

// Turns the gradients of unit vectors, of a thread's entries of its rows, into those of the vectors before:
// dx = r (dy - y sum(dy y)). `unit` has the unit vectors. All threads of the block must call it.
template <int H, int R, class From>
__device__ void through_unit_norm(const From& unit, const UnitScales& scales, std::int64_t first,
                                  std::int64_t end, std::int64_t width, float (&sums)[R][Part<H>::kEntries]) {
  if (scales.data == nullptr) return;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const std::int64_t row = first + thread_row() + kSide * i;
    const bool scaled = row >= scales.first && row < end;
    const auto y = [&](int entry) {
      const int column = Part<H>::column(entry);
      return scaled && column < width ? static_cast<float>(unit.at(row)[column]) : 0.0f;
    };
    float product = 0;
#pragma unroll
    for (int entry = 0; entry < Part<H>::kEntries; ++entry) product = fmaf(sums[i][entry], y(entry), product);
    product = reduce_row(product, Plus{});
    if (!scaled) continue;
    const float scale = scales.at(row);
#pragma unroll
    for (int entry = 0; entry < Part<H>::kEntries; ++entry)
      sums[i][entry] = scale * fmaf(-y(entry), product, sums[i][entry]);
  }
}

EDDY_HOST_DEVICE constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Calls run(type, size) with a null pointer to the storage type and a constant for the kernel's head size.
template <class Run>
void for_type_and_size(const char* kernel, Dtype dtype, std::int64_t head_size, Run&& run) {
  const auto for_size = [&](auto* type) {
    if (head_size <= 32)
      run(type, std::integral_constant<int, 32>{});
    else if (head_size <= 64)
      run(type, std::integral_constant<int, 64>{});
    else if (head_size <= 128)
      run(type, std::integral_constant<int, 128>{});
    else if (head_size <= 256)
      run(type, std::integral_constant<int, 256>{});
    else
      throw ShapeError("attention: head_size " + std::to_string(head_size) +
                       " on cuda (at most 256; use more heads, or compute on the cpu)");
  };
  if (dtype == Dtype::f32) return for_size(static_cast<float*>(nullptr));
  if (dtype == Dtype::bf16) return for_size(static_cast<bf16*>(nullptr));
  refuse_dtype(kernel, dtype);
}

}  // namespace
}  // namespace eddy::cuda
