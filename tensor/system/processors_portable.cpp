// Processors as the C++ library counts them. macOS keeps no process to some of them, and names them by sysctl.
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include <cstddef>
#include <thread>

#include "tensor/system/processors.h"

namespace eddy {

ProcessorSet allowed_processors() {
  ProcessorSet set;
  for (int i = 0; i < static_cast<int>(std::thread::hardware_concurrency()); ++i) set.add(i);
  return set;
}

std::string processor_name() {
#if defined(__APPLE__)
  char name[256] = "";
  std::size_t bytes = sizeof name;
  if (sysctlbyname("machdep.cpu.brand_string", name, &bytes, nullptr, 0) == 0) return name;
#endif
  return "unknown";
}

// Which call would ask is not known.
bool allow_amx_tiles() {
  return false;
}

bool has_bf16_matrices() {
#if defined(__APPLE__)
  int found = 0;
  std::size_t bytes = sizeof found;
  return sysctlbyname("hw.optional.arm.FEAT_BF16", &found, &bytes, nullptr, 0) == 0 && found != 0;
#else
  return false;
#endif
}

}  // namespace eddy
