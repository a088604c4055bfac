// The samples of optimizers over arenas, for their specs.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/op_spec.h"
#include "ops/optimizer/optimizer.h"

namespace eddy::detail {

// A gap at either end and one inside, and a border inside a chunk.
inline std::vector<DecaySegment> sample_segments(std::int64_t n) {
  return {{n / 7, n / 3, 0.1}, {n / 2, n - n / 5, 0.3}};
}

// Gives a spec its samples: sample(n, scale) returns arenas of n elements, with gradients of that size.
template <class Sample>
void set_arena_samples(OpSpec& spec, const Sample& sample) {
  spec.samples = {{"size_0", sample(0, 1), false},      {"size_1", sample(1, 0.1), false},
                  {"odd_tail", sample(67, 0.1), false}, {"many_chunks", sample(40001, 0.003), false},
                  {"clipped", sample(67, 10), false},   {"large", sample(33, 1e6), false}};
  spec.roundings = 16;
  spec.bench = [sample] { return sample(1 << 22, 1); };
}

}  // namespace eddy::detail
