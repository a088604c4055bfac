// /proc/self/status, /proc/meminfo (proc(5)) and madvise.
#include "tensor/system/memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <fstream>

#include "tensor/system/named_numbers.h"

namespace eddy {
namespace {

constexpr std::int64_t kKiB = 1024;

std::int64_t of_process(const char* name, const std::string& root = "") {
  return kKiB * number_behind(root + "/proc/self/status", name);
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  const auto of = [&](const char* name) { return kKiB * number_behind(root + "/proc/meminfo", name); };
  return {of("MemAvailable:"), of("MemTotal:"), of("SwapFree:")};
}

std::int64_t resident_memory(const std::string& root) {
  return of_process("VmRSS:", root);
}

std::int64_t resident_peak() {
  return of_process("VmHWM:");
}

void forget_resident_peak() {
  std::ofstream("/proc/self/clear_refs") << "5" << std::flush;
}

void return_freed_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

std::int64_t address_space_bytes() {
  return of_process("VmSize:");
}

void advise_huge_pages(void* begin, std::size_t bytes) {
  madvise(begin, bytes, MADV_HUGEPAGE);
}

}  // namespace eddy
