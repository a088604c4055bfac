// Gives PTX's registers, of which compilers name thousands, places that they share when they are not alive together.
#pragma once

#include <vector>

#include "tests/ptx/interpreter/machine.h"

namespace ptx {

// Returns the place of each register in a warp's register file, and sets its size. Operands of `code` that are
// not negative are numbers of registers, which have `bytes` each.
std::vector<int> places_of_registers(const std::vector<Instruction>& code, const std::vector<int>& bytes,
                                     std::size_t& size);

}  // namespace ptx
