// Kernels whose blocks are all resident at once, and wait for each other; implemented in threads.cpp.
#pragma once

#include "tests/emulation/emulation.h"

namespace emulation {

// As run, but all blocks are resident at once, with their threads in one random order. Blocks have their own
// dynamic shared memory; shared memory that the kernel declares would be the same for all of them.
void run_resident(const Launch& launch, const std::function<void()>& body);
// Returns the most blocks that can be resident at once.
int most_resident_blocks(int threads);
// A barrier: waits for all threads of the `blocks` blocks from `first_block` on.
void sync_blocks(int first_block, int blocks);
// Waits until a number in global memory, which another block changes, has this value.
void await_number(const unsigned* number, unsigned value);

}  // namespace emulation
