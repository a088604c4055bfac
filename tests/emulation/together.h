// Kernels whose blocks are all there at once and wait for each other; threads.cpp.
#pragma once

#include "tests/emulation/emulation.h"

namespace emulation {

// As run, but all blocks are there at once, their threads in one random order. The blocks' shared memory is
// that of the launch: what the kernel declares itself would be one for all of them.
void run_together(const Launch& launch, const std::function<void()>& body);
// The most blocks that run_together takes.
int blocks_together(int threads);
// Waits for all threads of the `blocks` blocks from `first_block` on.
void meet(int first_block, int blocks);

}  // namespace emulation
