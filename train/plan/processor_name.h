// The name of the processor, where measurements are said to be from.
#pragma once

#include <string>

namespace eddy::training {

// Returns the processor's name as Linux has it in this file; "unknown" where it says nothing. On ARM64 the file has
// numbers for each core, of the maker and of the design: those that are known become names, of a processor with several
// kinds of cores all of them.
std::string processor_name(const std::string& file = "/proc/cpuinfo");

}  // namespace eddy::training
