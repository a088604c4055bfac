// The memory of this process and of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace eddy {

// Memory of the machine in bytes; 0 for what the system does not tell.
struct MachineMemory {
  std::int64_t free = 0;   // what processes can have, that which only holds files of the disk included
  std::int64_t whole = 0;  // what there is
  std::int64_t free_swap = 0;
};

// Returns the memory of the machine. `root` stands in front of all paths.
MachineMemory machine_memory(const std::string& root = "");

// Returns the bytes of this process that are resident: now; the most there ever were since the start, or since
// forget_resident_peak where the system lets one forget. 0 where the system does not tell. `root` as above.
std::int64_t resident_memory(const std::string& root = "");
std::int64_t resident_peak();
void forget_resident_peak();
// Gives the system what was freed of the heap and is still resident, where the C library does so.
void return_freed_memory();

// Returns the bytes of this process's address space, which RLIMIT_AS limits; 0 where the system does not tell.
std::int64_t address_space_bytes();

// Asks for huge pages where memory is large and aligned to them. Without them it is slower, and no less right.
void advise_huge_pages(void* begin, std::size_t bytes);

}  // namespace eddy
