// Gives PTX's registers, of which compilers name thousands, places that they share when they are not alive together,
// and variables their places in memory.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/ptx/interpreter/machine.h"

namespace ptx {

// Returns the place of each register in a warp's register file, and sets its size. Operands of `code` that are
// not negative are numbers of registers, which have `bytes` each.
std::vector<int> places_of_registers(const std::vector<Instruction>& code, const std::vector<int>& bytes,
                                     std::size_t& size);

// Where each variable that a function uses lies, by its name; sets how many bytes of arguments, static shared and local
// memory there are.
using Variables = std::map<std::string, std::pair<Space, std::int64_t>>;
Variables place_variables(Program& program);

}  // namespace ptx
