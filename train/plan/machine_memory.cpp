// What the system tells, and the files of the control groups.
#include "train/plan/machine_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "tensor/base/format.h"
#include "tensor/memory/memory_limit.h"
#include "tensor/system/control_groups.h"
#include "tensor/system/memory.h"
#include "tensor/system/named_numbers.h"

namespace eddy::training {
namespace {

// A group without a limit has "max", or in version 1 a number near 2^63.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

std::atomic<std::int64_t> highest_before{0};  // the peak that was there before it was reset
std::atomic<bool> check_overruled{false};

std::int64_t first_number(const std::string& file) {
  std::int64_t number = 0;
  std::ifstream(file) >> number;  // "max" leaves 0
  return number;
}

// The part of the machine's free swap that a group leaves to this process, where it limits memory to `most`.
std::int64_t swap_in(const ControlGroup& group, std::int64_t most, std::int64_t machine) {
  const auto read_number = [&](const char* name, std::int64_t& number) {
    return static_cast<bool>(std::ifstream(group.folder + name) >> number);  // not of "max"
  };
  std::int64_t limit = 0, used = 0;
  if (group.version_2) {
    if (!read_number("/memory.swap.max", limit)) return machine;
    read_number("/memory.swap.current", used);
    return std::clamp<std::int64_t>(limit - used, 0, machine);
  }
  // Version 1 limits memory and swap together.
  if (!read_number("/memory.memsw.limit_in_bytes", limit) || limit >= kNoLimit) return machine;
  read_number("/memory.memsw.usage_in_bytes", used);
  used -= std::min(used, first_number(group.folder + "/memory.usage_in_bytes"));
  return std::clamp<std::int64_t>(limit - most - used, 0, machine);
}

// The budget in one control group, that of this process included; no limit leaves `limit` empty.
MemoryBudget budget_of(const ControlGroup& group, std::int64_t own, std::int64_t swap) {
  const bool v2 = group.version_2;
  const std::int64_t most = first_number(group.folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  if (most <= 0 || most >= kNoLimit) return {};
  const std::int64_t used = first_number(group.folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  std::int64_t of_files = 0;
  for (const char* const list : {"inactive_file", "active_file"})
    of_files += number_behind(group.folder + "/memory.stat", (v2 ? "" : "total_") + std::string(list));
  const std::int64_t others = std::max<std::int64_t>(0, used - of_files - own);
  return {std::max<std::int64_t>(0, most - others), most, "the control group " + group.folder,
          swap_in(group, most, swap)};
}

}  // namespace

std::int64_t resident_bytes() {
  return resident_memory();
}

std::int64_t resident_peak_bytes() {
  return std::max(highest_before.load(), resident_peak());
}

std::int64_t resident_peak_of(const std::function<void()>& run) {
  highest_before = resident_peak_bytes();
  forget_resident_peak();
  run();
  return resident_peak();
}

MemoryBudget memory_budget(const std::string& root) {
  const std::int64_t own = resident_memory(root);
  const MachineMemory machine = machine_memory(root);
  MemoryBudget least;
  std::int64_t with_swap = 0;  // the least of all limits too
  const auto take = [&](const MemoryBudget& other) {
    with_swap = least.limit.empty() ? other.with_swap() : std::min(with_swap, other.with_swap());
    if (least.limit.empty() || other.bytes < least.bytes) least = other;
  };
  if (machine.free > 0) take({machine.free + own, machine.whole, "this machine", machine.free_swap});
  for (const ControlGroup& group : control_groups("memory", root))
    if (const MemoryBudget budget = budget_of(group, own, machine.free_swap); !budget.limit.empty())
      take(budget);
  rlimit limit{};
  if (root.empty() && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const auto most = static_cast<std::int64_t>(limit.rlim_cur);
    take({std::max<std::int64_t>(0, most - address_space_bytes()) + own, most, "ulimit -v"});
  }
  least.swap = with_swap - least.bytes;
  return least;
}

void overrule_memory_check() {
  check_overruled = true;
}

bool memory_check_overruled() {
  return check_overruled;
}

std::int64_t free_memory() {
  const std::int64_t budget = memory_budget().with_swap();
  return budget == 0 || check_overruled ? MemoryLimit::kNone
                                        : std::max<std::int64_t>(0, budget - resident_bytes());
}

}  // namespace eddy::training
