// sched_getaffinity, /proc/cpuinfo and arch_prctl.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tensor/system/processors.h"

namespace eddy {

ProcessorSet allowed_processors() {
  ProcessorSet set;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(static_cast<std::size_t>(i), &allowed)) set.add(i);
  if (set.count() > 0) return set;
  // The machine has more processors than the set.
  for (int i = 0; i < static_cast<int>(std::thread::hardware_concurrency()); ++i) set.add(i);
  return set;
}

std::string processor_name() {
  constexpr const char* kBlanks = " \t";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    const std::size_t first = line.find_first_not_of(kBlanks, colon + 1);
    return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(kBlanks) - first + 1);
  }
  return "unknown";
}

bool allow_amx_tiles() {
#if defined(SYS_arch_prctl)
  constexpr long kAskPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace eddy
