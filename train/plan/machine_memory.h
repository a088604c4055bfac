// The memory of this process, and what the machine and its limits leave it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace eddy::training {

// Returns the bytes of this process that are resident in memory now: code, heap, tensors, text. 0 where the system
// does not tell.
std::int64_t resident_bytes();
// Returns the most that was ever resident.
std::int64_t resident_peak_bytes();
// Returns the most that is resident while `run` runs; where the system cannot tell, the most that ever was.
std::int64_t resident_peak_of(const std::function<void()>& run);

// How much memory this process can have resident.
struct MemoryBudget {
  std::int64_t bytes = 0;  // in all, what it has already included; 0: not known
  std::int64_t whole = 0;  // the size of what limits it
  std::string limit;       // "this machine", "the control group /sys/fs/cgroup/a", "ulimit -v"
  std::int64_t swap = 0;   // free swap that it can have beside them, which is slow

  std::int64_t with_swap() const { return bytes + swap; }
};

// Returns the budget, which the tightest limit leaves: the free memory of the machine, the control groups of versions 1
// and 2, the limit on the address space. Memory that only holds files of the disk counts as free. `root` stands in
// front of all paths.
MemoryBudget memory_budget(const std::string& root = "");

// Lets the rest of this program take more memory than there is: what it would refuse it only warns of.
void overrule_memory_check();
bool memory_check_overruled();

// Returns the bytes that this process can take beside what it has, those of swap included, at least 0;
// MemoryLimit::kNone where that is not known, and where the check is overruled.
std::int64_t free_memory();

}  // namespace eddy::training
