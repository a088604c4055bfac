// Kernels whose blocks are all resident at once, and waits for what else happens; implemented in threads.cpp, the last
// two functions in transactions.cpp.
#pragma once

#include "tests/emulation/emulation.h"

namespace emulation {

// As run, but all blocks are resident at once, with their threads in one random order. Blocks have their own
// dynamic shared memory; shared memory that the kernel declares would be the same for all of them.
void run_resident(const Launch& launch, const std::function<void()>& body);
// Returns the most blocks that can be resident at once.
int most_resident_blocks(int threads);
// Waits until `over` returns true.
void wait_until(const std::function<bool()>& over);

// Completes one of the copies of boxes that are on their way, `which` of them; returns false if there is none.
bool complete_copy(std::uint32_t which);
// Checks that no copy is on its way, and forgets the barriers of phases: all threads have ended.
void end_of_phases();

}  // namespace emulation
