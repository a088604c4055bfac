// Random words in kernels.
#pragma once

#include <cuda_runtime.h>

#include "tensor/random/philox.h"

namespace eddy::cuda {

// Returns the word of one element, as RandomKey::word, which picks it from a table of four: a thread would keep that in
// local memory.
__device__ inline std::uint32_t random_word(const RandomKey& key, std::uint64_t element) {
  const Philox4 four = key.words(element >> 2);
  const std::uint32_t even = (element & 2) != 0 ? four.word[2] : four.word[0],
                      odd = (element & 2) != 0 ? four.word[3] : four.word[1];
  return (element & 1) != 0 ? odd : even;
}

}  // namespace eddy::cuda
