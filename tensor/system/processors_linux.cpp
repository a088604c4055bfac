// sched_getaffinity, /proc/cpuinfo, arch_prctl and the auxiliary vector.
#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "tensor/system/cpuinfo.h"
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
  return processor_name_in("/proc/cpuinfo");
}

bool allow_amx_tiles() {
#if defined(SYS_arch_prctl)
  constexpr long kAskPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool has_bf16_matrices() {
#if defined(__aarch64__)
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16, which older headers lack
  return (getauxval(AT_HWCAP2) & kBf16) != 0;
#else
  return false;
#endif
}

}  // namespace eddy
