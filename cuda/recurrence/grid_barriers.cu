// Grid barriers alone, to measure them.
//
//   mapping        groups of 16 blocks, one block to a multiprocessor, as the fused block accumulate has them
//   shared memory  none
//   bytes moved    none but the counters of the barriers
#include <algorithm>

#include "cuda/recurrence/fused_layer.cuh"

namespace eddy::cuda {
namespace {

struct LaunchedBarriers {
  unsigned* counters;
  int blocks, barriers;
};

__global__ void __launch_bounds__(kFusedThreads, 1)
    grid_barriers_kernel(const __grid_constant__ LaunchedBarriers launched) {
  BlockGroup group(launched.counters, launched.blocks);
  for (int i = 0; i < launched.barriers; ++i) group.sync();
}

}  // namespace

void run_grid_barriers(int barriers) {
  constexpr int kMostBlocks = 16;  // of a group
  const int resident =
                std::min(most_resident_blocks(grid_barriers_kernel, kFusedThreads, 0), multiprocessors()),
            blocks = std::min(resident, kMostBlocks), groups = resident / blocks;
  const Tensor counters = barrier_counters(groups);
  start_resident("grid_barriers", grid_barriers_kernel, groups * blocks, kFusedThreads, 0,
                 LaunchedBarriers{static_cast<unsigned*>(counters.raw_data()), blocks, barriers});
  check_launch("grid_barriers");
}

}  // namespace eddy::cuda
