// Quotas of control groups, in folders that stand for the system's.
#include "tensor/system/cpu_quota.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "tests/support/files.h"

using namespace eddy;
using namespace eddy::test;

namespace {

constexpr const char* kVersion2 = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

}  // namespace

TEST_CASE("the quota of a group bounds the threads, rounded down and at least one") {
  TempFolder system;
  system.write("proc/self/mountinfo", kVersion2);
  system.write("proc/self/cgroup", "0::/a/b\n");
  CHECK(cpu_quota_threads(system.path()) == 0);
  for (const auto& [text, threads] : {std::pair{"max 100000\n", 0},
                                      {"100000 100000\n", 1},
                                      {"250000 100000\n", 2},
                                      {"50000 100000\n", 1},
                                      {"300000 100000\n", 3},
                                      {"no number", 0},
                                      {"", 0}}) {
    system.write("sys/fs/cgroup/a/b/cpu.max", text);
    CHECK(cpu_quota_threads(system.path()) == threads);
  }
}

TEST_CASE("the least quota of a group and its parents counts") {
  TempFolder system;
  system.write("proc/self/mountinfo", kVersion2);
  system.write("proc/self/cgroup", "0::/a/b\n");
  system.write("sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  system.write("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  CHECK(cpu_quota_threads(system.path()) == 4);
  system.write("sys/fs/cgroup/cpu.max", "20000 10000\n");  // a container sees its own group at the top
  CHECK(cpu_quota_threads(system.path()) == 2);
  system.write("sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
  CHECK(cpu_quota_threads(system.path()) == 1);
}

TEST_CASE("quotas of the first version are found beside the second and inside a container") {
  TempFolder system;
  system.write("proc/self/cgroup", "12:cpuset:/\n4:cpu,cpuacct:/docker/c1\n0::/docker/c1\n");
  std::string mounts = kVersion2;
  mounts += "31 20 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
  mounts += "32 20 0:28 /docker/c1 /sys/fs/cpu\\040group rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
  system.write("proc/self/mountinfo", mounts);
  system.write("sys/fs/cpu group/cpu.cfs_quota_us", "-1\n");
  system.write("sys/fs/cpu group/cpu.cfs_period_us", "100000\n");
  CHECK(cpu_quota_threads(system.path()) == 0);
  system.write("sys/fs/cpu group/cpu.cfs_quota_us", "350000\n");
  CHECK(cpu_quota_threads(system.path()) == 3);
}

TEST_CASE("a group outside of what is mounted, and a system without groups, set no quota of their own") {
  TempFolder system;
  CHECK(cpu_quota_threads(system.path()) == 0);
  system.write("proc/self/cgroup", "0::/../other\nno group\n:\n");
  system.write("proc/self/mountinfo", "no mount\n" + std::string(kVersion2));
  CHECK(cpu_quota_threads(system.path()) == 0);
  system.write("sys/fs/cgroup/cpu.max", "500000 100000\n");
  CHECK(cpu_quota_threads(system.path()) == 5);
}
