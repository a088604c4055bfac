// The limit on processor time that Linux's control groups set, as by `docker run --cpus` or Kubernetes. More threads
// than it allows are stopped for a part of each period, and all others wait for them.
// Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst (version 1).
#pragma once

#include <string>

namespace eddy {

// Returns how many threads can run all the time under the quotas of this process's groups and of their parents,
// rounded down and at least 1; 0 without a quota. Files that cannot be read set none. `root` stands in front of all
// paths.
int cpu_quota_threads(const std::string& root = "");

}  // namespace eddy
