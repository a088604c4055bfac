// The gradient of attention's bias by distance, from the slices that the kernels for dq leave
// (cuda/attention/attention_tensor_core_bias.cuh), one for each block of queries of a head. Adds those of a
// run of sequences, in the order of sequences and blocks, to the parts that
// cuda/attention/attention_backward.cu sums.
//
//   mapping        a thread for each entry of a part
//   shared memory  none
//   bytes moved    each slice once, the least; a thread has 8 loads in flight
#include "cuda/attention/attention.cuh"
#include "cuda/attention/attention_tensor_core.h"

namespace eddy::cuda {
namespace {

struct SliceLaunch {
  const float* slices;  // [batch, heads, tiles, entries]
  float* parts;         // [heads, batch_parts, distances]
  std::int64_t batch, heads, tiles, entries, least, distances, batch_parts, part_sequences;
};

__global__ void bias_slices_kernel(SliceLaunch launched) {
  const std::int64_t tiles = launched.tiles, entries = launched.entries;
  const std::int64_t parts = launched.heads * launched.batch_parts;
  for (std::int64_t i = first_item(); i < parts * launched.distances; i += item_step()) {
    const std::int64_t part = i / launched.distances, entry = i % launched.distances - launched.least;
    const std::int64_t head = part / launched.batch_parts, run = part % launched.batch_parts;
    const std::int64_t begin = run * launched.part_sequences;
    const std::int64_t end = min(begin + launched.part_sequences, launched.batch);
    float sum = 0;
    if (entry >= 0)  // no pair is visible below `least`
      for (std::int64_t batch = begin; batch < end; ++batch) {
        const float* const from = launched.slices + (batch * launched.heads + head) * tiles * entries + entry;
#pragma unroll 8
        for (std::int64_t tile = 0; tile < tiles; ++tile) sum += from[tile * entries];
      }
    launched.parts[i] = sum;
  }
}

}  // namespace

void add_bias_slices(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                     const float* slices, std::int64_t tiles) {
  const AttentionArgs& forward = args.forward;
  launch("attention_dbias_slices", bias_slices_kernel,
         grid_for(forward.heads * partials.batch_parts * forward.distances, kThreads), kThreads,
         {slices, static_cast<float*>(forward.scratch) + partials.bias, forward.batch, forward.heads, tiles,
          forward.most - forward.least + 1, forward.least, forward.distances, partials.batch_parts,
          partials.part_sequences});
}

}  // namespace eddy::cuda
