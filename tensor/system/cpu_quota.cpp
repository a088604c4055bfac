// The files cpu.max and cpu.cfs_quota_us of the control groups.
#include "tensor/system/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "tensor/system/control_groups.h"

namespace eddy {
namespace {

// The processors' worth of time that one group allows; infinite without a quota.
double allowance(const ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.version_2) {
    std::ifstream(group.folder + "/cpu.max") >> quota >> period;  // "max 100000" leaves zeros
  } else {
    std::ifstream(group.folder + "/cpu.cfs_quota_us") >> quota;  // -1: none
    std::ifstream(group.folder + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

}  // namespace

int cpu_quota_threads(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  for (const ControlGroup& group : control_groups("cpu", root)) least = std::min(least, allowance(group));
  if (least > std::numeric_limits<int>::max()) return 0;
  return std::max(1, static_cast<int>(least));
}

}  // namespace eddy
