// What the attention kernels on tensor cores do with the scores of a warp: masks, dropout, bias, the online softmax,
// and the rows of a result.
//
// A warp works on 16 rows of scores and N columns. With g = lane / 4 and t = lane % 4 a thread has the pairs
//
//   numbers[n][e] = (row g + 8 (e / 2), column 8 n + 2 t + e % 2)
//
// as the operand C of cuda/core/warp_matrix.cuh, and of a result [16 x H] the same two rows, with the columns of
// ResultColumns. wgmma distributes its accumulators over a warp in the same way.
#pragma once

#include "cuda/attention/attention.cuh"
#include "cuda/core/numbers.cuh"
#include "cuda/core/team.cuh"
#include "cuda/core/warp_matrix.cuh"

namespace eddy::cuda {
namespace {

constexpr float kLogOf2 = 0.693147181f;

__device__ inline int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ inline int warp() {
  return static_cast<int>(threadIdx.x) / 32;
}

// A thread's first row of its warp's 16, and its first column of 8.
__device__ inline int own_row() {
  return lane() / 4;
}
__device__ inline int own_column() {
  return lane() % 4 * 2;
}
// The row of pair number 4 n + e.
__device__ inline int pair_row(int pair) {
  return own_row() + (pair & 2) * 4;
}
__device__ inline int pair_column(int pair) {
  return pair / 4 * 8 + own_column() + (pair & 1);
}

// ---- masks, dropout, bias

// One bit for each of a thread's N / 2 pairs, in order. A separate loop, because in unrolled ones it would be
// most of the code.
template <int N, class Test>
__device__ std::uint32_t pair_bits(Test&& test) {
  static_assert(N <= 64);
  std::uint32_t bits = 0;
#pragma unroll 1
  for (int pair = 0; pair < N / 2; ++pair)
    if (test(pair_row(pair), pair_column(pair))) bits |= 1u << pair;
  return bits;
}

// Which pairs of a tile exist, relative to a warp's row 0: those with row < rows, column < columns and
// least <= row - column <= most.
struct Limits {
  int rows, columns, least, most;

  // The arguments may be far outside a tile; sizes, and so distances, are far below 2^31.
  __device__ Limits(std::int64_t row_count, std::int64_t column_count, std::int64_t lowest,
                    std::int64_t highest)
      : rows(static_cast<int>(row_count)),
        columns(static_cast<int>(column_count)),
        least(static_cast<int>(lowest)),
        most(static_cast<int>(highest)) {}
  template <int N>
  __device__ std::uint32_t bits() const {
    if (rows >= 16 && columns >= N && least <= 1 - N && most >= 15) return 0xffffffffu;
    std::uint32_t bits = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A row's columns that are visible have no gap: a bit for each column, of which a thread has two of every eight.
      const int row = own_row() + 8 * half, low = max(0, row - most),
                high = min(min(columns, N) - 1, row - least);
      const std::uint64_t seen =
          row >= rows || high < low ? 0 : ~std::uint64_t{0} >> (63 - (high - low)) << low;
      bits |= nibbles(seen >> own_column() & 0x0303030303030303u) << 2 * half;
    }
    return bits;
  }

 private:
  // The low half of each of 8 bytes whose high halves are 0.
  __device__ static std::uint32_t nibbles(std::uint64_t bytes) {
    bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ffu;
    bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffffu;
    return static_cast<std::uint32_t>(bytes | bytes >> 16);
  }
};

__device__ inline bool has(std::uint32_t bits, int pair) {
  return (bits >> pair & 1u) != 0;
}
// Whether all pairs of a warp are seen and kept: then nothing is selected by them.
__device__ inline bool all_pairs(std::uint32_t seen, std::uint32_t kept) {
  return __all_sync(0xffffffffu, (seen & kept) == 0xffffffffu) != 0;
}

// kept_bits where keys 4 i .. 4 i + 3 of a query have the four words of one block of random numbers. Those words are
// needed by two neighbours of a row, or by four of a column with KeysInRows. Each makes the words of another block and
// all exchange what they keep of them.
template <int N, bool KeysInRows, class T>
__device__ std::uint32_t kept_fours(const Head<T>& head, std::int64_t query, std::int64_t key) {
  const RandomKey& words = head.args.dropout_key;
  const std::uint32_t drop_below = head.args.drop_below;
  // Which of the blocks of every eight columns this lane makes: of row half `mine` between two neighbours; of pair
  // number `mine` between four.
  const int mine = KeysInRows ? own_row() % 4 : lane() % 2;
  const std::int64_t row = KeysInRows ? query + own_column() + mine % 2 : query + own_row() + 8 * mine,
                     first = KeysInRows ? key + own_row() / 4 * 4 + mine / 2 * 8 : key + own_column() / 4 * 4,
                     step = KeysInRows ? 8 * head.args.keys : 8;
  std::uint64_t block = static_cast<std::uint64_t>(head.row_at(row) * head.args.keys + first) / 4;
  std::uint32_t made = 0;  // 4 bits for every 8 columns
#pragma unroll 2
  for (int n = 0; n < N / 8; ++n) {
    const Philox4 four = words.words(block);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      made |= static_cast<std::uint32_t>(four.word[i] >> 8 >= drop_below) << (4 * n + i);
    block += static_cast<std::uint64_t>(step) / 4;
  }
  std::uint32_t kept = 0;
  if constexpr (KeysInRows) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair)
      kept |= (__shfl_sync(0xffffffffu, made, (lane() & ~12) | pair << 2) >> own_row() % 4 & 0x11111111u)
              << pair;
  } else {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, made, 1);
    const int word = own_column() % 4;  // 0 or 2
    kept = ((mine == 0 ? made : other) >> word & 0x33333333u) |
           ((mine == 0 ? other : made) >> word & 0x33333333u) << 2;
  }
  return kept;
}

// Which of a warp's pairs dropout keeps: queries in rows from `query` on and keys in columns from `key` on,
// or the other way round with KeysInRows.
template <int N, bool KeysInRows = false, class T>
__device__ std::uint32_t kept_bits(const Head<T>& head, std::int64_t query, std::int64_t key) {
  if (head.args.drop_below == 0) return 0xffffffffu;
  if (head.args.keys % 4 == 0 && key % 4 == 0) return kept_fours<N, KeysInRows>(head, query, key);
  return pair_bits<N>([&head, query, key](int row, int column) {
    return head.keep(query + (KeysInRows ? column : row), key + (KeysInRows ? row : column)) != 0.0f;
  });
}

// scores += bias of the distance base + sign (row - column). A pair that is not visible may get any entry.
template <int N, class T>
__device__ void add_bias(const Head<T>& head, std::int64_t base, int sign, float (&scores)[N / 8][4]) {
  const AttentionArgs& args = head.args;
  const float* const bias = static_cast<const float*>(args.bias) + head.head * args.bias_stride;
  constexpr std::int64_t kFar = 1 << 30;  // more than a table has entries; 32 bits save registers
  const int last = static_cast<int>(min(args.distances - 1, kFar)),
            from = static_cast<int>(max(-kFar, min(base, kFar)));
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      scores[n][e] += bias[max(0, min(from + sign * (pair_row(e) - pair_column(4 * n + e)), last))];
}

// ---- softmax and results

// Combines a value over the four threads that share a row.
template <class Combine>
__device__ float reduce_quad(float value, Combine combine) {
  value = combine(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return combine(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

// numbers of row half h *= factors[h].
template <int Tiles>
__device__ void scale_rows(float (&numbers)[Tiles][4], const float (&factors)[2]) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) numbers[n][e] *= factors[e / 2];
}

// The online softmax over tiles of keys: for each of a thread's two rows a score, in units of log 2, and the
// thread's part of the sum of exponentials relative to it. It is the largest score so far or at most kSlack less:
// it rises seldom, so the results so far are seldom scaled. The exponentials and their sums stay far from what f32 and
// bf16 can hold, and the quotient is the same.
struct RunningSoftmax {
  static constexpr float kSlack = 8;
  float maximum[2] = {minus_infinity(), minus_infinity()}, sum[2] = {};

  // Turns scores into weights, without the factor of those that dropout keeps; `factor` scales the scores to units of
  // log 2. Returns, for a whole warp, whether the results so far shrink, by `correction`.
  template <int N>
  __device__ bool weigh(float (&scores)[N / 8][4], std::uint32_t seen, std::uint32_t kept, float factor,
                        float (&correction)[2]) {
    if (!(factor > 0)) {  // below, the largest score has the largest exponential
      const float factors[2] = {factor, factor};
      scale_rows(scores, factors);
      factor = 1;
    }
    return all_pairs(seen, kept) ? weigh_pairs<N, true>(scores, seen, kept, factor, correction)
                                 : weigh_pairs<N, false>(scores, seen, kept, factor, correction);
  }
  template <int N, bool All>
  __device__ bool weigh_pairs(float (&scores)[N / 8][4], std::uint32_t seen, std::uint32_t kept, float factor,
                              float (&correction)[2]) {
    float tops[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = minus_infinity();
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          if (!All && !has(seen, 4 * n + e)) scores[n][e] = minus_infinity();
          top = fmaxf(top, scores[n][e]);
        }
      tops[half] = reduce_quad(top, Larger{}) * factor;
    }
    const bool rises =
        __any_sync(0xffffffffu, tops[0] > maximum[0] + kSlack || tops[1] > maximum[1] + kSlack) != 0;
    if (rises) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float top = fmaxf(maximum[half], tops[half]);
        correction[half] = fast_exp2(maximum[half] - (top == minus_infinity() ? 0.0f : top));
        maximum[half] = top;
        sum[half] *= correction[half];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float shift = maximum[half] == minus_infinity() ? 0.0f : maximum[half];
      float added = 0;
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const float p = fast_exp2(fmaf(scores[n][e], factor, -shift));
          added += p;
          scores[n][e] = All || has(kept, 4 * n + e) ? p : 0.0f;
        }
      sum[half] += added;
    }
    return rises;
  }
  // Writes log_sum of the rows from `first` on, and their results.
  template <int H, class T>
  __device__ void store(const Head<T>& head, std::int64_t first, float (&mixed)[H / 8][4]) const;
};

// Which columns of a result, in tensors of T, a thread has in either of its rows: runs of neighbours. Products of bf16
// give it pairs of every eight columns. Those of TF32 take their right operand 16 bytes at a time
// (add_row_mixes, cuda/attention/attention_tensor_core.cuh), which gives it eight of every 32.
template <class T>
struct ResultColumns {
  static constexpr int kNeighbours = std::is_same_v<T, bf16> ? 2 : 8, kStep = 4 * kNeighbours;
  __device__ static int first(int run) { return run * kStep + lane() % 4 * kNeighbours; }
  // Whether a run is among `width` columns, a multiple of 16. Where steps divide that, all threads say the same.
  __device__ static bool exists(int run, int width) {
    return (16 % kStep == 0 ? run * kStep : first(run)) < width;
  }
  // Neighbour j of a run in row half `half`.
  template <class Number, int Tiles>
  __device__ static Number& at(Number (&numbers)[Tiles][4], int half, int run, int j) {
    if constexpr (std::is_same_v<T, bf16>)
      return numbers[run][2 * half + j];
    else
      return numbers[4 * run + j % 4][2 * half + j / 4];
  }
};

// Writes a thread's numbers of its two rows to a tensor of T, bf16 or f32. Row r of the warp is row first + r and
// starts at row_at(first + r), a T*; it is skipped if that is null. Rows before `end` and entries before `width`, a
// multiple of 16, exist.
template <int H, class RowAt>
__device__ void store_tensor_rows(const float (&sums)[H / 8][4], std::int64_t first, std::int64_t end,
                                  int width, RowAt&& row_at) {
  using T = std::remove_pointer_t<decltype(row_at(first))>;
  using Columns = ResultColumns<T>;
  // What is written by one instruction.
  constexpr int kAtOnce = std::is_same_v<T, bf16> ? 2 : 4;
  struct alignas(kAtOnce * sizeof(T)) Whole {
    T at[kAtOnce];
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first + own_row() + 8 * half;
    if (row >= end) continue;
    T* const start = row_at(row);
    if (start == nullptr) continue;
    T* const own = start + Columns::first(0);
    const bool whole = reinterpret_cast<std::uintptr_t>(own) % sizeof(Whole) == 0;
#pragma unroll
    for (int run = 0; run < H / Columns::kStep; ++run) {
      if (!Columns::exists(run, width)) continue;
      T* const place = own + run * Columns::kStep;
#pragma unroll
      for (int j = 0; j < Columns::kNeighbours; j += kAtOnce) {
        const auto number = [&](int e) { return Columns::at(sums, half, run, j + e); };
        if (!whole) {
#pragma unroll
          for (int e = 0; e < kAtOnce; ++e) place[j + e] = static_cast<T>(number(e));
        } else if constexpr (std::is_same_v<T, bf16>) {
          *reinterpret_cast<std::uint32_t*>(place) = pack(number(0), number(1));
        } else {
          const Whole four{{number(0), number(1), number(2), number(3)}};
          *reinterpret_cast<Whole*>(place + j) = four;
        }
      }
    }
  }
}

template <int H, class T>
__device__ void RunningSoftmax::store(const Head<T>& head, std::int64_t first,
                                      float (&mixed)[H / 8][4]) const {
  const AttentionArgs& args = head.args;
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = reduce_quad(sum[half], Plus{});
    inverse[half] =
        total == 0.0f ? 0.0f : static_cast<float>(args.keep_scale) / total;  // 0: the query sees no key
    const std::int64_t query = first + own_row() + 8 * half;
    if (own_column() == 0 && query < args.queries)
      static_cast<float*>(args.log_sum)[head.row_at(query)] =
          total == 0.0f ? minus_infinity() : (maximum[half] + log2f(total)) * kLogOf2;
  }
  scale_rows(mixed, inverse);
  store_tensor_rows<H>(mixed, first, args.queries, static_cast<int>(args.head_size),
                       [&](std::int64_t row) { return static_cast<T*>(args.output) + head.output_at(row); });
}

}  // namespace
}  // namespace eddy::cuda
