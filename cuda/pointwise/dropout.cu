// Dropout. The kernels draw the same Philox words as the CPU, so the same elements are dropped.
//
// A mask per element:
//   mapping        one thread per 16 bytes: one Philox counter, whose four words serve four neighbouring
//                  elements, or two for eight of bf16. The first and the last thread may serve fewer; if the
//                  first element is not a multiple of four, addresses are unaligned and elements are accessed
//                  one by one.
//   shared memory  none
//   bytes moved    x and y once (y twice with beta 1), the least; the mask is not stored
//
// A mask that repeats over sequences:
//   mapping        one thread per 16 bytes of columns of a position, which draws their words once for all
//                  sequences; one column to a thread if rows do not start at such multiples
//   shared memory  none
//   bytes moved    x and y once, the least
#include <cmath>

#include "cuda/core/numbers.cuh"
#include "cuda/core/random.cuh"
#include "ops/pointwise/dropout.h"

namespace eddy::cuda {
namespace {

// The words of a group, from the counter of its first element on.
template <class T>
struct GroupWords {
  __device__ GroupWords(const RandomKey& key, std::uint64_t counter) {
#pragma unroll
    for (int j = 0; j < kGroup<T>; j += 4) {
      const Philox4 four = key.words(counter + j / 4);
#pragma unroll
      for (int k = 0; k < 4; ++k) at[j + k] = four.word[k];
    }
  }
  std::uint32_t at[kGroup<T>];
};

template <class T>
struct DropoutLaunch {
  std::int64_t n;
  const T* x;
  T* y;
  RandomKey key;
  std::uint64_t first_counter;
  int skipped;               // words of the first counter that belong to elements before the first
  bool grouped;              // groups are aligned
  std::uint32_t drop_below;  // an element is dropped if the upper 24 bits of its word are below this
  float scale;
  bool adds;  // beta 1
};

template <class T>
__device__ float kept(const DropoutLaunch<T>& args, std::uint32_t word, float x) {
  return (word >> 8) >= args.drop_below ? args.scale * x : 0.0f;
}

template <class T>
__global__ void dropout_kernel(DropoutLaunch<T> args) {
  const std::int64_t groups = (args.n + args.skipped + kGroup<T> - 1) / kGroup<T>;
  for (std::int64_t i = first_item(); i < groups; i += item_step()) {
    const GroupWords<T> words(args.key, args.first_counter + static_cast<std::uint64_t>(i * kGroup<T> / 4));
    const std::int64_t start = kGroup<T> * i - args.skipped;
    if (args.grouped && start + kGroup<T> <= args.n) {
      const Group<T> x = read_group(args.x + start);
      Group<T> y = args.adds ? read_group(args.y + start) : Group<T>{};
#pragma unroll
      for (int j = 0; j < kGroup<T>; ++j) {
        const float value = kept(args, words.at[j], x.at[j]);
        y.at[j] = args.adds ? y.at[j] + value : value;
      }
      write_group(args.y + start, y);
      continue;
    }
#pragma unroll
    for (int j = 0; j < kGroup<T>; ++j) {
      const std::int64_t at = start + j;
      if (at < 0 || at >= args.n) continue;
      const float value = kept(args, words.at[j], static_cast<float>(args.x[at]));
      add_to(args.y[at], args.adds ? 1.0f : 0.0f, value);
    }
  }
}

std::uint32_t threshold_of(double p) {
  return static_cast<std::uint32_t>(std::ceil(p * 0x1p24));  // exact: p in [0, 1)
}

template <class T>
void dropout(const DropoutArgs& args) {
  DropoutLaunch<T> launched;
  launched.n = args.n;
  launched.x = static_cast<const T*>(args.x);
  launched.y = static_cast<T*>(args.y);
  launched.key = args.key;
  launched.first_counter = args.first_element >> 2;
  launched.skipped = static_cast<int>(args.first_element & 3);
  launched.grouped = launched.skipped == 0 && aligned(args.x) && aligned(args.y);
  launched.drop_below = threshold_of(args.p);
  launched.scale = static_cast<float>(args.scale);
  launched.adds = args.beta != 0;
  launch("dropout", dropout_kernel<T>, grid_for(args.n + 3, kGroup<T> * kThreads), kThreads, launched);
}

template <class T>
struct TiledDropoutLaunch {
  std::int64_t batch, time, dim, tile, first;
  const T* x;
  T* y;
  RandomKey key;
  std::uint32_t drop_below;
  float scale;

  __device__ float factor(std::uint32_t word) const { return (word >> 8) >= drop_below ? scale : 0.0f; }
  __device__ std::uint64_t word(std::int64_t t, std::int64_t column) const {
    return static_cast<std::uint64_t>((first + t) % tile * dim + column);
  }
};

template <class T>
__global__ void tiled_dropout_kernel(TiledDropoutLaunch<T> args) {
  constexpr int kAtOnce = 4;  // sequences that are read before any is written
  const std::int64_t groups = args.dim / kGroup<T>, row = args.time * args.dim;
  for (std::int64_t i = first_item(); i < args.time * groups; i += item_step()) {
    const std::int64_t t = i / groups, column = i % groups * kGroup<T>, at = t * args.dim + column;
    const GroupWords<T> words(args.key, args.word(t, column) >> 2);
    float mask[kGroup<T>];
#pragma unroll
    for (int j = 0; j < kGroup<T>; ++j) mask[j] = args.factor(words.at[j]);
    for (std::int64_t b = 0; b < args.batch; b += kAtOnce) {
      Group<T> read[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) read[k] = read_group(args.x + min(b + k, args.batch - 1) * row + at);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (b + k >= args.batch) break;
#pragma unroll
        for (int j = 0; j < kGroup<T>; ++j) read[k].at[j] *= mask[j];
        write_group(args.y + (b + k) * row + at, read[k]);
      }
    }
  }
}

template <class T>
__global__ void odd_tiled_dropout_kernel(TiledDropoutLaunch<T> args) {
  const std::int64_t row = args.time * args.dim;
  for (std::int64_t i = first_item(); i < row; i += item_step()) {
    const float mask = args.factor(random_word(args.key, args.word(i / args.dim, i % args.dim)));
    for (std::int64_t at = i; at < args.batch * row; at += row)
      args.y[at] = static_cast<T>(static_cast<float>(args.x[at]) * mask);
  }
}

template <class T>
void tiled_dropout(const TiledDropoutArgs& args) {
  const TiledDropoutLaunch<T> launched{args.batch,
                                       args.time,
                                       args.dim,
                                       args.tile,
                                       args.first,
                                       static_cast<const T*>(args.x),
                                       static_cast<T*>(args.y),
                                       args.key,
                                       threshold_of(args.p),
                                       static_cast<float>(args.scale)};
  const bool grouped = args.dim % kGroup<T> == 0 && aligned(args.x) && aligned(args.y);
  const std::int64_t items = args.time * args.dim / (grouped ? kGroup<T> : 1);
  launch("tiled_dropout", grouped ? tiled_dropout_kernel<T> : odd_tiled_dropout_kernel<T>,
         grid_for(items, kThreads), kThreads, launched);
}

}  // namespace

void dropout(const DropoutArgs& args) {
  for_activations("dropout", args.dtype, [&](auto* type) { dropout<StoredIn<decltype(type)>>(args); });
}

void tiled_dropout(const TiledDropoutArgs& args) {
  for_activations("tiled_dropout", args.dtype,
                  [&](auto* type) { tiled_dropout<StoredIn<decltype(type)>>(args); });
}

}  // namespace eddy::cuda
