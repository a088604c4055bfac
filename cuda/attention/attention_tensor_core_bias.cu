// The gradient of attention's bias by distance, from the slices that the kernels for dq leave
// (cuda/attention/attention_tensor_core_bias.cuh), one for each block of queries of a head. Adds those of a
// run of sequences, in the order of sequences and blocks, to the run's partial table.
//
//   mapping        a thread for each visible distance of a partial table
//   shared memory  none
//   bytes moved    each slice once, the least; a thread has 8 loads in flight
#include "cuda/attention/attention.cuh"
#include "cuda/attention/attention_tensor_core.h"

namespace eddy::cuda {
namespace {

struct SliceLaunch {
  const float* slices;  // [batch, heads, tiles, entries]
  float* parts;         // [runs, heads, stride], from distance `least` on
  std::int64_t batch, heads, tiles, entries, stride;
  AttentionTableRuns tables;
};

__global__ void bias_slices_kernel(SliceLaunch launched) {
  const std::int64_t tiles = launched.tiles, entries = launched.entries;
  for (std::int64_t i = first_item(); i < launched.tables.runs * launched.heads * entries; i += item_step()) {
    const std::int64_t part = i / entries, entry = i % entries;
    const std::int64_t run = part / launched.heads, head = part % launched.heads;
    const std::int64_t begin = run * launched.tables.sequences;
    const std::int64_t end = min(begin + launched.tables.sequences, launched.batch);
    float sum = 0;
    for (std::int64_t batch = begin; batch < end; ++batch) {
      const float* const from = launched.slices + (batch * launched.heads + head) * tiles * entries + entry;
#pragma unroll 8
      for (std::int64_t tile = 0; tile < tiles; ++tile) sum += from[tile * entries];
    }
    launched.parts[part * launched.stride + entry] += sum;
  }
}

}  // namespace

void add_bias_slices(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                     const float* slices, std::int64_t tiles) {
  const AttentionArgs& forward = args.forward;
  const std::int64_t entries = forward.most - forward.least + 1;
  launch("attention_dbias_slices", bias_slices_kernel,
         grid_for(partials.tables.runs * forward.heads * entries, kThreads), kThreads,
         {slices, static_cast<float*>(args.dbias) + forward.least, forward.batch, forward.heads, tiles,
          entries, args.dbias_stride, partials.tables});
}

}  // namespace eddy::cuda
