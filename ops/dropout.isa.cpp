// CPU kernel of dropout: 64 words at a time in vector code, then one pass over the elements they belong to.
// Bound by the ten Philox rounds (0.7 ns for an element with AVX-512), not by memory.
#include "ops/dropout.h"

#include <math.h>

#include "ops/cpu/isa.h"
#include "ops/cpu/philox_words.h"
#include "tensor/thread_pool.h"

namespace eddy::EDDY_ISA {

void install_dropout();

namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements per chunk

// uniform01(word) >= p, as a comparison of integers: the 24 bits reach ceil(p 2^24). Exact for every p in [0,
// 1).
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

}  // namespace

void install_dropout() {
  install_cpu(dropout_slot, dropout_by_beta<float>, EDDY_F64(dropout_by_beta<double>));
}

}  // namespace eddy::EDDY_ISA
