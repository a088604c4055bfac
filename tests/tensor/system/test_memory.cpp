// The memory of this process and of the machine.
#include "tensor/system/memory.h"

#include <doctest/doctest.h>

#include <cstdint>

using namespace eddy;

TEST_CASE("system memory: what is told is no more than what there is") {
  const MachineMemory machine = machine_memory();
  CHECK(machine.whole > 0);
  CHECK(machine.free > 0);
  CHECK(machine.free <= machine.whole);
  const std::int64_t now = resident_memory();
  CHECK(resident_peak() >= now);
  CHECK(resident_peak() <= machine.whole + machine.free_swap);
}
