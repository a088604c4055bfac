// getrusage and sysconf: the whole memory counts as free, since POSIX tells no more. macOS tells by Mach.
#include "tensor/system/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

namespace eddy {

#if defined(__APPLE__)

MachineMemory machine_memory(const std::string& /*root*/) {
  MachineMemory memory;
  std::size_t bytes = sizeof memory.whole;
  sysctlbyname("hw.memsize", &memory.whole, &bytes, nullptr, 0);
  xsw_usage swap{};
  bytes = sizeof swap;
  if (sysctlbyname("vm.swapusage", &swap, &bytes, nullptr, 0) == 0)
    memory.free_swap = static_cast<std::int64_t>(swap.xsu_avail);
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (host_statistics64(mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count) ==
      KERN_SUCCESS)
    memory.free = (std::int64_t{pages.free_count} + pages.inactive_count + pages.purgeable_count) *
                  static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  return memory;
}

namespace {

mach_task_basic_info of_process() {
  mach_task_basic_info info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return info;
}

}  // namespace

std::int64_t resident_memory(const std::string& /*root*/) {
  return static_cast<std::int64_t>(of_process().resident_size);
}

std::int64_t resident_peak() {
  return static_cast<std::int64_t>(of_process().resident_size_max);
}

#else

MachineMemory machine_memory(const std::string& root) {
  const std::int64_t pages = root.empty() ? sysconf(_SC_PHYS_PAGES) : 0;
  const std::int64_t bytes = pages > 0 ? pages * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE)) : 0;
  return {bytes, bytes, 0};
}

std::int64_t resident_memory(const std::string& /*root*/) {
  return 0;
}

std::int64_t resident_peak() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return std::int64_t{usage.ru_maxrss} * 1024;
}

#endif

void forget_resident_peak() {}

void return_freed_memory() {}

// macOS counts what all programs share, hundreds of GiB, and holds no process to RLIMIT_AS.
std::int64_t address_space_bytes() {
  return 0;
}

void advise_huge_pages(void* /*begin*/, std::size_t /*bytes*/) {}

}  // namespace eddy
