// CPU kernels of dropout: vector code draws 64 words at a time, then one pass handles their elements. The ten
// Philox rounds limit the speed (0.7 ns for an element with AVX-512), not memory. For a tiled mask, each
// piece is drawn once and applied everywhere it repeats.
#include "ops/pointwise/dropout.h"

#include <math.h>

#include "ops/cpu/isa.h"
#include "ops/cpu/philox_words.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements per chunk

// uniform01(word) >= p as an integer comparison: the 24 bits are at least ceil(p 2^24). Exact for every p in
// [0, 1).
EDDY_INLINE std::uint32_t threshold_of(double p) {
  return static_cast<std::uint32_t>(ceil(p * 0x1p24));
}

template <class T, bool Adds>
EDDY_INLINE void apply(std::int64_t n, const std::uint32_t* words, std::uint32_t threshold, T scale,
                       const T* x, T* y) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T scaled = scale * x[i];
    const T value = (words[i] >> 8) >= threshold ? scaled : T(0);
    y[i] = Adds ? y[i] + value : value;
  }
}

template <class T, bool Adds>
void dropout(const DropoutArgs& args) {
  const std::uint32_t threshold = threshold_of(args.p);
  const T scale = static_cast<T>(args.scale);
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  const std::uint64_t first = args.first_element;
  const RandomKey key = args.key;
  parallel_for(args.n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint32_t words[kPhiloxWords];
    // A chunk may begin inside a group of four words: the words before its first element are skipped.
    std::int64_t skip = static_cast<std::int64_t>((first + static_cast<std::uint64_t>(begin)) & 3);
    for (std::int64_t i = begin; i < end;) {
      philox_words(key, (first + static_cast<std::uint64_t>(i)) >> 2, words);
      const std::int64_t count = kPhiloxWords - skip < end - i ? kPhiloxWords - skip : end - i;
      if (count == kPhiloxWords)
        apply<T, Adds>(kPhiloxWords, words, threshold, scale, x + i, y + i);
      else
        apply<T, Adds>(count, words + skip, threshold, scale, x + i, y + i);
      i += count;
      skip = 0;
    }
  });
}

template <class T>
void dropout_by_beta(const DropoutArgs& args) {
  args.beta == 0 ? dropout<T, false>(args) : dropout<T, true>(args);
}

constexpr std::int64_t kPiece = 512;  // columns of a mask that are drawn at once

// Writes scale or 0 for each of `count` elements, starting at a word.
template <class T>
EDDY_INLINE void draw_mask(const RandomKey& key, std::uint64_t first, std::int64_t count,
                           std::uint32_t threshold, T scale, T* mask) {
  alignas(64) std::uint32_t words[kPhiloxWords];
  std::int64_t skip = static_cast<std::int64_t>(first & 3);
  for (std::int64_t i = 0; i < count;) {
    philox_words(key, (first + static_cast<std::uint64_t>(i)) >> 2, words);
    const std::int64_t drawn = kPhiloxWords - skip < count - i ? kPhiloxWords - skip : count - i;
    for (std::int64_t j = 0; j < drawn; ++j) mask[i + j] = (words[skip + j] >> 8) >= threshold ? scale : T(0);
    i += drawn;
    skip = 0;
  }
}

template <class T>
void tiled_dropout(const TiledDropoutArgs& args) {
  const std::uint32_t threshold = threshold_of(args.p);
  const T scale = static_cast<T>(args.scale);
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  const std::int64_t time = args.time, dim = args.dim, tile = args.tile;
  const std::int64_t rows = tile < time ? tile : time, pieces = (dim + kPiece - 1) / kPiece;
  const std::int64_t places = args.batch * ((time + tile - 1) / tile) * (dim < kPiece ? dim : kPiece);
  parallel_for(rows * pieces, places < kGrain ? kGrain / places : 1,
               [=, &args](std::int64_t begin, std::int64_t end) {
                 T mask[kPiece];
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t row = i / pieces, column = i % pieces * kPiece;
                   const std::int64_t count = dim - column < kPiece ? dim - column : kPiece;
                   const std::int64_t word = (args.first + row) % tile * dim + column;
                   draw_mask(args.key, static_cast<std::uint64_t>(word), count, threshold, scale, mask);
                   for (std::int64_t b = 0; b < args.batch; ++b)
                     for (std::int64_t t = row; t < time; t += tile) {
                       const std::int64_t at = (b * time + t) * dim + column;
                       for (std::int64_t d = 0; d < count; ++d) y[at + d] = x[at + d] * mask[d];
                     }
                 }
               });
}

}  // namespace

EDDY_CPU_KERNEL(dropout, dropout_by_beta)
EDDY_CPU_KERNEL(tiled_dropout, tiled_dropout)

}  // namespace eddy::EDDY_ISA
