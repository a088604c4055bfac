// The budget for a run under limits of control groups, in folders that stand for the system's.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/plan/machine_memory.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

std::string mib(std::int64_t count) {
  return std::to_string(count * kMebibyte) + "\n";
}

// A machine with 8 GiB, 4 of them free, and this process, which has 100 MiB.
void write_machine(const TempFolder& system) {
  system.write("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:   1 kB\nMemAvailable:    4194304 kB\n");
  system.write("proc/self/status", "Name:\teddy\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\n");
}

}  // namespace

TEST_CASE("memory budget: without limits it is what is free and what the process has") {
  const TempFolder system;
  write_machine(system);
  const MemoryBudget budget = memory_budget(system.path());
  CHECK(budget.bytes == (4096 + 100) * kMebibyte);
  CHECK(budget.whole == 8192 * kMebibyte);
  CHECK(budget.limit == "this machine");
}

TEST_CASE("memory budget: the tightest group of version 2 counts and files of the disk are free") {
  const TempFolder system;
  write_machine(system);
  system.write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  system.write("proc/self/cgroup", "0::/a/b\n");
  system.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  CHECK(memory_budget(system.path()).limit == "this machine");
  system.write("sys/fs/cgroup/a/memory.max", mib(1000));
  system.write("sys/fs/cgroup/a/memory.current", mib(700));
  system.write("sys/fs/cgroup/a/memory.stat",
               "anon 1\ninactive_file " + mib(300) + "active_file " + mib(100));
  const MemoryBudget budget = memory_budget(system.path());
  CHECK(budget.bytes == (1000 - (700 - 400 - 100)) * kMebibyte);
  CHECK(budget.whole == 1000 * kMebibyte);
  CHECK(contains(budget.limit, "/sys/fs/cgroup/a"));
}

TEST_CASE("memory budget: groups of version 1 count and a number near the largest is no limit") {
  const TempFolder system;
  write_machine(system);
  system.write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  system.write("proc/self/cgroup", "4:memory:/docker/c1\n1:cpu:/\n");
  const std::string group = "sys/fs/cgroup/memory/docker/c1/";
  system.write(group + "memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(memory_budget(system.path()).limit == "this machine");
  system.write(group + "memory.limit_in_bytes", mib(500));
  system.write(group + "memory.usage_in_bytes", mib(450));
  system.write(group + "memory.stat", "total_inactive_file " + mib(50) + "total_active_file 0\n");
  CHECK(memory_budget(system.path()).bytes == (500 - (450 - 50 - 100)) * kMebibyte);
}

TEST_CASE("memory budget: free swap counts beside it as far as every limit leaves some") {
  const TempFolder system;
  write_machine(system);
  CHECK(memory_budget(system.path()).swap == 0);
  system.write("proc/meminfo",
               "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nSwapTotal: 9 kB\nSwapFree: 2097152 kB\n");
  const MemoryBudget machine = memory_budget(system.path());
  CHECK(machine.bytes == (4096 + 100) * kMebibyte);
  CHECK(machine.swap == 2048 * kMebibyte);
  CHECK(machine.with_swap() == (4096 + 100 + 2048) * kMebibyte);

  SUBCASE("a group of version 2") {
    system.write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    system.write("proc/self/cgroup", "0::/a\n");
    const std::string group = "sys/fs/cgroup/a/";
    system.write(group + "memory.max", mib(1000));
    const auto swap = [&] { return memory_budget(system.path()).swap; };
    CHECK(swap() == 2048 * kMebibyte);
    system.write(group + "memory.swap.max", "max\n");
    CHECK(swap() == 2048 * kMebibyte);
    system.write(group + "memory.swap.max", mib(300));
    system.write(group + "memory.swap.current", mib(100));
    CHECK(swap() == 200 * kMebibyte);
    system.write(group + "memory.swap.max", "0\n");
    CHECK(swap() == 0);
  }
  SUBCASE("a group of version 1") {
    system.write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    system.write("proc/self/cgroup", "4:memory:/c\n");
    const std::string group = "sys/fs/cgroup/memory/c/";
    system.write(group + "memory.limit_in_bytes", mib(500));
    system.write(group + "memory.usage_in_bytes", mib(80));
    CHECK(memory_budget(system.path()).swap == 2048 * kMebibyte);
    system.write(group + "memory.memsw.limit_in_bytes", mib(700));
    system.write(group + "memory.memsw.usage_in_bytes", mib(130));
    CHECK(memory_budget(system.path()).swap == (700 - 500 - 50) * kMebibyte);
    system.write(group + "memory.memsw.limit_in_bytes", mib(500));
    CHECK(memory_budget(system.path()).swap == 0);
  }
  SUBCASE("the machine has less than the tightest limit and its swap") {
    system.write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    system.write("proc/self/cgroup", "0::/a\n");
    system.write("sys/fs/cgroup/a/memory.max", mib(4000));
    system.write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nSwapFree: 102400 kB\n");
    const MemoryBudget budget = memory_budget(system.path());
    CHECK(budget.bytes == 4000 * kMebibyte);
    CHECK(budget.swap == 100 * kMebibyte);
  }
}
