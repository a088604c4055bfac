// Faults planted into the PTX of the library's kernels, to see that a replay finds them.
//
// A fault changes one statement of a kernel, which a recorded launch reaches. Not every place matters: a barrier
// may be one more than needed, and swapped operands may be equal. So a kind of fault is planted in one place after
// another until the replay fails; it must within kMostPlaces.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/ptx/launches.h"

namespace ptx {

struct Candidate {
  const Module* module = nullptr;
  const Function* function = nullptr;
  std::vector<RecordedLaunch> launches;
};

// Returns how many kinds of faults went unseen, and prints where each was seen.
int count_unseen_faults(const std::map<std::string, Candidate>& kernels);

}  // namespace ptx
